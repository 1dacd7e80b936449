"""The framework's group readers: checkpoints, restarts, and sharing among members."""

from __future__ import annotations

import itertools
import json
import uuid
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streamfactory
from streamfactory.arrowlog import Epoch
from streamfactory.backends.memory import store
from streamfactory.spi import (
    Checkpoint,
    CheckpointFailed,
    CheckpointStore,
    ClosedError,
    ConfigError,
    Loss,
    MisuseError,
    Partition,
    PartitionVanished,
    Position,
    PositionRefused,
    Summary,
    Unsupported,
)
from streamfactory.wiring.streams.groups import instance_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from streamfactory.arrowlog import MemoryLog
    from streamfactory.wiring.streams.stream import Stream

SCHEMA = pa.schema({"n": pa.int64()})


@pytest.fixture
def store_name() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def log(store_name: str) -> MemoryLog:
    return store(store_name).create("t", SCHEMA, 4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def member(store_name: str, log: MemoryLog, folder: Path) -> Iterator[Any]:
    """Opens one member of the group ``g``, from earliest by default."""
    opened: list[Stream] = []

    def make(instance: str = "0/1", **options: str) -> Stream:
        given = {
            "streamType": "memory",
            "stream.memory.topic.name": "t",
            "stream.memory.store": store_name,
            "stream.memory.consumer.type": "highlevel",
            "group.id": "g",
            "group.instance": instance,
            "checkpoint.location": str(folder),
            "metadata.refresh.millis": "1",
        }
        if not any(key.startswith("starting") for key in options):
            given["startingOffsets"] = "earliest"
        if options.get("startingOffsets") == "":
            del options["startingOffsets"]
        opened.append(streamfactory.open({**given, **options}))
        return opened[-1]

    yield make
    for stream in opened:
        stream.close()


_NUMBERS = itertools.count()


def fill(log: MemoryLog, **rows: int) -> None:
    """Append so many rows of rising numbers; ``p0=3`` goes to partition 0."""
    stage = log.stage(uuid.uuid4().hex)
    for name, count in rows.items():
        numbers = {"n": [next(_NUMBERS) for _ in range(count)]}
        stage.append(int(name[1:]), pa.RecordBatch.from_pydict(numbers, schema=SCHEMA))
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))


def read(stream: Stream, rows: int) -> dict[int, list[int]]:
    """Read so many rows; answers their offsets by partition."""
    found: dict[int, list[int]] = {}
    while rows:
        batch = stream.next_batch(30)
        assert batch is not None
        assert batch.first_offset is not None
        offsets = range(batch.first_offset, batch.next_offset)
        found.setdefault(batch.partition.id, []).extend(offsets)
        rows -= batch.num_rows
    return found


def nothing_more(stream: Stream) -> bool:
    return stream.next_batch(0.05) is None


def offsets(position: Position) -> dict[int, int]:
    return {partition.id: offset for partition, offset in position.items()}


# --- starts, commits, restarts --------------------------------------------------


def test_new_group_starts_by_option(member: Any, log: MemoryLog) -> None:
    fill(log, p0=3, p1=2)
    with closing(member(startingOffsets="earliest")) as stream:
        assert read(stream, 5) == {0: [0, 1, 2], 1: [0, 1]}
    with closing(member(startingOffsets="latest")) as stream:
        assert nothing_more(stream)
        fill(log, p0=1)
        assert read(stream, 1) == {0: [3]}
    given = {"t": {"0": 2, "1": -1, "2": -2, "3": 0}}
    with closing(member(startingOffsets=json.dumps(given))) as stream:
        assert offsets(stream.position) == {0: 2, 1: 2, 2: 0, 3: 0}


def test_new_group_starts_at_latest_when_nothing_says(
    member: Any, log: MemoryLog
) -> None:
    fill(log, p0=3)
    with closing(member(startingOffsets="")) as stream:
        assert offsets(stream.position) == {0: 3, 1: 0, 2: 0, 3: 0}


def test_new_group_starts_at_a_time(member: Any, log: MemoryLog) -> None:
    fill(log, p0=3)
    now = int(datetime.now(UTC).timestamp() * 1000)
    options = {"startingOffsetsByTimestampStrategy": "latest"}
    with closing(member(startingTimestamp="0", **options)) as stream:
        assert offsets(stream.position)[0] == 0
    later = str(now + 3_600_000)
    with closing(member(startingTimestamp=later, **options)) as stream:
        assert offsets(stream.position)[0] == 3


