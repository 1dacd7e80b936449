"""What is special about this stream: the kit cannot know it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import streamfactory
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    CorruptData,
    MessageTooLarge,
    NotAuthorized,
    SchemaMismatch,
    StreamTimeout,
    TopicNotFound,
    Unsupported,
    WriterFenced,
)

from streamfactory_postgres import layout
from streamfactory_postgres.harness import PostgresHarness

WRITERS = 8
SPECIAL = ["x", "", None, "a\n\\.\nb", "\\.", ' q"u,\r\n', "\\N", "é€😀", "NULL"]


def read(properties: Mapping[str, str], **options: Any) -> list[dict[str, Any]]:
    with streamfactory.open(properties, **options) as stream:
        rows: list[dict[str, Any]] = stream.to_reader().read_all().to_pylist()
    return rows


def numbers(properties: Mapping[str, str], **options: Any) -> list[int]:
    return [row["number"] for row in read(properties, **options)]


def make(harness: PostgresHarness, client: Any, columns: str) -> dict[str, str]:
    """Replace the table by one with other columns, as `topics create` makes it."""
    client.execute(f"DROP TABLE {harness.topic}")
    client.execute(f"CREATE TABLE {harness.topic} ({columns}, _offset bigint UNIQUE)")
    client.execute(layout.adopt(harness.topic, "_offset", "streamfactory"))
    return without_columns(harness)


def without_columns(harness: PostgresHarness) -> dict[str, str]:
    """The configuration of a table that has other columns than the harness'."""
    given = harness.properties()
    names = ("stream.postgres.columns", "stream.postgres.timestamp.column")
    return {key: value for key, value in given.items() if key not in names}


def begun(harness: PostgresHarness, number: int) -> Any:
    """A transaction that has written a row, and runs."""
    connection = harness._running().connect()
    connection.execute("BEGIN")
    connection.execute(f"INSERT INTO {harness.topic} VALUES ({number})")
    return connection


def test_a_row_that_becomes_visible_late_is_read(harness: PostgresHarness) -> None:
    early = begun(harness, 1)
    harness.write(0, [2])
    with streamfactory.open(harness.properties()) as stream:
        # 2 is committed, and waits for the older transaction.
        assert [*stream] == []
        position = stream.position
    early.execute("COMMIT")
    early.close()
    assert numbers(harness.properties(), start=position) == [1, 2]


def test_a_row_of_a_transaction_that_began_to_write_later_is_not_skipped(
    harness: PostgresHarness,
) -> None:
    """The trap of sequences: its number was taken before the other row's."""
    with harness._running().connect() as other:
        # The next 31 numbers are taken without a transaction id.
        other.execute(f"SELECT nextval('{harness.topic}_offset')")
    late = harness._running().connect()
    late.execute("BEGIN")
    late.execute(f"SELECT nextval('{harness.topic}_offset')")
    harness.write(0, [1])
    with streamfactory.open(harness.properties()) as stream:
        found = [row for batch in stream for row in batch.rows["number"].to_pylist()]
        position = stream.position
    assert found == [1]
    late.execute(f"INSERT INTO {harness.topic} VALUES (2)")
    late.execute("COMMIT")
    late.close()
    assert numbers(harness.properties(), start=position) == [2]


def test_a_table_that_another_locks_is_not_waited_for_without_end(
    harness: PostgresHarness, client: Any
) -> None:
    timeout = {"stream.postgres.connection.timeout.millis": "500ms"}
    client.execute("BEGIN")
    client.execute(f"LOCK TABLE {harness.topic} IN ACCESS EXCLUSIVE MODE")
    began = time.monotonic()
    with (
        pytest.raises(StreamTimeout),
        streamfactory.open_sink({**harness.properties(), **timeout}) as sink,
    ):
        sink.put(harness.rows([1]))
    assert time.monotonic() - began < 20
    client.execute("ROLLBACK")
    client.execute("BEGIN")
    client.execute(f"LOCK TABLE {harness.topic} IN SHARE ROW EXCLUSIVE MODE")
    with (
        pytest.raises(StreamTimeout, match="lock timeout"),
        streamfactory.open_sink({**harness.properties(), **timeout}) as sink,
    ):
        sink.put(harness.rows([1]))
    client.execute("ROLLBACK")
    assert harness.visible() == {0: []}


