"""R12: what is acknowledged is released, and nothing else."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.reading import ROWS
from streamfactory.conformance.expectations import Excluded, expect
from streamfactory.conformance.harness import Recreates, ShowsAcknowledged
from streamfactory.conformance.members import open_member, read_member
from streamfactory.spi import ConsumerFactory, Position

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench, Row

MESSAGES: Final = 40
_ABLE: Final = (ConsumerFactory.acknowledge,)
_SHOWN: Final = (ShowsAcknowledged,)
_POLL: Final = 0.02


def read(bench: Bench, number: int, factory: ConsumerFactory) -> list[Row]:
    """All messages that the medium holds, by a consumer of the author's.

    Nothing was acknowledged before.
    """
    earliest = bench.infos(bench.provider(factory))[number].earliest
    return _rows(bench, number, factory, earliest, len(bench.written[number]))


def _rows(
    bench: Bench, number: int, factory: ConsumerFactory, start: int, count: int
) -> list[Row]:
    """This number of rows at or after an offset."""
    rows: list[Row] = []
    consumer = bench.consumer(number, factory)
    for at, fetched in bench.answers(consumer, start, max_rows=7):
        rows += [row for row in bench.rows_of(fetched, at) if row[0] >= start]
        if len(rows) >= count:
            break
    return rows


def _acknowledged(bench: Bench) -> dict[int, int]:
    return dict(bench.use(ShowsAcknowledged).acknowledged())


def acknowledge(
    bench: Bench, factory: ConsumerFactory, number: int, offset: int
) -> None:
    """Acknowledge what is before an offset."""
    info = bench.infos(bench.provider(factory))[number]
    bench.note(f"acknowledge(partition={number}, offset={offset})")
    position = Position().with_offset(bench.partition(number), offset, info.incarnation)
    factory.acknowledge(position)


def released(bench: Bench, wanted: dict[int, int]) -> dict[int, int]:
    """What the medium has released; waits for what is still on its way there.

    What was released too much is not taken back: nothing is waited for then.
    """
    patience = bench.patience()
    while True:
        found = _acknowledged(bench)
        beyond = any(found[number] > wanted.get(number, 0) for number in found)
        if found == wanted or beyond or patience.over(_POLL):
            return found
        time.sleep(_POLL)


@case(
    "R12",
    abilities=_SHOWN,
    overrides=_ABLE,
    hint="messages are acknowledged when they are read, or beyond the given position",
    needs=ROWS,
)
def only_what_is_acknowledged_is_released(bench: Bench) -> None:
    """Reading releases nothing; an acknowledgement releases what is before it."""
    bench.create(partitions=2, messages=MESSAGES)
    first = next(iter(bench.written))
    factory = bench.factory()
    before = _acknowledged(bench)
    rows = read(bench, first, factory)
    expect([n for _, n in rows], bench.written[first], "messages read")
    expect(_acknowledged(bench), before, "released by reading alone")
    middle = rows[MESSAGES // 2][0]
    acknowledge(bench, factory, first, middle)
    wanted = {**before, first: middle}
    expect(released(bench, wanted), wanted, "released by an acknowledgement")


@case(
    "R12",
    abilities=_SHOWN,
    overrides=_ABLE,
    hint="only the first partition of a position is acknowledged, or one for all",
    needs=("only_what_is_acknowledged_is_released",),
)
def a_position_of_several_partitions_is_acknowledged(bench: Bench) -> None:
    """One acknowledgement releases of each of its partitions what is before it."""
    bench.create(partitions=3, messages=MESSAGES)
    factory = bench.factory()
    if bench.traits.single_partition:
        msg = "streams of the type have one partition"
        raise Excluded(msg)
    first, middle, last = bench.written
    infos, position = bench.infos(bench.provider(factory)), Position()
    wanted = _acknowledged(bench)
    for number, part in ((last, MESSAGES // 4), (first, MESSAGES // 2)):
        offset = read(bench, number, factory)[part][0]
        partition, incarnation = bench.partition(number), infos[number].incarnation
        position = position.with_offset(partition, offset, incarnation)
        wanted[number] = offset
    bench.note(f"acknowledge({position.to_json()})")
    factory.acknowledge(position)
    expect(released(bench, wanted), wanted, f"released, without partition {middle}")


@case(
    "R12",
    abilities=_SHOWN,
    overrides=_ABLE,
    hint="a smaller offset replaces a larger one",
    needs=ROWS,
)
def an_acknowledgement_can_be_repeated(bench: Bench) -> None:
    """A repeated or late acknowledgement changes nothing."""
    number, factory = bench.create(messages=MESSAGES), bench.factory()
    rows = read(bench, number, factory)
    early, late = rows[MESSAGES // 4][0], rows[MESSAGES // 2][0]
    for offset in (late, late, early):
        acknowledge(bench, factory, number, offset)
    wanted = {number: late}
    expect(released(bench, wanted), wanted, "released in the end")
    last = rows[-1][0] + 1
    acknowledge(bench, factory, number, last)
    wanted = {number: last}
    expect(released(bench, wanted), wanted, "released by the last")


@case(
    "R12",
    claims=("redelivers",),
    abilities=_SHOWN,
    overrides=_ABLE,
    hint="what was sent counts as received, or its offsets start again",
    needs=ROWS,
)
def what_is_not_acknowledged_is_delivered_again(bench: Bench) -> None:
    """Another consumer gets what was not acknowledged, under the same offsets."""
    number, factory = bench.create(messages=MESSAGES), bench.factory()
    rows = read(bench, number, factory)
    cut = MESSAGES // 3
    acknowledge(bench, factory, number, rows[cut][0])
    incarnation = bench.infos(bench.provider(factory))[number].incarnation
    factory.close()
    bench.note("restart")
    again = bench.factory()
    found = _rows(bench, number, again, rows[cut][0], len(rows) - cut)
    expect(found, rows[cut:], "messages after a restart")
    info = bench.infos(bench.provider(again))[number]
    expect(info.incarnation, incarnation, "incarnation after a restart")


@case(
    "R12",
    abilities=(*_SHOWN, Recreates),
    overrides=_ABLE,
    hint="the incarnation of a position is ignored",
    needs=ROWS,
)
def an_acknowledgement_of_another_incarnation_is_ignored(bench: Bench) -> None:
    """Offsets of the stream before its recreation release nothing of the new one."""
    number, factory = bench.create(messages=MESSAGES), bench.factory()
    last = read(bench, number, factory)[-1][0]
    info = bench.infos(bench.provider(factory))[number]
    old = Position().with_offset(bench.partition(number), last, info.incarnation)
    bench.recreate(number, MESSAGES)
    before = _acknowledged(bench)
    again = bench.factory()
    again.acknowledge(old)
    rows = read(bench, number, again)
    expect(len(rows), MESSAGES, "messages of the new stream")
    expect(_acknowledged(bench), before, "released of the new stream")
    # Again, now that the new stream is known. Behind it one that releases less: when
    # that has arrived, so has the old one.
    again.acknowledge(old)
    early = rows[MESSAGES // 4][0]
    acknowledge(bench, again, number, early)
    wanted = {number: early}
    expect(released(bench, wanted), wanted, "released of the new stream")


@case(
    "R12",
    abilities=_SHOWN,
    overrides=_ABLE,
    hint="acknowledge needs a consumer or a thread that does not exist",
    needs=ROWS,
)
def a_group_acknowledges_what_it_commits(bench: Bench) -> None:
    """A group releases messages when it commits, and again when it is restarted."""
    number = bench.create(messages=MESSAGES)
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        before = _acknowledged(bench)
        member = open_member(bench, Path(folder))
        read_member(bench, member, MESSAGES)
        expect(_acknowledged(bench), before, "released before the commit")
        position = member.commit()
        wanted = {number: position[bench.partition(number)]}
        expect(released(bench, wanted), wanted, "released by the commit")
        late = bench.write(number, 5)
        expect(read_member(bench, member, 5), late, "messages after the commit")
        member.close()
        bench.note("restart without a commit")
        again = open_member(bench, Path(folder))
        expect(read_member(bench, again, 5), late, "messages after a restart")
        expect(released(bench, wanted), wanted, "released after the restart")
        again.close()