def test_start_offsets_of_every_partition_suit_each_of_several_members(
    member: Any, log: MemoryLog
) -> None:
    fill(log, p0=5, p1=5, p2=5, p3=5)
    given = json.dumps({"t": {"0": 1, "1": 2, "2": 3, "3": 4}})
    found: dict[int, int] = {}
    for k in range(3):
        with closing(member(f"{k}/3", startingOffsets=given)) as stream:
            found |= offsets(stream.position)
    assert found == {0: 1, 1: 2, 2: 3, 3: 4}


def test_nothing_is_saved_but_by_commit(
    member: Any, log: MemoryLog, folder: Path
) -> None:
    fill(log, p0=3)
    stream = member()
    read(stream, 3)
    assert offsets(stream.position)[0] == 3
    stream.close()
    assert not folder.exists()
    with closing(member()) as again:
        assert read(again, 3) == {0: [0, 1, 2]}


def test_restart_resumes_at_the_last_commit_and_repeats_later_rows(
    member: Any, log: MemoryLog
) -> None:
    fill(log, p0=3, p1=1)
    with closing(member()) as stream:
        read(stream, 4)
        committed = stream.commit()
        assert committed == stream.position
        fill(log, p0=2, p2=1)
        assert read(stream, 3) == {0: [3, 4], 2: [0]}
    # a checkpoint beats every start option
    with closing(member(startingOffsets="latest")) as stream:
        assert stream.position == committed
        assert read(stream, 3) == {0: [3, 4], 2: [0]}
        stream.commit()
    with closing(member()) as stream:
        assert nothing_more(stream)


def test_commit_saves_what_was_handed_out_and_not_more(
    member: Any, log: MemoryLog
) -> None:
    fill(log, p0=10)
    with closing(member(**{"batch.rows": "4"})) as stream:
        read(stream, 4)
        assert offsets(stream.commit())[0] == 4
    with closing(member()) as stream:
        assert read(stream, 6) == {0: [4, 5, 6, 7, 8, 9]}


def test_checkpoint_that_is_behind_retention_is_reported_as_loss_or_refused(
    member: Any, log: MemoryLog
) -> None:
    fill(log, p0=3)
    with closing(member()) as stream:
        read(stream, 2 + 1)
        stream.commit()
    fill(log, p0=7)
    log.truncate({0: 6})
    with closing(member()) as stream, pytest.raises(LookupError) as caught:
        stream.next_batch(5)
    assert getattr(caught.value, "code", None) == "offset_out_of_range"
    with closing(member(**{"out.of.range": "earliest"})) as stream:
        assert read(stream, 4) == {0: [6, 7, 8, 9]}
        (loss,) = stream.counters.losses
        assert (loss.start, loss.end) == (3, 6)


def test_failing_to_save_is_an_error_and_the_next_commit_makes_it_good(
    member: Any, log: MemoryLog, folder: Path
) -> None:
    fill(log, p0=3)
    with closing(member()) as stream:
        read(stream, 3)
        folder.write_text("in the way")
        with pytest.raises(CheckpointFailed):
            stream.commit()
        folder.unlink()
        stream.commit()
    with closing(member()) as stream:
        assert offsets(stream.position)[0] == 3


def test_corrupt_checkpoint_stops_the_group_and_is_never_replaced(
    member: Any, log: MemoryLog, folder: Path
) -> None:
    with closing(member()) as stream:
        stream.commit()
    (file,) = (folder / "g").iterdir()
    file.write_text("{}")
    with pytest.raises(PositionRefused):
        member()
    assert file.read_text() == "{}"


@pytest.mark.parametrize("name", ["notes", "3-of-3", "0-of-0", "00-of-1"])
def test_checkpoint_of_no_member_is_refused(
    member: Any, log: MemoryLog, folder: Path, name: str
) -> None:
    with closing(member()) as stream:
        stream.commit()
    (file,) = (folder / "g").iterdir()
    file.rename(file.with_name(f"{name}.json"))
    with pytest.raises(PositionRefused) as caught:
        member()
    assert caught.value.what == (
        f"the group 'g' has a checkpoint of {name!r}, which is not a member"
    )


# --- sharing --------------------------------------------------------------------