@pytest.mark.parametrize("size", [1, 127, 129, 300_000])
def test_values_of_any_length_come_back(
    harness: PostgresHarness, client: Any, size: int
) -> None:
    given = make(harness, client, "id int8, text text, bytes bytea")
    values = ["x" * size, None, "y", "", "z" * size]
    rows = pa.record_batch(
        {
            "id": pa.array([*range(5)], pa.int64()),
            "text": values,
            "bytes": pa.array([v and v[::-1].encode() for v in values], pa.binary()),
        }
    )
    with streamfactory.open_sink(given) as sink:
        sink.put(rows)
    assert read(given) == rows.to_pylist()


def test_a_key_that_is_no_written_column_is_refused(harness: PostgresHarness) -> None:
    key = {"stream.postgres.key.columns": "other"}
    with pytest.raises(ConfigError, match="which columns lacks"):
        streamfactory.open_sink({**harness.properties(), **key})


def test_topics_show_counts_rows_and_not_offsets(
    harness: PostgresHarness, tmp_path: Path
) -> None:
    for number in range(3):
        harness.write(0, [number])  # a transaction each: most offsets hold no row
    path = tmp_path / "numbers.toml"
    lines = [f'"{key}" = "{value}"\n' for key, value in harness.properties().items()]
    path.write_text("[properties]\n" + "".join(lines))
    command = [sys.executable, "-m", "streamfactory", "topics", "show", str(path)]
    done = subprocess.run([*command, "--json"], capture_output=True, check=True)
    assert json.loads(done.stdout)["rows"] == 3


def write_out_of_order(harness: PostgresHarness, writer: int, rows: int) -> None:
    """Transactions that stay open for different times, one of ten rolled back."""
    draw = random.Random(writer)
    with harness._running().connect() as connection:
        for row in range(rows):
            connection.execute("BEGIN")
            insert = f"INSERT INTO {harness.topic} VALUES ({writer * rows + row})"
            connection.execute(insert)
            time.sleep(draw.uniform(0, 0.01))
            if draw.random() < 0.1:
                connection.execute("ROLLBACK")
                connection.execute("BEGIN")
                connection.execute(insert)
            connection.execute("COMMIT")


def test_eight_writers_that_commit_out_of_order_lose_and_repeat_nothing(
    harness: PostgresHarness,
) -> None:
    rows = 40
    threads = [
        threading.Thread(target=write_out_of_order, args=(harness, writer, rows))
        for writer in range(WRITERS)
    ]
    found: list[int] = []
    position: Any = "earliest"
    for thread in threads:
        thread.start()
    is_last = False
    while not is_last:
        is_last = not any(thread.is_alive() for thread in threads)
        with streamfactory.open(harness.properties(), start=position) as stream:
            found += [n for b in stream for n in b.rows["number"].to_pylist()]
            position = stream.position
    assert sorted(found) == [*range(WRITERS * rows)]
    assert found == [*harness.visible()[0]]


def test_values_of_every_type_come_back(harness: PostgresHarness, client: Any) -> None:
    properties = make(
        harness,
        client,
        "a bool, b int2, c int4, d int8, e float4, f float8, g numeric(38, 9), h text, "
        "i bytea, j date, k timestamp, l timestamptz, m time, n uuid, o jsonb, "
        "p numeric",
    )
    fields = [
        ("a", pa.bool_()),
        ("b", pa.int16()),
        ("c", pa.int32()),
        ("d", pa.int64()),
    ]
    fields += [("e", pa.float32()), ("f", pa.float64()), ("g", pa.decimal128(38, 9))]
    fields += [("h", pa.string()), ("i", pa.binary()), ("j", pa.date32())]
    fields += [("k", pa.timestamp("us")), ("l", pa.timestamp("us", "UTC"))]
    fields += [("m", pa.time64("us")), ("n", pa.string()), ("o", pa.string())]
    schema = pa.schema([*fields, ("p", pa.string())])
    at = datetime(2024, 2, 29, 23, 59, 59, 999_999)
    first = [True, -(2**15), 2**31 - 1, -(2**63), 0.1, 5e-324, Decimal("1e-9"), "h"]
    first += [
        b"\x00\xff\\",
        date(1, 1, 1),
        at,
        at.replace(tzinfo=UTC),
        clock(1, 2, 3, 4),
    ]
    first += ["00000000-0000-0000-0000-00000000000a", '{"a": [1, "\\n"]}', "1.50"]
    other = [False, 1, 0, 1, float("inf"), -0.0, Decimal(10**28), ""]
    other += [b"", date(9999, 12, 31), at, at.replace(tzinfo=UTC), clock(23, 59)]
    other += ["00000000-0000-0000-0000-00000000000b", "null", "0"]
    lines: list[list[Any]] = [first, other, [None] * len(schema)]
    wanted = [dict(zip(schema.names, line, strict=True)) for line in lines]
    wanted[0]["e"] = pa.scalar(0.1, pa.float32()).as_py()
    rows = pa.RecordBatch.from_pylist(wanted, schema=schema)
    with streamfactory.open_sink(properties) as sink:
        sink.put(rows)
    assert read(properties) == wanted


