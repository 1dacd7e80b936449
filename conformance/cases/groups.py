"""P3: a group goes on at its last checkpoint, and saves one only when told to."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from streamfactory.conformance.case import case, expect
from streamfactory.conformance.cases.reading import STARTS
from streamfactory.conformance.patience import Patience
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore
from streamfactory.wiring.streams.groups import CheckpointedGroup

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench


def _member(bench: Bench, folder: Path) -> CheckpointedGroup:
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


def _read(bench: Bench, member: CheckpointedGroup, messages: int) -> list[int]:
    numbers: list[int] = []
    patience = Patience()
    while len(numbers) < messages and not patience.over(0.2):
        batch = member.next_batch(0.2)
        if batch is not None:
            numbers += bench.harness.numbers(batch.rows)
    return sorted(numbers)


@case(
    "P3",
    claims=("replayable",),
    hint="offsets differ from one reader to the next",
    needs=STARTS,
)
def a_group_goes_on_at_its_last_checkpoint(bench: Bench) -> None:
    """After a restart a group reads what came after its last commit, and only that."""
    bench.create(partitions=2, messages=20)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        first = _member(bench, Path(folder))
        early = sorted(n for lane in bench.written.values() for n in lane)
        expect(_read(bench, first, len(early)), early, "messages of a new group")
        bench.note("commit")
        first.commit()
        late = sorted(n for lane in bench.written for n in bench.write(lane, 5))
        expect(_read(bench, first, len(late)), late, "messages after the commit")
        first.close()
        bench.note("restart without a commit")
        again = _member(bench, Path(folder))
        expect(_read(bench, again, len(late)), late, "messages after a restart")
        again.close()
