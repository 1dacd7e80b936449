"""What the topics and groups of `tests.kafka.chaos_proving` should have come to."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tests.kafka.chaos_roles import PARTITIONS, TASKS, number_of, numbers_of
from tests.kafka.proving import committed_messages
from tests.proving.verdict import Verdict, compared

if TYPE_CHECKING:
    from tests.kafka.chaos_roles import Place

Offsets = dict[int, list[int]]
"""Of the rows of a topic, by partition, ascending."""


def judge_topics(place: Place) -> tuple[Verdict, Offsets]:
    """Compare the three topics with what the writer has committed; offsets of b."""
    last = int(place.file("epoch").read_text())
    wanted = [
        number
        for epoch in range(last + 1)
        for task in range(TASKS)
        for number in numbers_of(epoch, task)
    ]
    verdict, offsets, homes = Verdict(), {}, {}
    for topic in "abc":
        rows = committed_messages(place.bootstrap, topic, PARTITIONS)
        damaged, found = 0, {}
        for partition, messages in rows.items():
            numbers = [number_of(message.value()) for message in messages]
            damaged += numbers.count(None)
            found[str(partition)] = [n for n in numbers if n is not None]
        if topic == "a":  # the others keep the key, and so the partition
            homes = {n: home for home, numbers in found.items() for n in numbers}
        order: dict[str, list[int]] = {str(partition): [] for partition in rows}
        for number in wanted:
            order[homes.get(number, "0")].append(number)
        one = compared(order, found)
        one.findings += damaged
        total = sum(map(sum, found.values()))
        one.notes.append(
            f"kafka3: {topic} has {sum(map(len, found.values()))} rows of "
            f"{len(wanted)}, sum {total} of {sum(wanted)}, {damaged} damaged: "
            f"lost={one.lost} twice={one.twice}"
        )
        verdict += one
        if topic == "b":
            offsets = {
                p: [o for m in messages if (o := m.offset()) is not None]
                for p, messages in rows.items()
            }
    return verdict, offsets


def judge_group(place: Place, protocol: str, offsets: Offsets) -> Verdict:
    """Replay what the members of a group have read and committed.

    A row below a committed offset that no member had read is lost, as is one that was
    read by nobody in the end. One is there twice if a member reads it that began after
    it was committed: others may have fetched it before.
    """
    read: dict[int, set[int]] = defaultdict(set)
    committed: dict[int, int] = defaultdict(int)
    floors: dict[str, dict[int, int]] = {}
    lost: set[tuple[int, int]] = set()
    verdict, rows, commits = Verdict(), 0, 0
    for line in place.file(f"group-{protocol}").read_text().splitlines():
        kind, *words = line.split()
        if kind == "begin":
            floors[words[0]] = dict(committed)
        elif kind == "row":
            partition, offset = int(words[1]), int(words[2])
            read[partition].add(offset)
            rows += 1
            verdict.twice += offset < floors[words[0]].get(partition, 0)
            verdict.findings += words[3] == "None"
        else:
            partition, offset = map(int, words)
            below = (
                o for o in offsets[partition] if committed[partition] <= o < offset
            )
            lost |= {(partition, o) for o in below if o not in read[partition]}
            committed[partition] = max(committed[partition], offset)
            commits += 1
    lost |= {(p, o) for p, all_ in offsets.items() for o in all_ if o not in read[p]}
    verdict.lost = len(lost)
    verdict.notes.append(
        f"kafka3: group {protocol}: {len(floors)} members read {rows} rows of "
        f"{sum(map(len, offsets.values()))}, {commits} commits: "
        f"lost={verdict.lost} twice={verdict.twice}"
    )
    return verdict
