"""A group with one member, for cases that restart it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.wiring.streams.checkpoints import FileCheckpointStore
from streamfactory.wiring.streams.groups import CheckpointedGroup

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.conformance.bench import Bench


def open_member(bench: Bench, folder: Path) -> CheckpointedGroup:
    """Open the only member of a group.

    Args:
        bench: Closes the member after the case.
        folder: Of the group's checkpoints.
    """
    source = bench.source(startingOffsets="earliest")
    member = CheckpointedGroup(
        source,
        FileCheckpointStore(folder),
        "conformance",
        instance=0,
        instances=1,
        clock=source.clock,
    )
    return bench.closing(member)


def read_member(bench: Bench, member: CheckpointedGroup, messages: int) -> list[int]:
    """Read this number of messages, or all that there are; their numbers, sorted."""
    numbers: list[int] = []
    patience = bench.patience()
    while len(numbers) < messages and not patience.over(0.2):
        batch = member.next_batch(0.2)
        if batch is not None:
            numbers += bench.harness.numbers(batch.rows)
    return sorted(numbers)
