"""R13: rows of a recreated topic are not the continuation of the deleted one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import STARTS
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import Recreates
from streamfactory.conformance.members import open_member, read_member
from streamfactory.conformance.patience import Patience
from streamfactory.spi import DataLossError, TopicNotFound
from streamfactory.wiring.reading.following import read_from

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.conformance.bench import Bench
    from streamfactory.spi import MessageBatch

_FEW: Final = 20
_MANY: Final = 60
"""More than before: the old offset exists in the new topic."""
_NEEDS: Final = (*STARTS, "a_recreated_topic_has_another_incarnation")


def _read_on(
    bench: Bench, following: Callable[[float], MessageBatch | None], messages: int
) -> list[int]:
    """The numbers that are read, until there are so many, an error, or no more."""
    numbers: list[int] = []
    patience = Patience()
    while len(numbers) < messages and not patience.over(
        max(0.3, bench.traits.recreation_timeout)
    ):
        batch = following(0.05)
        if batch is not None and batch.num_rows:
            numbers += bench.harness.numbers(batch.rows)
    return numbers


@case(
    "R13",
    claims=("replayable",),
    abilities=(Recreates,),
    hint="results do not carry the incarnation, and fetch_incarnations returns an old "
    "one",
    needs=_NEEDS,
)
def a_recreated_topic_is_not_continued(bench: Bench) -> None:
    """A reader that follows gets no row of a topic that has grown past its offset."""
    number = bench.create(messages=_FEW)
    source = bench.source(metadata__refresh__millis="600000")
    reading = read_from(source, start="earliest", default="earliest", follow=True)
    bench.closing(reading)
    early = _read_on(bench, reading.next_batch, _FEW)
    expect(early, bench.written[number], "messages before the topic was recreated")
    bench.recreate(number, _MANY)
    late: list[int] = []
    try:
        late = _read_on(bench, reading.next_batch, _MANY)
    except (DataLossError, TopicNotFound) as error:
        bench.note(f"the reader reports {error.code}")
    expect(late, [], "messages of the new topic that continued the old one")


@case(
    "R13",
    claims=("replayable",),
    abilities=(Recreates,),
    hint="fetch_incarnations returns an old incarnation",
    needs=_NEEDS,
)
def a_group_does_not_continue_in_a_recreated_topic(bench: Bench) -> None:
    """A commit after a recreation moves no member past messages of the new topic."""
    number = bench.create(messages=_FEW)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        first = open_member(bench, Path(folder))
        early = read_member(bench, first, _FEW)
        expect(early, bench.written[number], "messages before the topic was recreated")
        bench.recreate(number, _MANY)
        try:
            bench.note("commit")
            first.commit()
        except DataLossError as error:
            bench.note(f"the commit is refused: {error.code}")
        first.close()
        bench.note("restart")
        late: list[int] = []
        try:
            again = open_member(bench, Path(folder))
            late = _read_on(bench, again.next_batch, _MANY)
        except (DataLossError, TopicNotFound) as error:
            bench.note(f"the member reports {error.code}")
            return
        require(
            late in ([], bench.written[number]),
            f"only {len(late)} of {_MANY} messages of the new topic were read",
        )
