"""R12: what is acknowledged is released, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.case import case, expect
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.patience import Patience
from streamfactory.spi import BatchState, FetchLimits, Position
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore
from streamfactory.wiring.streams.groups import CheckpointedGroup

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench, Row
    from streamfactory.spi import ConsumerFactory

MESSAGES: Final = 40
_ABLE: Final = ("acknowledge", "acknowledged")
_SLICE: Final = 0.25


def _read(bench: Bench, number: int, factory: ConsumerFactory) -> list[Row]:
    """All messages that the medium holds, by a consumer of the author's."""
    infos = bench.infos(bench.provider(factory))
    at = infos[number].earliest
    wanted = len(bench.written[number]) - at
    consumer = bench.consumer(number, factory)
    rows: list[Row] = []
    patience = Patience()
    found: list[Row] = []
    while len(rows) < wanted and not patience.over(_SLICE, progress=bool(found)):
        fetched = consumer.fetch_messages(at, None, FetchLimits(7, 8 * 1024**2, _SLICE))
        found = bench.rows_of(fetched, at)
        rows += found
        if fetched.state is BatchState.END_OF_PARTITION:
            break
        at = fetched.next_offset
    return rows


def _acknowledge(
    bench: Bench, factory: ConsumerFactory, number: int, offset: int
) -> None:
    info = bench.infos(bench.provider(factory))[number]
    bench.note(f"acknowledge(partition={number}, offset={offset})")
    position = Position().with_offset(bench.partition(number), offset, info.incarnation)
    factory.acknowledge(position)


def _released(bench: Bench, wanted: dict[int, int]) -> dict[int, int]:
    """What the medium has released; waits for what is still on its way there."""
    patience = Patience()
    while True:
        found = dict(bench.harness.acknowledged())
        if found == wanted or patience.over(_SLICE):
            return found