def test_any_text_comes_back(harness: PostgresHarness, client: Any) -> None:
    properties = make(harness, client, "text text")
    rows = pa.record_batch({"text": pa.array(SPECIAL, pa.string())})
    with streamfactory.open_sink(properties) as sink:
        sink.put(rows)
    assert [row["text"] for row in read(properties)] == SPECIAL


def test_a_composite_value_with_a_field_that_is_null_is_no_null(
    harness: PostgresHarness, client: Any
) -> None:
    client.execute("CREATE TYPE pair AS (a int, b text)")
    client.execute("CREATE DOMAIN other_pair AS pair")
    properties = make(harness, client, "p pair, q other_pair")
    values = "(ROW(1, NULL), ROW(NULL, '')), (NULL, ROW(NULL, NULL)), (NULL, NULL)"
    client.execute(f"INSERT INTO {harness.topic} VALUES {values}")
    found = [(row["p"], row["q"]) for row in read(properties)]
    assert found == [("(1,)", '(,"")'), (None, "(,)"), (None, None)]


def test_a_table_with_the_most_columns_is_read(
    harness: PostgresHarness, client: Any
) -> None:
    names = [f"c{at}" for at in range(1599)]
    columns = ", ".join(f"{name} {'text' if name < 'c5' else 'bool'}" for name in names)
    properties = make(harness, client, columns)
    client.execute(f"INSERT INTO {harness.topic} (c9, c1) VALUES (true, 'x')")
    assert read(properties) == [{**dict.fromkeys(names), "c9": True, "c1": "x"}]


@pytest.mark.parametrize(
    ("kind", "value"), [("date", "infinity"), ("numeric(3, 1)", "NaN")]
)
def test_a_value_that_arrow_does_not_have_is_named(
    harness: PostgresHarness, client: Any, kind: str, value: str
) -> None:
    properties = make(harness, client, f"day {kind}")
    client.execute(f"INSERT INTO {harness.topic} VALUES ('{value}')")
    with pytest.raises(CorruptData, match=f"column 'day'.*{value}"):
        read(properties)


def test_a_row_that_the_table_refuses_leaves_nothing(
    harness: PostgresHarness, client: Any
) -> None:
    client.execute(f"ALTER TABLE {harness.topic} ADD CHECK (number < 100)")
    with streamfactory.open_sink(harness.properties()) as sink:
        with pytest.raises(SchemaMismatch, match="violates check constraint"):
            sink.put(harness.rows([1, 100]), writer_id="w", epoch=0)
        sink.put(harness.rows([2]), writer_id="w", epoch=0)
    assert harness.visible() == {0: [2]}


def changes(*rows: tuple[int | None, str | None, str | None]) -> pa.RecordBatch:
    fields = [("id", pa.int64()), ("name", pa.string()), ("_change", pa.string())]
    names = ("id", "name", "_change")
    values = [dict(zip(names, row, strict=True)) for row in rows]
    return pa.RecordBatch.from_pylist(values, schema=pa.schema(fields))


@pytest.fixture
def keyed(harness: PostgresHarness, client: Any) -> dict[str, str]:
    client.execute(f"DROP TABLE {harness.topic}")
    client.execute(f"CREATE TABLE {harness.topic} (id bigint PRIMARY KEY, name text)")
    keys = {"key.columns": "id", "change.column": "_change"}
    options = {f"stream.postgres.{key}": value for key, value in keys.items()}
    return {**without_columns(harness), **options}


