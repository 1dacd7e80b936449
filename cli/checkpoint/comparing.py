"""``checkpoint lag`` and ``checkpoint diff``: against the streams, and another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from streamfactory.cli.checkpoint.answers import number, source_title, total
from streamfactory.cli.checkpoint.locating import (
    kept_target_argument,
    locate,
    locate_kept,
    merged,
    opened,
    server_option,
    streams_option,
    target_argument,
)
from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import Result, table
from streamfactory.spark.checkpoints import differences, measure_lag
from streamfactory.spi import MisuseError, PositionRefused
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.checkpoint.locating import Located
    from streamfactory.cli.printing import Printer
    from streamfactory.spark.checkpoints import Moved, PartitionLag
    from streamfactory.spi import Position


@dataclass(frozen=True, slots=True)
class SourceLag:
    """How far one source, or one group, is behind."""

    source: str
    stream: str
    behind: int | None
    """Offsets; None where one partition cannot tell."""
    partitions: Sequence[PartitionLag]


@dataclass(frozen=True, slots=True)
class Lag(Result):
    """The answer of ``checkpoint lag``."""

    checkpoint: str
    behind: int | None
    sources: list[SourceLag]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield f"{self.checkpoint}: {number(self.behind)} behind"
        head = ("TOPIC", "PARTITION", "OFFSET", "LATEST", "BEHIND", "REMARK")
        for one in self.sources:
            yield ""
            yield f"{one.source}, stream {one.stream}: {number(one.behind)} behind"
            rows = [
                (
                    line.partition.topic,
                    str(line.partition.id),
                    str(line.offset),
                    number(line.latest),
                    number(line.behind),
                    line.remark or "",
                )
                for line in one.partitions
            ]
            yield from table([head, *rows], indent="  ")


@click.command("lag")
@kept_target_argument
@server_option
@streams_option
@json_flag
@click.pass_obj
def lag_command(
    printer: Printer,
    /,
    *,
    target: str | None,
    server: str | None,
    streams: Sequence[str],
) -> None:
    """Tell how far a query, or a group, is behind its streams, by partition.

    Counted are offsets from where the next batch begins to the latest. A partition
    that is new counts from its earliest. Of the groups of a server, those count that
    read the stream.
    """
    located = locate_kept(target, server, streams)
    positions = _positions(located)
    if server is not None:
        positions = _reading(located, positions)
    if located.groups is not None and len(located.definitions) == 1:
        # Groups of one folder may all read one stream.
        located = replace(located, definitions=located.definitions * len(positions))
    with opened(printer, located, len(positions)) as sources:
        pairs = zip(positions, sources, strict=True)
        found = [
            _source_lag(title, source.config.name, measure_lag(position, source))
            for (title, position), source in pairs
        ]
    printer.show(Lag(located.folder, total(one.behind for one in found), found))


def _reading(
    located: Located, positions: Sequence[tuple[str, Position]]
) -> list[tuple[str, Position]]:
    """The positions of groups that read the stream.

    Raises:
        MisuseError: misuse; there is none.
    """
    with open_admin(located.definitions[0]) as admin:
        covers = admin.metadata.covers
        found = [one for one in positions if any(covers(p.topic) for p in one[1])]
    if not found:
        msg = f"{located.folder}: no checkpoint is of the stream"
        raise MisuseError(msg, remedy="`checkpoint show --server` shows all of them")
    return found


def _positions(located: Located) -> list[tuple[str, Position]]:
    """What is not processed yet begins here, with the name of each source."""
    if located.groups is not None:
        groups = located.groups.items()
        return [(f"group {name}", merged(instances)) for name, instances in groups]
    query = located.asked()
    positions = query.positions()
    if positions is None:
        msg = f"{located.folder}: no batch was planned, so there is no position"
        raise PositionRefused(msg, remedy="`checkpoint next` tells where it begins")
    names = [source.name for source in query.batch(query.planned[-1]).sources]
    titles = [source_title(index, name) for index, name in enumerate(names)]
    return list(zip(titles, positions, strict=True))


def _source_lag(title: str, stream: str, lags: Sequence[PartitionLag]) -> SourceLag:
    return SourceLag(title, stream, total(lag.behind for lag in lags), lags)


@dataclass(frozen=True, slots=True)
class SourceMoves:
    """How far one source has moved."""

    source: str
    partitions: Sequence[Moved]


@dataclass(frozen=True, slots=True)
class Difference(Result):
    """The answer of ``checkpoint diff``."""

    before: str
    after: str
    equal: bool
    sources: list[SourceMoves]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield f"from {self.before}"
        yield f"to   {self.after}"
        if self.equal:
            yield "no difference"
            return
        head = ("TOPIC", "PARTITION", "FROM", "TO", "MOVED", "REMARK")
        for one in self.sources:
            yield ""
            yield f"{one.source}:"
            rows = [
                (
                    line.partition.topic,
                    str(line.partition.id),
                    number(line.before, ""),
                    number(line.after, ""),
                    "" if line.offsets is None else f"{line.offsets:+d}",
                    line.remark or "",
                )
                for line in one.partitions
            ]
            yield from table([head, *rows], indent="  ")


@click.command("diff")
@target_argument
@click.argument("other", metavar="[FILE-or-DIR]", required=False)
@click.option(
    "--batches",
    type=(click.IntRange(min=0), click.IntRange(min=0)),
    metavar="FROM TO",
    help="Compare two batches of one checkpoint, as they were planned.",
)
@json_flag
@click.pass_obj
def diff_command(
    printer: Printer,
    /,
    *,
    target: str,
    other: str | None,
    batches: tuple[int, int] | None,
) -> None:
    """Compare two checkpoints, or two batches of one, by partition.

    A checkpoint is where its next batch begins; with --batches it is where a batch
    ends.
    """
    if (other is None) == (batches is None):
        msg = "two checkpoints, or one and --batches, are compared"
        raise MisuseError(msg, remedy="give one of these")
    if batches is not None:
        sides = [_batch_side(target, number) for number in batches]
    else:
        assert other is not None
        sides = [(one, dict(_positions(locate(one)))) for one in (target, other)]
    printer.show(_difference(*sides))


def _batch_side(target: str, batch: int) -> tuple[str, dict[str, Position]]:
    query = locate(target).asked()
    found = {
        source_title(index, source.name): source.position
        for index, source in enumerate(query.batch(batch).sources)
    }
    return f"{target}, batch {batch}", found


def _difference(
    before: tuple[str, dict[str, Position]], after: tuple[str, dict[str, Position]]
) -> Difference:
    (before_name, old), (after_name, new) = before, after
    if list(old) != list(new):
        msg = f"{before_name} is of {', '.join(old)}; {after_name} of {', '.join(new)}"
        raise MisuseError(msg, remedy="compare checkpoints of one query")
    moves = [SourceMoves(title, differences(old[title], new[title])) for title in old]
    return Difference(before_name, after_name, old == new, moves)
