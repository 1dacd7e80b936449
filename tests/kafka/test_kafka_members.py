"""What a member of a group has fetched when its partitions or its position change."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from tests.kafka.conftest import READING
from tests.kafka.members import (
    FETCHED,
    FEW,
    MANY,
    PATIENCE,
    QUICK,
    Opener,
    filled,
    follows,
    of,
    rows_of,
    rows_to,
    until,
)
from tests.kafka.raw_headers import send_header
from tests.proving.drivers import REPOSITORY

from streamfactory.backends.kafka import native_library
from streamfactory.backends.kafka.group_starts import PlannedStarts, StartPlanner
from streamfactory.backends.kafka.groups import KafkaGroupMember
from streamfactory.backends.kafka.native_groups import MemberQueue
from streamfactory.spi import (
    ConfigError,
    CorruptData,
    Partition,
    Position,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kafka.topics import Topics

    from streamfactory.compiled.core import Core


@pytest.fixture
def member_of(topics: Topics) -> Opener:
    return Opener(topics)


def check_seeks(topics: Topics, member_of: Opener) -> None:
    with member_of(filled(topics)) as member:
        assert follows(rows_of(member, 1, FEW), 0)
        [partition] = member.assignment()
        # Several at once: each assignment begins while the one before ends.
        for places in ([2], [4000], *[[9, 100, 17]] * 20, [FETCHED - 1, 0]):
            for place in places:
                member.seek(partition, place)
            found = rows_of(member, 20, FEW)
            assert follows(found, places[-1]), (places, found[:3])
        assert follows(rows_of(member, FETCHED - 20), 20)


def test_what_was_fetched_before_a_seek_is_not_delivered_natively(
    topics: Topics,
    member_of: Opener,
    native: Core,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(READING, "required")
    check_seeks(topics, member_of)


@pytest.mark.usefixtures("each_path")
def test_what_was_fetched_before_a_seek_is_not_delivered(
    topics: Topics, member_of: Opener
) -> None:
    check_seeks(topics, member_of)


@pytest.mark.usefixtures("each_path")
def test_rows_that_wait_to_be_returned_are_dropped_by_a_seek(
    topics: Topics, member_of: Opener
) -> None:
    topic = filled(topics, partitions=8, messages=20)
    with member_of(topic) as member:
        rows_of(member, 160)
        partitions = sorted(member.assignment())
        for place in (0, 15, 3, 11):
            for partition in partitions:
                member.seek(partition, place)
            # Of the other partitions, rows wait that were polled with these.
            [(first, _), *_] = rows_of(member, 1)
            for partition in partitions:
                member.seek(partition, place + 1)
            found = rows_of(member, 8 * (19 - place))
            for partition in partitions:
                assert len(of(partition, found)) == 19 - place, first
                assert follows(of(partition, found), place + 1)


@pytest.mark.usefixtures("each_path")
@pytest.mark.parametrize("way", ["cooperative-sticky", "range", "consumer"])
def test_what_was_fetched_before_a_revocation_is_not_delivered(
    way: str, topics: Topics, member_of: Opener
) -> None:
    # Fetched in small runs, so that messages of all partitions are next.
    topic = filled(topics, 8, 1000, **{"batch.num.messages": 50})
    options = {"partition.assignment.strategy": way, **QUICK}
    if way == "consumer":
        options = {"group.protocol": way}
    options["max.partition.fetch.bytes"] = "5000"
    with member_of(topic, **options) as first:
        [before] = until(lambda: len(first.assignment()) == 8, first)
        before += rows_of(first, 40, FEW)
        with member_of(topic, **options) as second:
            mine, theirs = until(
                lambda: len(first.assignment()) == len(second.assignment()) == 4,
                first,
                second,
            )
            kept, given = first.assignment(), second.assignment()
            assert not kept & given
            mine += rows_of(first, 400, FEW)
            theirs += rows_of(second, 400, FEW)
        # Nothing was committed: the new owner reads from the start.
        assert all(follows(of(partition, theirs), 0) for partition in given)
        if way != "range":  # which takes all partitions from all members
            assert all(follows(of(partition, before + mine), 0) for partition in kept)
        [again] = until(lambda: len(first.assignment()) == 8, first)
        again += rows_to(first, {(partition.id, 999) for partition in given})
        # Nor is anything of its first assignment among these.
        assert all(follows(of(partition, again), 0) for partition in given)


@pytest.mark.parametrize("way", ["cooperative-sticky", "range", "consumer"])
def test_a_member_that_is_assigned_nothing_has_joined(
    way: str, topics: Topics, member_of: Opener
) -> None:
    topic = filled(topics, 1, 10)
    options = {"partition.assignment.strategy": way, **QUICK}
    if way == "consumer":
        options = {"group.protocol": way}
    with member_of(topic, **options) as first, member_of(topic, **options) as second:
        assert not first.has_joined()
        until(lambda: len(first.assignment()) == 1, first)
        assert first.has_joined()
        until(second.has_joined, first, second)
        first.close()
        assert not first.has_joined()


def test_both_paths_return_the_same_rows_of_several_partitions(
    native: Core,
    topics: Topics,
    member_of: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = topics.create(partitions=3)
    for value in range(40):
        for number in range(3):
            header = [("n", b"%d" % value)] if value % 3 else None
            key = b"k" if value % 2 else None
            text = None if value % 7 == 3 else b"%d" % value * 50
            topics.send(topic, [text], partition=number, key=key, headers=header)
    found = {}
    for path in ("off", "required"):
        monkeypatch.setenv(READING, path)
        member_of.group += path
        with member_of(topic) as member:
            tables: dict[Partition, list[pa.RecordBatch]] = {}
            deadline = time.monotonic() + PATIENCE
            while sum(b.num_rows for one in tables.values() for b in one) < 120:
                assert time.monotonic() < deadline
                answer = member.fetch_messages(MANY)
                if answer is not None and answer[1].rows is not None:
                    answer[1].rows.validate(full=True)
                    assert answer[1].next_offset == member_offset(answer[1].rows) + 1
                    tables.setdefault(answer[0], []).append(answer[1].rows)
        found[path] = {
            partition: pa.Table.from_batches(batches).combine_chunks()
            for partition, batches in tables.items()
        }
    assert found["required"].keys() == found["off"].keys()
    for partition, table in found["off"].items():
        assert found["required"][partition].equals(table)


def member_offset(rows: pa.RecordBatch) -> int:
    """The last offset."""
    return int(rows.column("offset")[-1].as_py())


@pytest.mark.parametrize("path", ["off", "required", "auto"])
def test_the_option_decides_which_path_a_member_reads(
    path: str,
    native: Core,
    topics: Topics,
    topic: str,
    member_of: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened_queues: list[MemberQueue] = []
    made = MemberQueue.__init__

    def noted(queue: MemberQueue, *arguments: Any) -> None:
        made(queue, *arguments)
        opened_queues.append(queue)

    monkeypatch.setattr(MemberQueue, "__init__", noted)
    monkeypatch.setenv(READING, path)
    topics.send(topic, [b"v"] * 3)
    with member_of(topic) as member:
        assert follows(rows_of(member, 3), 0)
    assert len(opened_queues) == (path != "off")
    assert all(queue.queue is None for queue in opened_queues)


def test_a_member_that_requires_what_is_absent_is_refused(
    topics: Topics,
    topic: str,
    member_of: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "streamfactory_native", None)
    native_library.load.cache_clear()
    monkeypatch.setenv(READING, "required")
    with (
        pytest.raises(ConfigError, match="=required is not possible"),
        member_of(topic),
    ):
        pass
    native_library.load.cache_clear()
    monkeypatch.setenv(READING, "auto")
    topics.send(topic, [b"v"] * 3)
    with member_of(topic) as member:
        assert follows(rows_of(member, 3), 0)
    native_library.load.cache_clear()


def test_messages_that_were_fetched_before_they_were_forwarded_are_read_again(
    native: Core,
    topics: Topics,
    member_of: Opener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forward, seek, calls, sought = MemberQueue.forward, KafkaGroupMember.seek, [0], []

    def late(queue: MemberQueue, partitions: list[Partition]) -> None:
        calls[0] += 1
        if calls[0] > 2:  # not when the partition is first assigned
            forward(queue, partitions)

    def noted(member: KafkaGroupMember, partition: Partition, offset: int) -> None:
        sought.append(offset)
        seek(member, partition, offset)

    monkeypatch.setattr(MemberQueue, "forward", late)
    monkeypatch.setattr(KafkaGroupMember, "seek", noted)
    monkeypatch.setenv(READING, "required")
    with member_of(filled(topics)) as member:
        found = rows_of(member, FETCHED)
        assert found == [(0, offset) for offset in range(FETCHED)]
    assert sought == [0]


@pytest.mark.usefixtures("each_path")
def test_a_member_rejoins_at_its_commit_after_a_batch_that_failed(
    native: Core, topics: Topics, member_of: Opener
) -> None:
    topic = topics.create()
    topics.send(topic, [b"v"] * 6)
    partition = Partition(topic, 0)
    with member_of(topic) as member:
        assert follows(rows_of(member, 6), 0)
        member.commit(Position({partition: 4}))
        send_header(topics.bootstrap, topic, b"\xff\xfe")
        topics.send(topic, [b"after"] * 5)
        for _ in range(2):  # nothing after the message is returned instead
            with pytest.raises(CorruptData, match="offset 6: the name of a header"):
                rows_of(member, 100)


@pytest.mark.usefixtures("each_path")
def test_a_member_rejoins_that_could_not_read_its_committed_offsets(
    topics: Topics, member_of: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = StartPlanner.plan
    failures = [KafkaException(KafkaError(KafkaError._TIMED_OUT))] * 2

    def failing(
        planner: StartPlanner, client: Consumer, partitions: Sequence[Partition]
    ) -> PlannedStarts:
        if failures:
            raise failures.pop()
        return plan(planner, client, partitions)

    monkeypatch.setattr(StartPlanner, "plan", failing)
    with member_of(filled(topics)) as member:
        for _ in range(2):
            with pytest.raises(StreamTimeout, match="committed offsets of group"):
                rows_of(member, 1)
            assert not member.assignment()
        assert follows(rows_of(member, FETCHED), 0)


@pytest.mark.parametrize("ending", ["del member", "pass"])
def test_a_process_ends_whose_member_was_not_closed(
    ending: str,
    native: Core,
    topics: Topics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(READING, "required")
    program = UNCLOSED.format(ending=ending)
    done = subprocess.run(
        [sys.executable, "-c", program, topics.bootstrap, filled(topics)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "read"


UNCLOSED = """
import gc, sys, uuid
from tests.kafka.conftest import stream_of
from tests.kafka.members import FEW, KafkaGroupMember, opened, rows_of
with opened(stream_of(*sys.argv[1:]), startingOffsets="earliest") as source:
    member = KafkaGroupMember(source.config, "test", uuid.uuid4().hex)
    rows_of(member, 1, FEW)
    sys.stdout.write("read")
    sys.stdout.flush()
    {ending}
    gc.collect()
"""