@given(
    st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True),
    st.integers(1, 40),
    st.integers(1, 12),
)
def test_members_share_partitions_completely_evenly_and_growth_moves_none(
    names: list[str], partitions: int, instances: int
) -> None:
    for topic in names:
        owners = [
            instance_of(Partition(topic, n), instances) for n in range(partitions)
        ]
        assert set(owners) <= set(range(instances))
        counts = [owners.count(k) for k in range(instances)]
        assert max(counts) - min(counts) <= 1
        grown = [
            instance_of(Partition(topic, n), instances) for n in range(partitions + 5)
        ]
        assert grown[:partitions] == owners


@pytest.mark.parametrize("instances", [1, 2, 3, 4, 7])
def test_members_read_every_row_once(
    member: Any, log: MemoryLog, instances: int
) -> None:
    fill(log, p0=1, p1=2, p2=3, p3=4)
    found: dict[int, list[int]] = {}
    for k in range(instances):
        with closing(member(f"{k}/{instances}")) as stream:
            mine = offsets(stream.position)
            total = sum(n + 1 for n in mine)
            part = read(stream, total)
            assert nothing_more(stream)
            assert not set(part) & set(found)
            found |= part
    assert found == {n: [*range(n + 1)] for n in range(4)}


def test_partition_that_appears_goes_to_its_member_from_its_first_row(
    member: Any, log: MemoryLog
) -> None:
    streams = [member(f"{k}/2", startingOffsets="latest") for k in range(2)]
    log.grow(6)
    rows = {4: 2, 5: 3}
    found: dict[int, list[int]] = {}
    fill(log, p4=2, p5=3)
    for k, stream in enumerate(streams):
        mine = [n for n in rows if instance_of(Partition("t", n), 2) == k]
        part = read(stream, sum(rows[n] for n in mine))
        assert set(part) == set(mine)
        found |= part
    assert found == {4: [0, 1], 5: [0, 1, 2]}


def test_partition_that_appeared_between_two_runs_begins_at_its_first_row(
    member: Any, log: MemoryLog
) -> None:
    with closing(member(startingOffsets="latest")) as stream:
        stream.commit()
    log.grow(5)
    fill(log, p4=2)
    with closing(member(startingOffsets="latest")) as stream:
        assert read(stream, 2) == {4: [0, 1]}


def test_member_that_starts_after_the_first_commit_of_another_is_new_all_the_same(
    member: Any, log: MemoryLog
) -> None:
    fill(log, p0=5, p1=5, p2=5, p3=5)
    first = member("0/2", startingOffsets="latest")
    first.commit()
    with closing(member("1/2", startingOffsets="latest")) as second:
        mine = offsets(second.position)
        assert len(mine) == 2
        assert set(mine.values()) == {5}  # not 0: nobody read them before


def test_another_number_of_members_resumes_at_the_newest_checkpoints(
    member: Any, log: MemoryLog
) -> None:
    done = dict.fromkeys(range(4), 0)
    for round_, instances in enumerate((2, 3, 1, 2, 4, 2)):
        fill(log, p0=2, p1=2, p2=2, p3=2)
        for k in range(instances):
            with closing(member(f"{k}/{instances}")) as stream:
                mine = offsets(stream.position)
                assert mine == {n: done[n] for n in mine}
                for _ in range(round_ % 3):  # some save more often than others
                    stream.commit()
                part = read(stream, 2 * len(mine))
                assert part == {n: [done[n], done[n] + 1] for n in mine}
                stream.commit()
            done |= {n: done[n] + 2 for n in mine}
    assert set(done.values()) == {12}


def test_partition_missing_since_the_last_checkpoint_is_reported(
    member: Any, log: MemoryLog, store_name: str
) -> None:
    fill(log, p3=5)
    with closing(member()) as stream:
        read(stream, 5)
        stream.commit()
    store(store_name).delete("t")
    store(store_name).create("t", SCHEMA, 3)
    with pytest.raises(PartitionVanished) as caught:
        member()
    assert str(caught.value) == (
        "the partition was removed after the last checkpoint "
        "(stream 'memory:t', partition t-3, offset 5)"
    )
    with closing(member(**{"out.of.range": "earliest"})) as stream:
        assert Loss(Partition("t", 3), 5, None, "vanished") in stream.counters.losses
        assert set(offsets(stream.commit())) == {0, 1, 2}