def held(harness: PostgresHarness, client: Any) -> list[tuple[int, str]]:
    found = client.execute(f"SELECT id, name FROM {harness.topic} ORDER BY id")
    rows: list[tuple[int, str]] = found.fetchall()
    return rows


def test_values_of_common_types_travel_as_bytes(
    harness: PostgresHarness, client: Any
) -> None:
    properties = make(
        harness,
        client,
        "a bool, b int2, c int4, d int8, e float4, f float8, g text, h bytea, "
        "i date, j timestamp, k timestamptz, l time",
    )
    at = datetime(2024, 2, 29, 23, 59, 59, 999_999)
    first = [True, -(2**15), 2**31 - 1, -(2**63), 0.5, 5e-324, "é", b"\x00\xff"]
    first += [date(1, 1, 1), at, at.replace(tzinfo=UTC), clock(1, 2, 3, 4)]
    other = [False, 1, 0, 1, float("-inf"), -0.0, "", b"", date(9999, 12, 31)]
    other += [datetime(1, 1, 1), datetime(1970, 1, 1, tzinfo=UTC), clock(23, 59)]
    with streamfactory.open_sink(properties) as sink:
        schema = sink.schema
        assert schema is not None
        lines: list[list[Any]] = [first, [None] * len(schema), other, first]
        wanted = [dict(zip(schema.names, line, strict=True)) for line in lines]
        # A part of a larger batch, whose buffers begin elsewhere.
        sink.put(pa.RecordBatch.from_pylist([*wanted, *wanted], schema=schema)[2:6])
    assert read(properties) == [*wanted[2:], *wanted[:2]]


@pytest.mark.parametrize("staged", [False, True])
def test_changes_are_applied_by_key_once(
    harness: PostgresHarness, client: Any, keyed: dict[str, str], staged: bool
) -> None:
    first = changes((1, "a", "insert"), (2, "b", None), (3, "c", "insert"))
    then = changes(
        (1, "a", "update_before"),
        (1, "A", "update_after"),
        (2, "b", "update_before"),
        (4, "b", "update_after"),
        (3, None, "delete"),
        (5, "e", "insert"),
        (5, None, "delete"),
        (5, "E", "insert"),
    )
    with streamfactory.open_sink(keyed) as sink:
        for epoch, rows in ((0, first), (1, then), (1, then), (0, first)):
            if not staged:
                if epoch == 0 and held(harness, client):
                    continue  # an older epoch is refused
                sink.put(rows, writer_id="w", epoch=epoch)
                continue
            with streamfactory.open_sink(keyed) as other:
                writer = other.writer(rows.schema, writer_id="w", epoch=epoch)
                writer.write(rows)
                message = writer.commit()
                writer.close()
            committer = sink.committer(writer_id="w")
            last = committer.last()
            if last is None or last.epoch < epoch:
                committer.commit(epoch, [message])
            committer.close()
    assert held(harness, client) == [(1, "A"), (4, "b"), (5, "E")]


def test_changes_without_a_key_or_of_no_known_kind_are_refused(
    harness: PostgresHarness, client: Any, keyed: dict[str, str]
) -> None:
    client.execute(f"ALTER TABLE {harness.topic} DROP CONSTRAINT {harness.topic}_pkey")
    client.execute(f"ALTER TABLE {harness.topic} ALTER id DROP NOT NULL")
    with streamfactory.open_sink(keyed) as sink:
        with pytest.raises(SchemaMismatch, match="key column"):
            sink.put(changes((None, "a", "insert")))
        with pytest.raises(SchemaMismatch, match="'truncate'"):
            sink.put(changes((1, "a", "truncate")))
    assert held(harness, client) == []


def test_a_superseded_instance_commits_nothing(harness: PostgresHarness) -> None:
    with streamfactory.open_sink(harness.properties()) as sink:
        old = sink.committer(writer_id="w")
        old.last()
        rows = harness.rows([1])
        writer = sink.writer(rows.schema, writer_id="w", epoch=0)
        writer.write(rows)
        message = writer.commit()
        new = sink.committer(writer_id="w")
        assert new.last() is None
        with pytest.raises(WriterFenced):
            old.commit(0, [message])
        assert harness.visible() == {0: []}
        new.commit(0, [message])
        for one in (writer, old, new):
            one.close()
    assert harness.visible() == {0: [1]}


