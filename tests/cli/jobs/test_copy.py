"""`copy`: what is carried, where it goes, and what is refused."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.arrowlog import message_schema
from streamfactory.spi import (
    EpochMarkerLost,
    IncarnationChanged,
    OffsetOutOfRange,
    PositionRefused,
    WriterFenced,
)
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore
from streamfactory.wiring.testing.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.jobs.conftest import Memory
    from tests.proving.commands import Outcome

    from streamfactory.transfer.copying import Copied

    Command = Callable[..., Outcome]

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def rows(*ids: int) -> pa.RecordBatch:
    columns = {"id": list(ids), "name": [f"n{n}" for n in ids]}
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def properties(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())["properties"]
    return found


def ids(memory: Memory, topic: str) -> list[list[int]]:
    return [[row["id"] for row in partition] for partition in memory.rows(topic)]


def copied(source: Path, sink: Path, **how: Any) -> Copied:
    """One run, until caught up."""
    with open_copy(properties(source), properties(sink), **how) as copy:
        return copy.run(threading.Event())


@pytest.fixture
def source(memory: Memory) -> Path:
    """Ids 0 to 4 in partition 0, 5 to 7 in partition 1."""
    memory.create("from", SCHEMA, partitions=2)
    memory.write("from", rows(*range(5)))
    memory.write("from", rows(5, 6, 7), partition=1)
    return memory.stream("from")


# --- where rows go --------------------------------------------------------------------


def test_topic_is_made_like_the_source(
    memory: Memory, source: Path, streamfactory: Command
) -> None:
    done = streamfactory("copy", source, memory.stream("to"), "--json")
    assert done.status == 0, done.err
    assert memory.rows("to") == memory.rows("from")
    answer = done.json
    assert (answer["rows"], answer["epochs"], answer["created"]) == (8, 1, True)
    assert answer["writer"] == "copy/from/to"
    assert answer["position"]["offsets"] == {"from": {"0": 5, "1": 3}}
    assert memory.log("to").schema.equals(SCHEMA)


@pytest.mark.parametrize("count", [1, 3])
def test_partition_stays_together_where_counts_differ(
    count: int, memory: Memory, source: Path
) -> None:
    memory.create("to", SCHEMA, partitions=count)
    copied(source, memory.stream("to"))
    found = ids(memory, "to")
    for partition in ids(memory, "from"):
        (home,) = [mine for mine in found if partition[0] in mine]
        assert [n for n in home if n in partition] == partition


def test_key_chooses_where_counts_differ(memory: Memory, source: Path) -> None:
    memory.create("to", SCHEMA, partitions=5)
    sink = memory.stream("to", producer__key__columns="name")
    copied(source, sink)
    first = ids(memory, "to")
    assert sorted(n for partition in first for n in partition) == list(range(8))
    assert sum(bool(partition) for partition in first) > 2


def test_messages_keep_key_headers_timestamp_and_tombstones(memory: Memory) -> None:
    log = memory.create("from", message_schema(), partitions=2)
    given = [
        {"key": b"a", "value": b"1", "headers": [{"key": "h", "value": b"x"}]},
        {"key": b"a", "value": None},
        {"key": None, "value": b"3"},
    ]
    batch = pa.RecordBatch.from_pylist(given, schema=message_schema())
    batch = batch.set_column(
        2,
        log.schema.field("timestamp"),
        pa.array([5, None, 7], "int64").cast(pa.timestamp("us", tz="UTC")),
    )
    memory.write("from", batch, partition=1)
    raw = {"stream__memory__decoder__class__name": "raw"}
    copied(memory.stream("from", **raw), memory.stream("to", **raw))
    assert memory.rows("to") == memory.rows("from")


def test_undecoded_messages_do_not_become_typed_rows(
    memory: Memory, streamfactory: Command
) -> None:
    memory.create("from", message_schema())
    raw = memory.stream("from", stream__memory__decoder__class__name="raw")
    done = streamfactory("copy", raw, memory.stream("to"), "--json")
    assert done.status == 2
    assert done.error["what"] == "undecoded messages do not fit a stream of typed rows"
    assert "stream.memory.decoder.class.name=raw" in done.error["remedy"]


def test_metadata_columns_of_the_source_do_not_choose_partitions(
    memory: Memory, source: Path
) -> None:
    memory.create("to", SCHEMA, partitions=1)
    with_place = memory.stream("from", metadata__columns="true")
    fields = [*SCHEMA, pa.field("_offset", pa.int64())]
    memory.create("placed", pa.schema(fields))
    copied(with_place, memory.stream("placed"))
    (partition,) = memory.rows("placed")
    assert Counter(row["_offset"] for row in partition) == Counter(
        [*range(5), *range(3)]
    )


# --- going on -------------------------------------------------------------------------


def test_copy_continues_at_the_position_of_the_sink(
    memory: Memory, source: Path
) -> None:
    sink = memory.stream("to")
    assert copied(source, sink).rows == 8
    memory.write("from", rows(8, 9), partition=1)
    memory.log("from").grow(3)
    memory.write("from", rows(10), partition=2)
    assert copied(source, sink).rows == 3
    assert copied(source, sink).rows == 0
    assert sorted(n for partition in ids(memory, "to") for n in partition) == list(
        range(11)
    )


def test_start_is_pinned_before_the_first_row(memory: Memory, source: Path) -> None:
    late = memory.stream("from", startingOffsets="latest")
    sink = memory.stream("to")
    assert copied(late, sink).rows == 0
    memory.write("from", rows(8))
    assert copied(late, sink).rows == 1
    assert ids(memory, "to")[0] == [8]


def test_following_takes_new_rows_and_partitions(memory: Memory, source: Path) -> None:
    sink, stop = (
        memory.stream("to", **{"realtime.segment.flush.threshold.time": "20"}),
        threading.Event(),
    )
    done: list[Copied] = []
    with open_copy(properties(source), properties(sink)) as copy:
        thread = threading.Thread(
            target=lambda: done.append(copy.run(stop, follow=True))
        )
        thread.start()
        try:
            wait_until(lambda: total(memory) == 8)
            memory.write("from", rows(8))
            memory.log("from").grow(3)
            memory.write("from", rows(9), partition=2)
            wait_until(lambda: total(memory) == 10)
            memory.write("from", rows(10))
        finally:
            stop.set()
            thread.join(120)
    assert not thread.is_alive()
    assert done[0].complete is False
    assert copied(source, sink).rows + done[0].rows == 11
    assert sorted(n for partition in ids(memory, "to") for n in partition) == list(
        range(11)
    )


def total(memory: Memory) -> int:
    return sum(len(partition) for partition in ids(memory, "to"))


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("seed", range(5))
def test_faults_of_both_ends_cost_nothing(seed: int, memory: Memory) -> None:
    memory.create("from", SCHEMA, partitions=3)
    for start in range(0, 600, 20):
        memory.write("from", rows(*range(start, start + 20)), start // 20 % 3)
    source = memory.stream("from", batch__rows="7", retry__max__attempts="100")
    sink = memory.stream(
        "to",
        retry__max__attempts="100",
        realtime__segment__flush__threshold__rows="10",
    )
    reading = Faults(seed=seed, fail=0.1, drop=0.1, duplicate=0.3, tear=0.4)
    writing = Faults(seed=seed, fail=0.02, drop=0.3)
    done = copied(source, sink, faults=(reading, writing))
    assert done.complete
    assert writing.injected.total() > 5
    assert memory.rows("to") == memory.rows("from")


# --- checkpoints ----------------------------------------------------------------------


def test_sink_that_forgot_its_writer_is_reported_by_the_checkpoint(
    memory: Memory, source: Path, tmp_path: Path
) -> None:
    sink, folder = memory.stream("to"), tmp_path / "checkpoints"
    copied(source, sink, checkpoints=FileCheckpointStore(folder))
    memory.log("to").forget(0)
    with pytest.raises(EpochMarkerLost) as caught:
        copied(source, sink, checkpoints=FileCheckpointStore(folder))
    assert (
        caught.value.what
        == "the sink has forgotten writer id 'copy/memory:from/memory:to'"
    )
    assert total(memory) == 8


# --- what is refused ------------------------------------------------------------------


def test_column_that_does_not_fit_is_named_before_a_row_is_written(
    memory: Memory, source: Path, streamfactory: Command
) -> None:
    memory.create("to", pa.schema([("id", pa.int64()), ("name", pa.int64())]))
    done = streamfactory("copy", source, memory.stream("to"), "--json")
    assert done.status == 1
    assert done.error["error"] == "schema_mismatch"
    assert done.error["what"].startswith("column 'name' is string, declared bigint")
    assert total(memory) == 0


def test_loss_is_an_error_or_a_record(
    memory: Memory, source: Path, streamfactory: Command
) -> None:
    sink = memory.stream("to")
    copied(source, sink, writer_id="w")
    memory.write("from", rows(8, 9, 10))
    memory.log("from").truncate({0: 7})
    with pytest.raises(OffsetOutOfRange):
        copied(source, sink, writer_id="w")
    done = streamfactory(
        *("copy", source, sink, "--writer", "w", "--json"),
        *("--from-set", "out.of.range=earliest"),
    )
    assert done.json["losses"] == [
        {"partition": "from-0", "from": 5, "to": 7, "cause": "retention"}
    ]
    assert done.json["guarantee"] == "at-most-once"
    assert ids(memory, "to")[0] == [0, 1, 2, 3, 4, 10]


def test_source_that_began_again_is_not_copied_on(memory: Memory, source: Path) -> None:
    sink = memory.stream("to")
    copied(source, sink)
    from streamfactory.backends.memory import store

    store(memory.name).delete("from")
    memory.create("from", SCHEMA, partitions=2)
    memory.write("from", rows(*range(20)))
    with pytest.raises(IncarnationChanged):
        copied(source, sink)
    assert total(memory) == 8


def test_second_stream_of_one_name_needs_another_writer_id(
    tmp_path: Path, streamfactory: Callable[..., Outcome]
) -> None:
    def stream(name: str, path: Path) -> Path:
        topic = {
            "streamType": "file",
            "stream.file.path": str(path),
            "stream.file.topic.name": name,
        }
        path.mkdir()
        file = path / "stream.json"
        file.write_text(json.dumps({"name": name, "properties": topic}))
        return file

    one, two = stream("clicks", tmp_path / "one"), stream("clicks", tmp_path / "two")
    sink = stream("all", tmp_path / "all")
    (tmp_path / "rows.csv").write_text("id\n1\n")
    for source in (one, two):
        done = streamfactory("publish", source, tmp_path / "rows.csv")
        assert done.status == 0, done.err
    assert streamfactory("copy", one, sink).status == 0
    refused = streamfactory("copy", two, sink, "--json")
    assert refused.status == 1
    assert refused.error["error"] == "incarnation_changed"
    assert "with another --writer" in refused.error["remedy"]
    done = streamfactory("copy", two, sink, "--writer", "second")
    assert done.status == 0, done.err


def test_writer_of_another_stream_is_refused(memory: Memory, source: Path) -> None:
    memory.create("other", SCHEMA)
    sink = memory.stream("to")
    copied(source, sink, writer_id="w")
    with pytest.raises(PositionRefused) as caught:
        copied(memory.stream("other"), sink, writer_id="w")
    assert (
        caught.value.what
        == "the position has partition from-0, which is not of this stream"
    )


def test_two_copies_of_one_writer_do_not_meet(memory: Memory, source: Path) -> None:
    sink, stop = memory.stream("to"), threading.Event()
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            first.run(stop, follow=True)
        except WriterFenced as error:
            failures.append(error)

    short = {"realtime.segment.flush.threshold.time": "20ms"}
    with open_copy(properties(source), properties(sink) | short) as first:
        thread = threading.Thread(target=follow)
        thread.start()
        try:
            wait_until(lambda: memory_has(memory, 8))
            assert copied(source, sink).rows == 0
            memory.write("from", rows(8))
            thread.join(120)
        finally:
            stop.set()
            thread.join(120)
    assert len(failures) == 1
    assert copied(source, sink).rows == 1
    assert total(memory) == 9


def memory_has(memory: Memory, count: int) -> bool:
    try:
        return total(memory) == count
    except LookupError:
        return False


def test_guarantee_is_computed_and_held_to(
    memory: Memory, source: Path, streamfactory: Command
) -> None:
    done = streamfactory("copy", source, memory.stream("to"), "--json")
    assert done.json["guarantee"] == "at-most-once"
    wanted = streamfactory(
        *("copy", source, memory.stream("to"), "--json"),
        *("--from-set", "guarantee=exactly-once"),
    )
    assert wanted.status == 2
    assert wanted.error["error"] == "guarantee_refused"
    assert wanted.error["what"].startswith(
        "guarantee=exactly-once is required, but this copy has"
    )