# --- through open ---------------------------------------------------------------


def test_group_takes_no_start(member: Any, store_name: str, folder: Path) -> None:
    given = {
        "streamType": "memory",
        "stream.memory.topic.name": "t",
        "stream.memory.store": store_name,
        "stream.memory.consumer.type": "highlevel",
        "group.id": "g",
        "checkpoint.location": str(folder),
    }
    with pytest.raises(MisuseError) as caught:
        streamfactory.open(given, start="earliest")
    assert str(caught.value) == (
        "a group starts at its checkpoint: start is not allowed (stream 'memory:t'); "
        "use a new group.id with a starting option"
    )


def test_group_needs_a_name_and_a_place(store_name: str) -> None:
    given = {
        "streamType": "memory",
        "stream.memory.topic.name": "t",
        "stream.memory.consumer.type": "highlevel",
    }
    with pytest.raises(ConfigError) as caught:
        streamfactory.open(given)
    assert {(p.key, p.what) for p in caught.value.problems} == {
        ("group.id", "is required by consumer.type=highlevel"),
        ("checkpoint.location", "is required by consumer.type=highlevel"),
    }


@pytest.mark.parametrize("group", ["../g", ".g", "a/b"])
def test_group_that_cannot_name_a_file_is_refused(member: Any, group: str) -> None:
    with pytest.raises(MisuseError) as caught:
        member(**{"group.id": group})
    assert caught.value.what == f"the group {group!r} cannot name a file"


def test_stream_read_by_partition_has_no_commit(
    log: MemoryLog, store_name: str
) -> None:
    given = {
        "streamType": "memory",
        "stream.memory.topic.name": "t",
        "stream.memory.store": store_name,
    }
    with streamfactory.open(given) as stream, pytest.raises(Unsupported) as caught:
        stream.commit()
    assert str(caught.value) == (
        "a stream that is read by partition has no group to commit for (stream "
        "'memory:t'); "
        "store `position`, or set consumer.type=highlevel"
    )


def test_closed_member_reads_and_commits_nothing(
    member: Any, log: MemoryLog, folder: Path
) -> None:
    stream = member()
    stream.close()
    stream.close()
    uses: list[Callable[[], Any]] = [lambda: stream.next_batch(1), stream.commit]
    for use in uses:
        with pytest.raises(ClosedError):
            use()
    assert not folder.exists()


def test_store_is_closed_where_a_member_cannot_start(
    member: Any, log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    class Corrupt(CheckpointStore):
        def __init__(self, folder: Path) -> None:
            calls.append("open")

        def claim(self, group: str, instance: str) -> None:
            calls.append(f"claim {group} {instance}")

        def load(self, group: str) -> Mapping[str, Checkpoint]:
            calls.append("load")
            msg = "the checkpoint is corrupt"
            raise PositionRefused(msg)

        def save(self, group: str, instance: str, checkpoint: Checkpoint) -> None:
            calls.append("save")

        def close(self) -> None:
            calls.append("close")

    monkeypatch.setattr(
        "streamfactory.wiring.streams.stream.FileCheckpointStore", Corrupt
    )
    with pytest.raises(PositionRefused, match="the checkpoint is corrupt"):
        member("1/3")
    assert calls == ["open", "claim g 1-of-3", "load", "close"]


# --- ends --------------------------------------------------------------------------


@pytest.mark.parametrize("instance", ["0/1", "1/2"])
def test_a_loop_over_a_group_ends_at_the_latest_of_its_start(
    member: Any, log: MemoryLog, instance: str
) -> None:
    fill(log, p0=3, p1=2, p3=1)
    stream = member(instance)
    mine = stream.position
    seen = 0
    for batch in stream:
        seen += batch.num_rows
        stream.commit()
        fill(log, p0=1, p1=1)  # never at the end, if that moved
    assert seen >= sum({0: 3, 1: 2, 3: 1}.get(one.id, 0) for one in mine)
    fill(log, p0=1, p1=1)
    for stream in (member(instance), member(instance)):
        rows = stream.to_reader().read_all().num_rows
        assert rows >= len({0, 1} & {one.id for one in mine})


def test_a_loop_over_a_group_at_the_latest_offsets_ends_at_once(
    member: Any, log: MemoryLog
) -> None:
    assert list(member()) == []
    fill(log, p0=3)
    assert list(member(startingOffsets="latest")) == []
