"""``checkpoint lag`` and ``checkpoint diff``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.checkpoint.arguments import (
    kept_target_argument,
    server_option,
    source_title,
    streams_option,
    target_argument,
)
from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import number, table
from streamfactory.spark.checkpoints import differences
from streamfactory.spark.locating import locate, locate_kept, opened
from streamfactory.spi import MisuseError
from streamfactory.wiring.core.plain import total
from streamfactory.wiring.reading.lag import lag_text, measure_lag
from streamfactory.wiring.streams.checkpoints import merged
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.checkpoints import Moved
    from streamfactory.spark.locating import Located
    from streamfactory.spi import Position
    from streamfactory.wiring.reading.lag import PartitionLag

Document = dict[str, Any]


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
    """Show the lag of a query, or of groups, by partition.

    The lag is the number of messages from the start of the next batch to the latest
    offset; of a table also the number of commits. A new partition counts from its
    earliest offset. With --server, only groups that read the stream are shown.
    """
    located = locate_kept(target, server, streams)
    positions = _positions(located)
    if server is not None:
        positions = _reading(located, positions)
    if located.groups is not None and len(located.definitions) == 1:
        # All groups of a folder may read one stream.
        located = replace(located, definitions=located.definitions * len(positions))
    with opened(located, len(positions), printer.also_mask) as sources:
        pairs = zip(positions, sources, strict=True)
        found = [
            _lag(title, source.config.name, measure_lag(position, source))
            for (title, position), source in pairs
        ]
    document = {
        "checkpoint": located.folder,
        "behind": total(one["behind"] for one in found),
        "sources": found,
    }
    printer.show(document, _lag_lines(document))


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
    """The start of the next batch, by the title of each source."""
    if located.groups is not None:
        groups = located.groups.items()
        return [(f"group {name}", merged(instances)) for name, instances in groups]
    query, positions = located.asked(), located.positions()
    if query.planned:
        names = [source.name for source in query.batch(query.planned[-1]).sources]
    else:
        names = [] if located.record is None else [*located.record.sources]
    titles = [source_title(index, name) for index, name in enumerate(names)]
    return list(zip(titles, positions, strict=True))


def _lag(title: str, stream: str, lags: Sequence[PartitionLag]) -> Document:
    return {
        "source": title,
        "stream": stream,
        "behind": total(lag.behind for lag in lags),
        "commits": total(lag.commits for lag in lags),
        "partitions": lags,
    }


def _lag_lines(document: Document) -> Iterator[str]:
    yield f"{document['checkpoint']}: {number(document['behind'])} behind"
    for one in document["sources"]:
        yield ""
        behind = lag_text(one["behind"], one["commits"])
        yield f"{one['source']}, stream {one['stream']}: {behind}"
        yield from partition_lines(one["partitions"])


def partition_lines(lags: Sequence[PartitionLag]) -> Iterator[str]:
    """The lag of partitions as a table."""
    shown = any(lag.commits is not None for lag in lags)
    commits = ["COMMITS"] if shown else []
    head = ("TOPIC", "PARTITION", "OFFSET", "LATEST", "BEHIND", *commits, "REMARK")
    rows = [
        (
            lag.partition.topic,
            str(lag.partition.id),
            str(lag.offset),
            number(lag.latest),
            number(lag.behind),
            *([number(lag.commits)] if shown else []),
            lag.remarks,
        )
        for lag in lags
    ]
    return table([head, *rows], indent="  ")


@click.command("diff")
@target_argument
@click.argument("other", metavar="[FILE-or-DIR]", required=False)
@click.option(
    "--batches",
    type=(click.IntRange(min=0), click.IntRange(min=0)),
    metavar="FROM TO",
    help="Compare two planned batches of one checkpoint.",
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

    Compares the positions at which the next batches start; with --batches, those at
    which the two batches end.
    """
    if (other is None) == (batches is None):
        msg = "nothing to compare with"
        raise MisuseError(msg, remedy="give two checkpoints, or one and --batches")
    if batches is not None:
        sides = [_batch_side(target, number) for number in batches]
    else:
        assert other is not None
        sides = [(one, dict(_positions(locate(one)))) for one in (target, other)]
    document = _difference(*sides)
    printer.show(document, _difference_lines(document))


def _batch_side(target: str, batch: int) -> tuple[str, dict[str, Position]]:
    query = locate(target).asked()
    found = {
        source_title(index, source.name): source.position
        for index, source in enumerate(query.batch(batch).sources)
    }
    return f"{target}, batch {batch}", found


def _difference(
    before: tuple[str, dict[str, Position]], after: tuple[str, dict[str, Position]]
) -> Document:
    (before_name, old), (after_name, new) = before, after
    if list(old) != list(new):
        msg = f"{before_name} is of {', '.join(old)}; {after_name} of {', '.join(new)}"
        raise MisuseError(msg, remedy="compare checkpoints of one query")
    return {
        "before": before_name,
        "after": after_name,
        "equal": old == new,
        "sources": [
            {"source": title, "partitions": differences(old[title], new[title])}
            for title in old
        ],
    }


def _difference_lines(document: Document) -> Iterator[str]:
    yield f"from {document['before']}"
    yield f"to   {document['after']}"
    if document["equal"]:
        yield "no difference"
        return
    for one in document["sources"]:
        yield ""
        yield f"{one['source']}:"
        yield from moved_lines(one["partitions"])


def moved_lines(moves: Sequence[Moved], new: str = "") -> Iterator[str]:
    """The differences of two positions as a table.

    Args:
        moves: By partition.
        new: What is shown for a partition that the first position does not have.
    """
    head = ("TOPIC", "PARTITION", "FROM", "TO", "MOVED", "REMARK")
    rows = [
        (
            move.partition.topic,
            str(move.partition.id),
            number(move.before, new),
            number(move.after, ""),
            "" if move.offsets is None else f"{move.offsets:+d}",
            move.remark or "",
        )
        for move in moves
    ]
    return table([head, *rows], indent="  ")