@case(
    "R12",
    abilities=_ABLE,
    hint="messages are acknowledged when they are read, or further than was said",
    needs=ROWS,
)
def only_what_is_acknowledged_is_released(bench: Bench) -> None:
    """Reading releases nothing; an acknowledgement releases what is before it."""
    bench.create(partitions=2, messages=MESSAGES)
    first, second = bench.written
    factory = bench.factory()
    before = dict(bench.harness.acknowledged())
    rows = _read(bench, first, factory)
    expect([n for _, n in rows], bench.written[first], "messages read")
    expect(bench.harness.acknowledged(), before, "released by reading alone")
    middle = rows[MESSAGES // 2][0]
    _acknowledge(bench, factory, first, middle)
    wanted = {first: middle, second: before[second]}
    expect(_released(bench, wanted), wanted, "released by an acknowledgement")


@case("R12", abilities=_ABLE, hint="an offset is taken for the latest word", needs=ROWS)
def an_acknowledgement_can_be_repeated(bench: Bench) -> None:
    """An acknowledgement that comes again, or late, changes nothing."""
    bench.create(messages=MESSAGES)
    number, factory = bench.first(), bench.factory()
    rows = _read(bench, number, factory)
    early, late = rows[MESSAGES // 4][0], rows[MESSAGES // 2][0]
    for offset in (late, late, early):
        _acknowledge(bench, factory, number, offset)
    wanted = {number: late}
    expect(_released(bench, wanted), wanted, "released in the end")
    last = rows[-1][0] + 1
    _acknowledge(bench, factory, number, last)
    wanted = {number: last}
    expect(_released(bench, wanted), wanted, "released by the last")


@case(
    "R12",
    claims=("redelivers",),
    abilities=_ABLE,
    hint="what was sent counts as received, or is counted anew",
    needs=ROWS,
)
def what_is_not_acknowledged_is_delivered_again(bench: Bench) -> None:
    """Another consumer gets what was not acknowledged, under the same offsets."""
    bench.create(messages=MESSAGES)
    number, factory = bench.first(), bench.factory()
    rows = _read(bench, number, factory)
    cut = MESSAGES // 3
    _acknowledge(bench, factory, number, rows[cut][0])
    incarnation = bench.infos(bench.provider(factory))[number].incarnation
    factory.close()
    bench.note("restart")
    again = bench.factory()
    consumer = bench.consumer(number, again)
    found: list[Row] = []
    at = rows[cut][0]
    patience = Patience()
    while len(found) < len(rows) - cut and not patience.over(_SLICE):
        fetched = consumer.fetch_messages(
            at, None, FetchLimits(1000, 8 * 1024**2, _SLICE)
        )
        found += [row for row in bench.rows_of(fetched, at) if row[0] >= at]
        at = max(at, fetched.next_offset)
    expect(found, rows[cut:], "messages after a restart")
    info = bench.infos(bench.provider(again))[number]
    expect(info.incarnation, incarnation, "incarnation after a restart")


@case(
    "R12",
    abilities=(*_ABLE, "recreate"),
    hint="the incarnation of a position is not looked at",
    needs=ROWS,
)
def an_acknowledgement_of_another_incarnation_is_ignored(bench: Bench) -> None:
    """Offsets of a stream that was begun again release nothing of the new one."""
    bench.create(messages=MESSAGES)
    number, factory = bench.first(), bench.factory()
    last = _read(bench, number, factory)[-1][0]
    info = bench.infos(bench.provider(factory))[number]
    old = Position().with_offset(bench.partition(number), last, info.incarnation)
    bench.note("recreate()")
    bench.harness.recreate()
    bench.written[number] = []
    bench.write(number, MESSAGES)
    before = dict(bench.harness.acknowledged())
    again = bench.factory()
    again.acknowledge(old)
    rows = _read(bench, number, again)
    expect(len(rows), MESSAGES, "messages of the new stream")
    expect(bench.harness.acknowledged(), before, "released of the new stream")
    # Again, now that the new stream is known. Behind it one that releases less: when
    # that has arrived, so has the old one.
    again.acknowledge(old)
    early = rows[MESSAGES // 4][0]
    _acknowledge(bench, again, number, early)
    wanted = {number: early}
    expect(_released(bench, wanted), wanted, "released of the new stream")


@case(
    "R12",
    abilities=_ABLE,
    hint="acknowledge needs a consumer, or a thread, that is not there",
    needs=ROWS,
)
def a_group_acknowledges_what_it_commits(bench: Bench) -> None:
    """A group releases messages when it commits, and again when it is restarted."""
    bench.create(messages=MESSAGES)
    number = bench.first()
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        before = dict(bench.harness.acknowledged())
        member = _member(bench, Path(folder))
        _read_group(bench, member, MESSAGES)
        expect(bench.harness.acknowledged(), before, "released before the commit")
        position = member.commit()
        wanted = {number: position[bench.partition(number)]}
        expect(_released(bench, wanted), wanted, "released by the commit")
        late = bench.write(number, 5)
        expect(_read_group(bench, member, 5), late, "messages after the commit")
        member.close()
        bench.note("restart without a commit")
        again = _member(bench, Path(folder))
        expect(_read_group(bench, again, 5), late, "messages after a restart")
        expect(_released(bench, wanted), wanted, "released after the restart")
        again.close()


def _member(bench: Bench, folder: Path) -> CheckpointedGroup:
    source = bench.source(startingOffsets="earliest")
    store = FileCheckpointStore(folder)
    member = CheckpointedGroup(
        source, store, "conformance", instance=0, instances=1, clock=source.clock
    )
    return bench.closing(member)


def _read_group(bench: Bench, member: CheckpointedGroup, messages: int) -> list[int]:
    numbers: list[int] = []
    patience = Patience()
    while len(numbers) < messages and not patience.over(0.2):
        batch = member.next_batch(0.2)
        if batch is not None:
            numbers += bench.harness.numbers(batch.rows)
    return numbers
