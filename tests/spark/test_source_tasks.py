"""What a task does, without Spark: readers that stay, rows that fit, bounded memory."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.spark.tasks import ReaderPool, read
from streamfactory.spi import IncarnationChanged, OffsetOutOfRange, SchemaMismatch
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch import Planner, Range
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.proving.sessions import Topic

    from streamfactory.spi import StreamConfig

ID = pa.schema([("id", pa.int64())])
FORK = """
import os, sys
from streamfactory.spark.definition import configured_by
from streamfactory.spark.tasks import ReaderPool
from streamfactory.spi import Partition
from streamfactory.wiring.microbatch import Range

config = configured_by(dict(arg.split("=", 1) for arg in sys.argv[1:]))[0].config
wanted = Range(Partition("clicks", 0), 0, 3, None)
pool = ReaderPool()

def rows():
    with pool.acquire(config, None, wanted) as (_, reader):
        return reader, reader.fetch(0, end=3).rows.column("id").to_pylist()

before, first = rows()
child = os.fork()
if child == 0:
    other, again = rows()
    os._exit(0 if other is not before and again == [1, 2, 3] else 1)
assert os.waitpid(child, 0)[1] == 0, "the child used its parent's reader"
after, again = rows()
assert after is before
assert again == first == [1, 2, 3]
pool.close()
"""


class Time:
    """Seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def pool(time: Time) -> Iterator[ReaderPool]:
    with closing(ReaderPool(time)) as pool:
        yield pool


def config_of(topic: Topic, **options: str) -> StreamConfig:
    properties = {**topic.options, **options}
    return configure(from_mapping(properties), default_manager(), use="spark").config


def planned(topic: Topic, **options: str) -> list[Range]:
    configured = configure(
        from_mapping({**topic.options, **options}), default_manager(), use="spark"
    )
    with closing(Source(configured)) as source:
        return Planner(source).batch()


# --- the pool -------------------------------------------------------------------


def test_a_reader_stays_for_the_next_task_of_its_partition(
    topic: Topic, pool: ReaderPool, time: Time
) -> None:
    topic.write(id=[1, 2, 3], _partition=[0, 0, 1])
    config, (zero, one) = config_of(topic), planned(topic)
    with pool.acquire(config, None, zero) as (source, reader):
        with pool.acquire(config, None, zero) as (_, second):
            assert second is not reader  # one reader has one user
        with pool.acquire(config, None, one) as (same, other):
            assert same is source
            assert other is not reader
    with pool.acquire(config, None, zero) as (_, again):
        assert again is reader
    with pool.acquire(config, ["id"], zero) as (another, _):
        assert another is not source
    time.now += 301
    with pool.acquire(config, None, zero) as (fresh, _):
        assert fresh is not source


def test_what_a_failed_task_held_is_dropped(topic: Topic, pool: ReaderPool) -> None:
    topic.write(id=[1, 2, 3], _partition=[0, 0, 1])
    config, (zero, one) = config_of(topic), planned(topic)
    with pool.acquire(config, None, one) as (source, bystander):
        with (
            pytest.raises(RuntimeError),
            pool.acquire(config, None, zero) as (_, failed),
        ):
            raise RuntimeError
        # Whoever is at it still may go on.
        assert bystander.fetch(0, end=1).num_rows == 1
        with pool.acquire(config, None, zero) as (fresh, reader):
            assert fresh is not source
            assert reader is not failed
            assert reader.fetch(0, end=2).num_rows == 2


def test_readers_that_are_too_many_are_closed_oldest_first(
    topic: Topic, pool: ReaderPool
) -> None:
    topic.options["stream.file.partitions"] = "70"
    topic.write(id=[*range(70)], _partition=[*range(70)])
    config, ranges = config_of(topic), planned(topic)
    readers = []
    for one in ranges:
        with pool.acquire(config, None, one) as (_, reader):
            readers.append(reader)
    with pool.acquire(config, None, ranges[-1]) as (_, last):
        assert last is readers[-1]
    with pool.acquire(config, None, ranges[0]) as (_, first):
        assert first is not readers[0]


