"""What is special about the changes of a table."""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import streamfactory
from streamfactory.spi import (
    CorruptData,
    DataLossError,
    Partition,
    Position,
    SchemaMismatch,
    TopicNotFound,
    Unsupported,
)

from streamfactory_postgres.changes import reading
from streamfactory_postgres.changes.harness import PostgresChangesHarness

PREFIX = "stream.postgres-changes"


@pytest.fixture
def changes(tmp_path: Path) -> Iterator[PostgresChangesHarness]:
    made = PostgresChangesHarness(tmp_path)
    made.create(1)
    yield made
    made.close()


@pytest.fixture
def client(changes: PostgresChangesHarness) -> Iterator[Any]:
    with changes._server().connect() as made:
        yield made


def read(
    properties: Mapping[str, str], start: Position | None = None
) -> list[dict[str, Any]]:
    with streamfactory.open(properties, start=start) as stream:
        return [row for batch in stream for row in batch.rows.to_pylist()]


def with_offsets(
    properties: Mapping[str, str], start: int | None = None
) -> list[tuple[int, int]]:
    """Offset and number of each row, from an offset on."""
    given = {**properties, "metadata.columns": "true"}
    topic = properties[f"{PREFIX}.topic.name"]
    at = None if start is None else Position({Partition(topic, 0): start})
    return [(row["_offset"], row["number"]) for row in read(given, at)]


def read_into(found: list[int], properties: Mapping[str, str]) -> None:
    """Add the numbers of each batch as it comes."""
    with streamfactory.open(properties) as stream:
        for batch in stream:
            found += batch.rows["number"].to_pylist()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def opened(changes: PostgresChangesHarness) -> streamfactory.Stream:
    return streamfactory.open(changes.properties(), start="earliest", follow=True)


def following(stream: streamfactory.Stream, seconds: float) -> list[int]:
    """The numbers that come next; none if nothing came in time."""
    batch = stream.next_batch(timeout=seconds)
    found: list[int] = [] if batch is None else batch.rows["number"].to_pylist()
    return found


