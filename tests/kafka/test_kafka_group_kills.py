"""Members of a group are killed, or too slow: no row is lost."""

from __future__ import annotations

import random
import time
import uuid
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.kafka.members import Opener, fill, follows, of, rows_of, step
from tests.proving.drivers import Driver
from tests.proving.tiers import sample

from streamfactory.spi import TransientError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.topics import Topics

FIRST = (
    "tests/kafka/test_kafka_group_kills.py::"
    "test_a_member_that_is_killed_loses_nothing_and_repeats_what_it_did_not_commit"
)
PATIENCE = 120.0
PARTITIONS = 4
HALF = 600
"""Rows of each partition, before and after the kill."""

pytestmark = [
    pytest.mark.long("waits for the group to find that a member does not answer"),
    pytest.mark.usefixtures("each_path"),
]


class Member:
    """A process that reads as a member; what it has written down."""

    def __init__(self, folder: Path, topics: Topics, topic: str, group: str) -> None:
        folder.mkdir()
        self._file = folder / "rows.txt"
        self._file.touch()
        arguments = (topics.bootstrap, topic, group, self._file)
        self._driver = Driver(folder, "tests.kafka.group_member", *arguments)

    def lines(self, word: str) -> list[Any]:
        """Tuples of the numbers of complete lines that begin with a word."""
        lines = self._file.read_text().splitlines(keepends=True)
        found = (line.split() for line in lines if line.endswith("\n"))
        return [tuple(map(int, numbers)) for name, *numbers in found if name == word]

    def close(self) -> None:
        self._driver.kill()


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("seed", sample([1, 2], "other moments", shown_by=FIRST))
def test_a_member_that_is_killed_loses_nothing_and_repeats_what_it_did_not_commit(
    seed: int, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=PARTITIONS)
    group = f"group-{uuid.uuid4().hex[:8]}"
    chance = random.Random(seed)
    with ExitStack() as stack:
        killed, left = (
            stack.enter_context(closing(Member(tmp_path / name, topics, topic, group)))
            for name in ("killed", "left")
        )
        wait_for(lambda: all(m.lines("mine")[-1:] == [(2,)] for m in (killed, left)))
        fill(topics, topic, HALF, PARTITIONS)
        moment = chance.randrange(1, HALF)
        wait_for(lambda: len(killed.lines("row")) > moment)
        killed.close()
        fill(topics, topic, HALF, PARTITIONS)
        wanted = {(n, at) for n in range(PARTITIONS) for at in range(2 * HALF)}
        read = set(killed.lines("row"))
        wait_for(lambda: read | set(left.lines("row")) == wanted)
        committed = dict(killed.lines("commit"))
        again = read & set(left.lines("row"))
        assert all(offset >= committed.get(number, 0) for number, offset in again)
        assert len(left.lines("row")) == len(set(left.lines("row")))


def test_a_member_keeps_its_partitions_while_it_fetches_and_only_then(
    topics: Topics,
) -> None:
    topic = topics.create(partitions=2)
    for number in range(2):
        topics.send(topic, [b"v"] * 10, partition=number)
    settings = {"max.poll.interval.ms": "6000", "session.timeout.ms": "6000"}
    with Opener(topics)(topic, **settings) as member:
        rows_of(member, 20)
        mine, began = member.assignment(), time.monotonic()
        while time.monotonic() - began < 8:
            assert step(member) == []
            assert member.assignment() == mine
        topics.send(topic, [b"v"])
        assert rows_of(member, 1) == [(0, 10)]
        time.sleep(8)
        with pytest.raises(TransientError, match="maximum poll interval"):
            rows_of(member, 1)
        # It joins again: nothing was committed.
        again = rows_of(member, 21)
        assert len(again) == 21
        for partition in mine:
            assert follows(of(partition, again), 0)