def test_a_forked_worker_creates_its_own_readers(topic: Topic) -> None:
    topic.write(id=[1, 2, 3], _partition=[0, 0, 0])
    arguments = [f"{key}={value}" for key, value in topic.options.items()]
    ran = subprocess.run(
        [sys.executable, "-c", FORK, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


# --- rows -----------------------------------------------------------------------


def test_what_expired_of_a_planned_range_is_reported_or_skipped(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.write(id=[*range(10)], _partition=[0] * 10)
    (wanted,) = planned(topic)
    topic.truncate({0: 4})
    with pytest.raises(OffsetOutOfRange) as caught:
        list(read(config_of(topic), wanted, ID))
    assert "offset 0 is out of range: available are 4 to 10" in str(caught.value)
    going_on = config_of(topic, **{"out.of.range": "earliest"})
    rows = pa.Table.from_batches(read(going_on, wanted, ID))
    assert rows.column("id").to_pylist() == [4, 5, 6, 7, 8, 9]
    assert "lost 0 to 4 (retention)" in caplog.text


def test_rows_of_another_incarnation_do_not_replace_planned_ones(
    topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    topic.write(id=[*range(10)], _partition=[0] * 10)
    (wanted,) = planned(topic)
    topic.delete()
    topic.write(id=[*range(100, 120)], _partition=[0] * 20)
    with pytest.raises(IncarnationChanged):
        list(read(config_of(topic), wanted, ID))
    # The driver plans them from their own beginning: reading them here too would be
    # reading them twice.
    going_on = config_of(topic, **{"out.of.range": "earliest"})
    assert list(read(going_on, wanted, ID)) == []
    assert "offsets 0 to 10 of a planned range are lost" in caplog.text


def test_rows_that_do_not_fit_are_refused_with_column_and_place(topic: Topic) -> None:
    times = pa.array([1_000, 2_000, 3_001], pa.timestamp("ns", tz="UTC"))
    topic.put(pa.table({"at": times, "_partition": [1] * 3}))
    (wanted,) = planned(topic)
    micros = pa.schema([("at", pa.timestamp("us", tz="UTC"))])
    with pytest.raises(SchemaMismatch) as caught:
        list(read(config_of(topic), wanted, micros))
    said = str(caught.value)
    assert "column 'at' is timestamp[ns, tz=UTC], declared timestamp" in said
    assert "(stream 'file:clicks', partition clicks-1, offset 0, row 2)" in said
    assert "exclude the column" in said


def test_metadata_columns_stand_where_they_are_wanted(topic: Topic) -> None:
    topic.put(pa.table({"id": [7, 8], "name": ["a", "b"], "_partition": [2, 2]}))
    config = config_of(topic, **{"metadata.columns": "true"})
    (wanted,) = planned(topic)
    schema = pa.schema(
        [("_offset", pa.int64()), ("name", pa.string()), ("_partition", pa.int32())]
    )
    added = frozenset({"_topic", "_partition", "_offset"})
    (rows,) = read(config, wanted, schema, added=added)
    assert rows.schema.equals(schema)
    assert rows.to_pylist() == [
        {"_offset": 0, "name": "a", "_partition": 2},
        {"_offset": 1, "name": "b", "_partition": 2},
    ]
    only_topic = pa.schema([("_topic", pa.string())])
    (only,) = read(config, wanted, only_topic, added=added)
    assert only.to_pylist() == [{"_topic": "clicks"}] * 2


def test_a_long_range_is_never_held_as_a_whole(topic: Topic) -> None:
    numbers = pa.repeat(pa.scalar(7, pa.uint32()), 2_000_000)
    partitions = pa.repeat(pa.scalar(0), 2_000_000)
    for _ in range(8):
        topic.put(pa.table({"n": numbers, "_partition": partitions}))
    (wanted,) = planned(topic)
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    # Widened, the rows are 128 MB that are not in any file.
    for batch in read(config_of(topic), wanted, pa.schema([("n", pa.int64())])):
        rows += batch.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 16_000_000
    assert 0 < most < 32_000_000