def test_staged_rows_that_a_crash_of_the_server_emptied_are_missed(
    harness: PostgresHarness, client: Any
) -> None:
    with streamfactory.open_sink(harness.properties()) as sink:
        rows = harness.rows([1, 2])
        writer = sink.writer(rows.schema, writer_id="w", epoch=0)
        writer.write(rows)
        message = writer.commit()
        writer.close()
        found = client.execute(
            "SELECT relname FROM pg_class WHERE relname ~ '^staged_'"
        )
        for (name,) in found.fetchall():
            client.execute(f"TRUNCATE streamfactory.{name}")
        committer = sink.committer(writer_id="w")
        with pytest.raises(CorruptData, match="2 of 2 staged rows"):
            committer.commit(0, [message])
        committer.close()
    assert harness.visible() == {0: []}


def test_more_rows_than_a_transaction_can_number_are_refused(
    harness: PostgresHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layout, "MOST_ROWS", 3)
    with (
        streamfactory.open_sink(harness.properties()) as sink,
        pytest.raises(MessageTooLarge, match="smaller epochs"),
    ):
        sink.put(harness.rows([1, 2, 3, 4]))
    assert harness.visible() == {0: []}


def test_deleted_rows_are_a_loss_for_those_who_have_not_read_them(
    harness: PostgresHarness, client: Any
) -> None:
    harness.write(0, [1])
    with streamfactory.open(harness.properties()) as stream:
        assert sum(len(batch.rows) for batch in stream) == 1
        position = stream.position
    client.execute(f"TRUNCATE {harness.topic}")
    harness.write(0, [2])
    # What was read is no loss.
    assert numbers(harness.properties(), start=position) == [2]
    with streamfactory.open(harness.properties(), start=position) as stream:
        position = stream.position
    harness.write(0, [3])
    client.execute(f"DELETE FROM {harness.topic} WHERE number < 3")
    with pytest.raises(LookupError, match="out of range"):
        numbers(harness.properties(), start=position)
    options = {**harness.properties(), "out.of.range": "earliest"}
    assert numbers(options, start=position) == [3]


def test_rows_are_found_by_time(harness: PostgresHarness, client: Any) -> None:
    properties = make(harness, client, "number bigint, at timestamptz")
    for second in range(10):
        at = datetime(2024, 1, 1, 0, 0, second, tzinfo=UTC)
        client.execute(f"INSERT INTO {harness.topic} VALUES (%s, %s)", [second, at])
    base = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000)
    options = {**properties, "startingTimestamp": str(base + 3500)}
    with pytest.raises(Unsupported, match=r"timestamp\.column"):
        read(options)
    options["stream.postgres.timestamp.column"] = "at"
    assert numbers(options) == [4, 5, 6, 7, 8, 9]


def test_a_notification_ends_a_wait(harness: PostgresHarness) -> None:
    options = {"stream.postgres.poll.interval.millis": "60s"}
    with streamfactory.open({**harness.properties(), **options}, follow=True) as stream:
        timer = threading.Timer(0.5, harness.write, (0, [7]))
        timer.start()
        began = time.monotonic()
        batch = stream.next_batch(timeout=50)
        timer.join()
    assert batch is not None
    assert batch.rows["number"].to_pylist() == [7]
    assert time.monotonic() - began < 30


def test_wrong_credentials_and_missing_things_are_named(
    harness: PostgresHarness,
) -> None:
    wrong = {"stream.postgres.password": "wrong"}
    with pytest.raises(NotAuthorized):
        read({**harness.properties(), **wrong})
    with pytest.raises(TopicNotFound, match="topics create"):
        read(harness.nowhere())
    with pytest.raises(TopicNotFound):
        read({**harness.properties(), "stream.postgres.database": "nowhere"})
    away = {
        "stream.postgres.address": "127.0.0.1:1",
        "stream.postgres.connection.timeout.millis": "2s",
    }
    with pytest.raises(ConnectionFailed):
        read({**harness.properties(), **away})


def test_options_are_checked() -> None:
    properties = {
        "streamType": "postgres",
        "stream.postgres.topic.name": 'a"b',
        "stream.postgres.address": "nowhere",
        "stream.postgres.tls": "maybe",
    }
    with pytest.raises(ConfigError) as caught:
        streamfactory.open(properties)
    text = str(caught.value)
    assert "is not the name of a table" in text
    assert "is not host:port" in text
    assert "is not one of disable" in text