def short(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows without their commits."""
    return [
        (
            row["_change"],
            *(value for key, value in row.items() if not key.startswith("_")),
        )
        for row in rows
    ]


def topics(
    verb: str, changes: PostgresChangesHarness, folder: Path, **more: str
) -> int:
    """Run a command ``topics`` for the table."""
    path = folder / "changes.toml"
    given = {**changes.properties(), **{f"{PREFIX}.{k}": v for k, v in more.items()}}
    lines = [f"{json.dumps(k)} = {json.dumps(v)}\n" for k, v in given.items()]
    path.write_text("[properties]\n" + "".join(lines))
    command = [sys.executable, "-m", "streamfactory", "topics", verb, str(path)]
    return subprocess.run(
        [*command, *(["--yes"] if verb == "delete" else [])]
    ).returncode


def replace(changes: PostgresChangesHarness, client: Any, columns: str) -> None:
    """Replace the table by one with other columns, without a slot."""
    changes._drop()
    client.execute(f"CREATE TABLE {changes.topic} ({columns})")
    client.execute(f"ALTER TABLE {changes.topic} REPLICA IDENTITY FULL")


def test_a_topic_begins_with_a_snapshot_and_goes_on_with_changes(
    changes: PostgresChangesHarness, client: Any, tmp_path: Path
) -> None:
    replace(changes, client, "number int, name text, raw bytea")
    client.execute(
        f"INSERT INTO {changes.topic} VALUES (1, 'a\"\n', '\\x00ff'), (2, NULL, '')"
    )
    assert topics("create", changes, tmp_path) == 0
    client.execute(f"INSERT INTO {changes.topic} VALUES (3, '', NULL)")
    client.execute(f"UPDATE {changes.topic} SET name = 'b' WHERE number = 2")
    client.execute(f"DELETE FROM {changes.topic} WHERE number = 1")
    wanted = [
        ("insert", 1, 'a"\n', b"\0\xff"),
        ("insert", 2, None, b""),
        ("insert", 3, "", None),
        ("update_before", 2, None, b""),
        ("update_after", 2, "b", b""),
        ("delete", 1, 'a"\n', b"\0\xff"),
    ]
    given = changes.properties()
    rows = read(given)
    assert short(rows) == wanted
    assert len({row["_commit"] for row in rows}) == 4
    times = [row["_commit_time"] for row in rows]
    assert times == sorted(times)
    # The same rows from each position, and under the same offsets.
    numbered = with_offsets(given)
    offsets = [offset for offset, _ in numbered]
    assert offsets == sorted(set(offsets))
    for index, offset in enumerate(offsets):
        assert with_offsets(given, offset) == numbered[index:]
    # Deleting the topic leaves the table.
    assert topics("delete", changes, tmp_path) == 0
    assert client.execute(f"SELECT count(*) FROM {changes.topic}").fetchone() == (2,)
    found = client.execute(
        "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'snapshot_%'"
    )
    assert found.fetchone() == (0,)


def test_changes_come_in_the_order_of_commits(
    changes: PostgresChangesHarness, client: Any
) -> None:
    with changes._server().connect() as other:
        other.execute("BEGIN")
        other.execute(f"INSERT INTO {changes.topic} VALUES (1)")
        changes.write(0, [2])
        with streamfactory.open(changes.properties()) as stream:
            first = [n for batch in stream for n in batch.rows["number"].to_pylist()]
            position = stream.position
        assert first == [2]
        other.execute(f"INSERT INTO {changes.topic} VALUES (3)")
        other.execute("COMMIT")
    rows = read(changes.properties(), start=position)
    assert [row["number"] for row in rows] == [1, 3]
    client.execute("BEGIN")
    client.execute(f"INSERT INTO {changes.topic} VALUES (4)")
    client.execute("ROLLBACK")
    assert [row["number"] for row in read(changes.properties())] == [2, 1, 3]


def test_writers_at_once_lose_and_repeat_nothing(
    changes: PostgresChangesHarness,
) -> None:
    def write(writer: int) -> None:
        draw = random.Random(writer)
        with changes._server().connect() as connection:
            for row in range(15):
                connection.execute("BEGIN")
                insert = f"INSERT INTO {changes.topic} VALUES ({writer * 15 + row})"
                connection.execute(insert)
                time.sleep(draw.uniform(0, 0.01))
                connection.execute("COMMIT")

    threads = [threading.Thread(target=write, args=(n,)) for n in range(6)]
    found: list[int] = []
    with opened(changes) as stream:
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 60
        while len(found) < 90 and time.monotonic() < deadline:
            found += following(stream, 1)
    for thread in threads:
        thread.join()
    assert sorted(found) == [*range(90)]


def test_the_end_of_the_wal_in_the_middle_of_a_record_is_reached(
    changes: PostgresChangesHarness, client: Any
) -> None:
    """The server writes whole pages of transactions that are not committed."""
    client.execute(f"CREATE TABLE {changes.topic}_other (word text)")
    changes.write(0, [1, 2, 3])
    with changes._server().connect() as other, other.transaction():
        many = f"INSERT INTO {changes.topic}_other SELECT repeat('x', 900) "
        other.execute(many + "FROM generate_series(1, 30)")
        page = "SELECT (pg_current_wal_flush_lsn() - '0/0') % 8192 = 0"
        wait_until(lambda: client.execute(page).fetchone() == (True,))
        began = time.monotonic()
        assert [row["number"] for row in read(changes.properties())] == [1, 2, 3]
        # The server writes the rest of the record after up to 15 s.
        assert time.monotonic() - began < 3


def test_a_reader_reaches_the_latest_offset_of_its_last_answer(
    changes: PostgresChangesHarness, client: Any
) -> None:
    """WAL of other tables is in it, and moves on without an answer."""
    client.execute(f"CREATE TABLE {changes.topic}_other (number int)")
    insert = f"INSERT INTO {changes.topic}_other VALUES (1)"
    partition = Partition(changes.topic, 0)
    with opened(changes) as stream:
        changes.write(0, [1])
        client.execute(insert)
        batch = stream.next_batch(timeout=10)
        assert batch is not None
        assert batch.latest is not None
        assert batch.next_offset < batch.latest
        for _ in range(2):
            assert following(stream, 0.3) == []
            assert stream.position[partition] == batch.latest
            client.execute(insert)


def test_a_large_transaction_is_read_in_parts(
    changes: PostgresChangesHarness, client: Any
) -> None:
    client.execute(f"INSERT INTO {changes.topic} SELECT generate_series(0, 9999)")
    changes.write(0, [10_000])
    limits = {"batch.rows": "700"}
    with streamfactory.open({**changes.properties(), **limits}) as stream:
        parts = [batch.rows["number"].to_pylist() for batch in stream]
    assert max(map(len, parts)) <= 700
    assert [n for part in parts for n in part] == [*range(10_001)]
    # And from the middle of it.
    rows = with_offsets(changes.properties())
    middle, _ = rows[7000]
    wanted = [row for row in rows if row[0] >= middle]
    assert with_offsets(changes.properties(), middle) == wanted


def test_a_long_value_that_an_update_leaves_is_there(
    changes: PostgresChangesHarness, client: Any
) -> None:
    client.execute(f"ALTER TABLE {changes.topic} ADD COLUMN long text")
    client.execute(f"ALTER TABLE {changes.topic} ALTER long SET STORAGE EXTERNAL")
    long = "x" * 100_000
    client.execute(f"INSERT INTO {changes.topic} VALUES (1, '{long}')")
    client.execute(f"UPDATE {changes.topic} SET number = 2")
    rows = short(read(changes.properties()))
    assert rows == [
        ("insert", 1, long),
        ("update_before", 1, long),
        ("update_after", 2, long),
    ]


def test_without_old_rows_updates_are_refused(
    changes: PostgresChangesHarness, client: Any, tmp_path: Path
) -> None:
    client.execute(f"ALTER TABLE {changes.topic} REPLICA IDENTITY NOTHING")
    changes.write(0, [1])
    assert short(read(changes.properties())) == [("insert", 1)]
    client.execute(f"ALTER TABLE {changes.topic} ADD PRIMARY KEY (number)")
    client.execute(f"ALTER TABLE {changes.topic} REPLICA IDENTITY DEFAULT")
    client.execute(f"UPDATE {changes.topic} SET number = 2")
    with pytest.raises(Unsupported, match="REPLICA IDENTITY FULL"):
        read(changes.properties())
    replace(changes, client, "id int")
    client.execute(f"ALTER TABLE {changes.topic} REPLICA IDENTITY DEFAULT")
    assert topics("create", changes, tmp_path) != 0


def test_a_truncated_table_is_a_loss(
    changes: PostgresChangesHarness, client: Any
) -> None:
    changes.write(0, [1, 2])
    client.execute(f"TRUNCATE {changes.topic}")
    changes.write(0, [3])
    found: list[int] = []
    with pytest.raises(DataLossError, match="truncated"):
        read_into(found, changes.properties())
    assert found == [1, 2]
    goes_on = {**changes.properties(), "out.of.range": "earliest"}
    with streamfactory.open(goes_on) as stream:
        batches = [*stream]
    assert [n for b in batches for n in b.rows["number"].to_pylist()] == [1, 2, 3]
    assert len([loss for batch in batches for loss in batch.losses]) == 1


def test_columns_may_change_within_a_transaction(
    changes: PostgresChangesHarness, client: Any
) -> None:
    changes.write(0, [1])
    client.execute("BEGIN")
    client.execute(f"INSERT INTO {changes.topic} VALUES (2)")
    client.execute(f"ALTER TABLE {changes.topic} ADD COLUMN name text")
    client.execute(f"INSERT INTO {changes.topic} VALUES (3, 'c')")
    client.execute("COMMIT")
    wanted = [("insert", 1, None), ("insert", 2, None), ("insert", 3, "c")]
    assert short(read(changes.properties())) == wanted
    client.execute(f"ALTER TABLE {changes.topic} DROP COLUMN name")
    # A value that the table has no column for any more is not left out in silence.
    with pytest.raises(SchemaMismatch, match="name"):
        read(changes.properties())
    chosen = {f"{PREFIX}.columns": "number"}
    assert len(read({**changes.properties(), **chosen})) == 3


def acknowledge(changes: PostgresChangesHarness, folder: Path) -> Any:
    """Copy all changes into a file, which acknowledges them."""
    target = {
        "streamType": "file",
        "stream.file.topic.name": "copy",
        "stream.file.path": str(folder / "copy"),
    }
    return streamfactory.copy(changes.properties(), target)


def test_what_is_acknowledged_is_released_and_nothing_else(
    changes: PostgresChangesHarness, client: Any, tmp_path: Path
) -> None:
    replace(changes, client, "number int")
    client.execute(f"INSERT INTO {changes.topic} VALUES (1)")
    assert topics("create", changes, tmp_path) == 0
    changes.write(0, [2, 3])
    query = (
        "SELECT slot_name, confirmed_flush_lsn FROM pg_replication_slots "
        "WHERE NOT temporary"
    )
    before = client.execute(query).fetchall()
    assert len(read(changes.properties())) == 3
    assert client.execute(query).fetchall() == before
    tables = "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'snapshot_%'"
    assert client.execute(tables).fetchone() == (1,)
    acknowledge(changes, tmp_path)
    assert client.execute(query).fetchall() > before
    assert client.execute(tables).fetchone() == (0,)
    assert read(changes.properties()) == []
    # What readers had open went with their connections.
    changes.write(0, [4])
    assert short(read(changes.properties())) == [("insert", 4)]
    temporary = "SELECT count(*) FROM pg_replication_slots WHERE temporary"
    wait_until(lambda: client.execute(temporary).fetchone() == (0,))


def test_wal_of_other_tables_is_released_while_nothing_changes(
    changes: PostgresChangesHarness,
    client: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "_SLACK", 0)
    client.execute("CREATE TABLE IF NOT EXISTS others (number int)")
    confirmed = (
        "SELECT confirmed_flush_lsn FROM pg_replication_slots "
        f"WHERE slot_name = 'streamfactory_' || '{changes.topic}'::regclass::oid"
    )
    changes.write(0, [1])
    client.execute("INSERT INTO others SELECT generate_series(1, 1000)")
    before = client.execute(confirmed).fetchone()
    with opened(changes) as stream:
        assert following(stream, 5) == [1]
        assert following(stream, 0.5) == []
        assert client.execute(confirmed).fetchone() == before  # 1 is not acknowledged
    acknowledge(changes, tmp_path)
    client.execute("INSERT INTO others SELECT generate_series(1, 1000)")
    before = client.execute(confirmed).fetchone()
    with opened(changes) as stream:
        wait_until(
            lambda: (
                following(stream, 0.1) != []
                or client.execute(confirmed).fetchone() > before
            )
        )
    changes.write(0, [2])
    assert short(read(changes.properties())) == [("insert", 2)]


def test_a_slot_that_holds_much_wal_is_warned_of(
    changes: PostgresChangesHarness, caplog: pytest.LogCaptureFixture
) -> None:
    changes.write(0, [1])
    few = {**changes.properties(), f"{PREFIX}.slot.warning.bytes": "1"}
    with caplog.at_level(logging.WARNING):
        assert len(read(few)) == 1
    [text] = {r.getMessage() for r in caplog.records if "of WAL" in r.getMessage()}
    assert "the disk of the server fills" in text


def test_a_slot_that_is_gone_is_a_loss(
    changes: PostgresChangesHarness, client: Any
) -> None:
    changes.write(0, [1])
    client.execute(
        "SELECT pg_drop_replication_slot(slot) FROM streamfactory.slots "
        "WHERE relation = %s::regclass",
        [changes.topic],
    )
    with pytest.raises(CorruptData, match="was dropped"):
        read(changes.properties())
    client.execute("DELETE FROM streamfactory.slots")


def test_a_slot_that_another_advances_is_a_loss(
    changes: PostgresChangesHarness, client: Any
) -> None:
    changes.write(0, [1])
    with streamfactory.open(changes.properties()) as stream:
        position = stream.position
    changes.write(0, [2, 3])
    client.execute(
        "SELECT pg_replication_slot_advance(slot, pg_current_wal_flush_lsn()) "
        "FROM streamfactory.slots WHERE relation = %s::regclass",
        [changes.topic],
    )
    with pytest.raises(DataLossError):
        read(changes.properties(), start=position)


def test_a_creation_that_was_broken_off_is_done_again(
    changes: PostgresChangesHarness, client: Any, tmp_path: Path
) -> None:
    replace(changes, client, "number int")
    client.execute(
        "INSERT INTO streamfactory.slots (slot, relation) "
        "SELECT 'broken', %s::regclass",
        [changes.topic],
    )
    client.execute("SELECT pg_create_logical_replication_slot('broken', 'pgoutput')")
    named = {**changes.properties(), f"{PREFIX}.slot": "broken"}
    with pytest.raises(TopicNotFound, match="topics create"):
        read(named)
    assert topics("create", changes, tmp_path, slot="broken") == 0
    changes.write(0, [1])
    assert short(read(named)) == [("insert", 1)]
    # One that exists is refused, and so is a slot of others.
    assert topics("create", changes, tmp_path, slot="broken") != 0
    client.execute("SELECT pg_create_logical_replication_slot('foreign1', 'pgoutput')")
    assert topics("create", changes, tmp_path, slot="foreign1") != 0
    client.execute("SELECT pg_drop_replication_slot('foreign1')")
    assert topics("delete", changes, tmp_path, slot="broken") == 0


def test_tables_of_one_transaction_have_one_commit(
    changes: PostgresChangesHarness, client: Any, tmp_path: Path
) -> None:
    other = PostgresChangesHarness(tmp_path)
    other.create(1)
    client.execute("BEGIN")
    client.execute(f"INSERT INTO {changes.topic} VALUES (1)")
    client.execute(f"INSERT INTO {other.topic} VALUES (2)")
    client.execute("COMMIT")
    [one], [two] = read(changes.properties()), read(other.properties())
    other.close()
    assert (one["number"], two["number"]) == (1, 2)
    assert one["_commit"] == two["_commit"]


def test_a_start_by_time_is_the_first_commit_at_or_after_it(
    changes: PostgresChangesHarness, client: Any
) -> None:
    """Two rows of each transaction; the server tracks no times of commits."""
    [tracked] = client.execute("SHOW track_commit_timestamp").fetchone()
    assert tracked == "off"
    for number in range(3):
        client.execute(f"INSERT INTO {changes.topic} VALUES ({number}), ({number})")
        time.sleep(0.05)
    rows = read(changes.properties())
    for number in range(3):
        moment = rows[2 * number]["_commit_time"]
        # Times of starts have milliseconds.
        given = {
            **changes.properties(),
            "startingTimestamp": str(int(moment.timestamp() * 1000)),
        }
        found = [row["number"] for row in read(given)]
        assert found == [n for n in range(number, 3) for _ in range(2)]
    late = int(rows[-1]["_commit_time"].timestamp() * 1000) + 1000
    given = {**changes.properties(), "startingTimestamp": str(late)}
    given["startingOffsetsByTimestampStrategy"] = "latest"
    assert read(given) == []


def test_a_start_by_time_before_the_snapshot_has_the_snapshot(
    changes: PostgresChangesHarness, client: Any, tmp_path: Path
) -> None:
    replace(changes, client, "number bigint NOT NULL")
    client.execute(f"INSERT INTO {changes.topic} VALUES (1), (2)")
    assert topics("create", changes, tmp_path) == 0
    time.sleep(0.05)
    client.execute(f"INSERT INTO {changes.topic} VALUES (3)")
    rows = read(changes.properties())
    assert [row["number"] for row in rows] == [1, 2, 3]
    for row, wanted in ((rows[0], [1, 2, 3]), (rows[2], [3])):
        at = str(int(row["_commit_time"].timestamp() * 1000))
        given = {**changes.properties(), "startingTimestamp": at}
        assert [found["number"] for found in read(given)] == wanted
