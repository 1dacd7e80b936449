"""Query engines read push tables while rows arrive, and never collect them first."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest
from tests.push.pushing import DEADLINE, NUMBERS, Producer, numbers, producing

from streamfactory import push_table
from streamfactory.engines import duckdb as engine
from streamfactory.push import PushTable, StopPushing
from streamfactory.spi import ReaderFinished


def rows_of(
    query: str,
    table: PushTable,
    connection: duckdb.DuckDBPyConnection | None = None,
) -> list[Any]:
    """What DuckDB answers to a query of the table ``pushed``."""
    own = connection or duckdb.connect()
    own.register("pushed", table)
    found: list[Any] = own.execute(query).fetchall()
    return found


def test_duckdb_aggregates_while_rows_arrive() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=2)
    with producing(sink, (numbers(n) for n in range(0, 10_000, 10))):
        query = "select count(*), sum(number) from pushed"
        assert rows_of(query, table) == [(10_000, sum(range(10_000)))]


def test_a_limit_ends_the_producer_with_the_signal() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)

    def work() -> None:
        while True:
            sink.write(numbers(0))

    producer = Producer(work)
    found = rows_of("select number from pushed limit 3", table)
    assert found == [(0,), (1,), (2,)]
    assert isinstance(producer.join(), StopPushing)
    assert sink.reader_end == ReaderFinished()
    assert table.statistics.queued_batches == 0


def test_a_limit_of_a_query_by_name_ends_the_producer() -> None:
    sink, _table = push_table(NUMBERS, capacity_batches=1, name="limited")
    stream = {"streamType": "push", "stream.push.topic.name": "limited"}

    def work() -> None:
        while True:
            sink.write(numbers(0))

    producer = Producer(work)
    with duckdb.connect() as connection:
        engine.register(connection, stream, name="limited", unbounded=True)
        found = connection.execute("select number from limited limit 2").fetchall()
        assert found == [(0,), (1,)]
    gc.collect()
    assert isinstance(producer.join(), StopPushing)


def test_a_cancelled_query_ends_the_producer() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=1)
    connection = duckdb.connect()
    begun = threading.Event()

    def work() -> None:
        while True:
            sink.write(numbers(0, 1000))
            if sink.statistics.rows_read > 10_000:
                begun.set()

    def query() -> None:
        rows_of("select sum(number) from pushed", table, connection)

    producer, querying = Producer(work), Producer(query)
    assert begun.wait(DEADLINE)
    connection.interrupt()
    assert isinstance(querying.join(), duckdb.InterruptException)
    connection.close()
    table.close()
    assert isinstance(producer.join(), StopPushing)


def test_a_failed_producer_fails_the_query_with_its_cause() -> None:
    sink, table = push_table(NUMBERS)
    sink.write(numbers(0))
    sink.fail(ValueError("no more"))
    with pytest.raises(duckdb.Error, match="the producer failed: ValueError: no more"):
        rows_of("select sum(number) from pushed", table)


def test_a_self_join_of_a_table_that_is_read_once_is_refused() -> None:
    sink, table = push_table(NUMBERS)
    with sink:
        sink.write(numbers(0))
    query = "select count(*) from pushed a join pushed b using (number)"
    with pytest.raises(duckdb.Error, match="read once"):
        rows_of(query, table)


def test_pyarrow_scans_a_table_batch_by_batch() -> None:
    sink, table = push_table(NUMBERS, capacity_batches=2)
    with producing(sink, (numbers(n) for n in range(0, 1000, 10))):
        scanner = ds.Scanner.from_batches(table.to_reader(), columns=["number"])
        assert scanner.count_rows() == 1000


MEMORY = """
import re, threading
import pyarrow as pa
from streamfactory import push_table

ROWS, BATCHES = 1 << 20, {batches}
schema = pa.schema([("number", pa.int64())])
sink, pushed = push_table(schema, capacity_bytes=64 << 20, name="pushed")
stream = {{"streamType": "push", "stream.push.topic.name": "pushed"}}

def push():
    with sink:
        for n in range(BATCHES):
            sink.write(pa.record_batch([pa.arange(n, n + ROWS)], schema))

producer = threading.Thread(target=push)
{prepare}
producer.start()
rows = {query}
producer.join()
# `ru_maxrss` counts what the process was forked from.
status = open("/proc/self/status").read()
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) >> 10
print(rows == ROWS * BATCHES, peak, ROWS * BATCHES * 8 >> 20)
"""
ENGINES = {
    "duckdb": (
        "import duckdb; duckdb.execute('set enable_progress_bar = false')",
        "duckdb.execute('select count(number) from pushed').fetchone()[0]",
    ),
    "polars": (
        """
import polars as pl
from streamfactory.engines import polars
frame = polars.scan(stream, unbounded=True).select(pl.col("number").count())
""",
        "frame.collect(engine='streaming').item()",
    ),
    "datafusion": (
        """
import datafusion
from streamfactory.engines import datafusion as engine
context = datafusion.SessionContext()
engine.register(context, stream, name="pushed", unbounded=True)
query = "select count(number) as n from pushed"
""",
        "context.sql(query).collect()[0]['n'][0].as_py()",
    ),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    "batches",
    [
        pytest.param(150, id="1.2 GB"),
        pytest.param(1250, marks=pytest.mark.long("10 GB"), id="10 GB"),
    ],
)
def test_memory_stays_flat_however_much_passes(engine: str, batches: int) -> None:
    prepare, query = ENGINES[engine]
    program = MEMORY.format(batches=batches, prepare=prepare, query=query)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    is_whole, peak, passed = done.stdout.split()
    assert is_whole == "True"
    assert int(passed) >= 1200
    assert int(peak) < 700  # MB: the programs themselves have 150 to 300, the lane 64
