"""``tail``: the rows of a stream as they arrive."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click
import pyarrow as pa

from streamfactory.cli.draining import draining
from streamfactory.cli.parameters import (
    Overrides,
    class_paths_flag,
    one_definition,
    set_option,
)
from streamfactory.cli.positions import read_start
from streamfactory.cli.printing import JsonPrinter
from streamfactory.cli.rows import Table
from streamfactory.cli.status import Status
from streamfactory.engines.search.browsing import Browser, Limits
from streamfactory.engines.search.outputs import FORMATS, RowWriter
from streamfactory.engines.search.row_filter import RowFilter
from streamfactory.spi import TopicNotFound
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.guard import looking_once
from streamfactory.wiring.reading.following import all_ended, read_from
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.receiving.embedded import receive_embedded

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.engines.search.browsing import Matches
    from streamfactory.spi import MessageBatch, Partition, Position
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.reading.rotation import Rotation
    from streamfactory.wiring.reading.starts import Start

_TURN: Final = 0.2
"""Maximum seconds of one fetch, and so until a signal is handled."""
_LAST: Final = Limits(rows=10_000_000, size=256 << 20, seconds=60.0)
"""What looking for the last messages may cost."""
_WITH_METADATA: Final = {"metadata.columns": "true", "includeHeaders": "true"}


def _columns(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        msg = "wanted names separated by commas."
        raise click.BadParameter(msg, context, parameter)
    return names


@click.command("tail")
@click.argument("target", metavar="NAME-OR-FILE")
@click.option(
    "--from",
    "start",
    metavar="START",
    callback=read_start,
    help="earliest, latest, a time, a period before now such as 2h, or a position.",
)
@click.option(
    "-n",
    "back",
    type=click.IntRange(min=0),
    metavar="ROWS",
    help="Begin with the last messages, so many of all partitions together.",
)
@click.option(
    "--no-follow", is_flag=True, help="End at the last row that the stream has now."
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="ID",
    help="Read only this partition. Repeatable.",
)
@click.option(
    "--columns",
    metavar="NAMES",
    callback=_columns,
    help="Show these columns, separated by commas.",
)
@click.option(
    "--where",
    metavar="SQL",
    help="Only rows for which this expression of DuckDB is true, such as "
    "\"price > 5 AND _key LIKE 'a%'\".",
)
@click.option(
    "--output",
    "format",
    type=click.Choice(FORMATS),
    help="Print rows in this format instead of a table.",
)
@set_option
@class_paths_flag
@click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    help="Print one JSON object per row; errors too.",
)
@click.pass_obj
def tail_command(
    printer: Printer,
    *,
    target: str,
    start: Start | None,
    back: int | None,
    no_follow: bool,
    partitions: Sequence[int],
    columns: tuple[str, ...] | None,
    where: str | None,
    format: str | None,
    overrides: Overrides,
    allow_class_paths: bool,
) -> Status:
    """Show the rows of a stream as they arrive.

    Starts at the latest offset by default, with --no-follow at the earliest. Consumes
    and commits nothing. Losses are reported on standard error. With --json, prints one
    object per line. With -n, messages are counted by time where they have times, else
    by partition and offset, and with --where those that match.
    """
    if start is not None and back is not None:
        msg = "--from and -n exclude each other."
        raise click.UsageError(msg)
    if isinstance(printer, JsonPrinter):
        format = format or "json"
    wide = bool(where or back)
    definition = one_definition(target, overrides)
    configured, read = _configurations(definition, wide, allow_class_paths)
    printer.mask = configured.config.mask
    with ExitStack() as stack:
        if no_follow:
            stack.enter_context(looking_once())
        source = _opened(configured, read, None if wide else columns, stack)
        _refuse_unknown(source, partitions)

        def is_mine(partition: Partition) -> bool:
            return not partitions or partition.id in partitions

        matches: Matches | None = None
        if where:
            matches = stack.enter_context(RowFilter(where, source.schema)).matches
        rotation = read_from(
            source,
            start=_last(printer, source, back, matches, is_mine) if back else start,
            default="earliest" if no_follow and back is None else "latest",
            follow=not no_follow,
            mine=is_mine,
        )
        stack.callback(rotation.close)
        names = _shown(configured, source, columns)
        schema = pa.schema([source.schema.field(name) for name in names])
        show = _shower(schema, format, stack)
        rows = _Rows(source, rotation, matches, names, follow=not no_follow)
        # Not before: what opens a stream may wait long, and has no batch to finish.
        stop = stack.enter_context(draining())
        ended = rows.show_all(show, stop)
        if ended and not no_follow:
            printer.note("note", f"{configured.config.name}: {_end_of(rotation)}")
    return Status.FINE if ended or not no_follow else Status.INTERRUPTED


def _configurations(
    definition: StreamDefinition, wide: bool, allow_class_paths: bool
) -> tuple[Configured, Configured]:
    """The stream as it is configured, and as it is read.

    Args:
        definition: Of the stream.
        wide: Whether an expression, or the order of messages, needs columns that are
            not shown: then metadata and headers are read, too.
        allow_class_paths: Whether it may name Python objects.
    """
    configured = load(definition, "read", allow_class_paths=allow_class_paths)
    if not wide:
        return configured, configured
    definition = definition.with_overrides(_WITH_METADATA)
    return configured, load(definition, "read", allow_class_paths=allow_class_paths)


def _opened(
    configured: Configured,
    read: Configured,
    fields: tuple[str, ...] | None,
    stack: ExitStack,
) -> Source:
    """Open the source, and the receiver of a spool; the stack closes them."""
    source = Source(read, fields=fields, client_id="streamfactory-tail")
    stack.callback(source.close)
    receive_embedded(source, configured)
    return source


def _last(
    printer: Printer,
    source: Source,
    count: int,
    matches: Matches | None,
    mine: Callable[[Partition], bool],
) -> Position:
    """Where the last messages of all partitions begin."""
    infos = [one for one in source.metadata.partitions() if mine(one.partition)]
    limits = replace(_LAST, messages=count)
    page = Browser(source, limits, matches).page(infos, {}, back=True)
    if any(one.cut for one in page.searched):
        what = "not all messages were looked at: a limit of time or size was reached"
        printer.note("warning", what)
    return page.before


def _shown(
    configured: Configured, source: Source, columns: tuple[str, ...] | None
) -> list[str]:
    """The columns that are shown, of those that are read."""
    config = configured.config
    names, metadata = source.schema.names, source.metadata_columns
    hidden = set[str]() if config["includeHeaders"] else {"_headers"}
    if not (config["metadata.columns"] or config["metadata.populate"]):
        hidden = set(metadata)
    elif config["metadata.populate"]:
        hidden = set[str]()
    wanted = None if columns is None else {*columns, *metadata}
    kept = [n for n in names if n not in hidden and (wanted is None or n in wanted)]
    if columns is None:
        return kept
    # Imported here: engines import Arrow's datasets, which take a while.
    from streamfactory.engines.scans import check_columns

    check_columns(config.name, columns, names)
    return [*columns, *(name for name in kept if name not in columns)]


class _Rows:
    """The rows of a stream, in the order in which they are read."""

    def __init__(
        self,
        source: Source,
        rotation: Rotation,
        matches: Matches | None,
        names: list[str],
        *,
        follow: bool,
    ) -> None:
        self._source, self._rotation, self._follow = source, rotation, follow
        self._matches, self._names = matches, names

    def show_all(
        self, show: Callable[[pa.RecordBatch], None], stop: threading.Event
    ) -> bool:
        """Print batches until the end, or until stopped; True at the end."""
        while not stop.is_set():
            batch = self._rotation.next_batch(_TURN)
            ended = self._rotation.finished or (
                batch is None
                and self._follow
                and all_ended(self._source, self._rotation)
            )
            if batch is not None and batch.num_rows:
                rows = self._selected(batch)
                if rows.num_rows:
                    show(rows)
            if ended:
                return True
        return False

    def _selected(self, batch: MessageBatch) -> pa.RecordBatch:
        rows = batch.rows
        if self._matches is not None:
            rows = rows.filter(pa.array(self._matches(rows)))
        return rows if rows.schema.names == self._names else rows.select(self._names)


def _end_of(rotation: Rotation) -> str:
    """Why a followed stream has no more rows."""
    number = len(rotation.ends)
    which = "its partition" if number == 1 else f"all {number} partitions"
    return f"the source ended {which}"


def _shower(
    schema: pa.Schema, format: str | None, stack: ExitStack
) -> Callable[[pa.RecordBatch], None]:
    # Data is not masked: it may have the text of a reference by chance.
    if format is None:
        table = Table(schema.names)
        return lambda rows: click.echo("\n".join(table.lines(rows)))
    sink = sys.stdout.buffer
    writer = stack.enter_context(RowWriter(format, sink, schema))

    def show(rows: pa.RecordBatch) -> None:
        writer.write(rows)
        sink.flush()

    return show


def _refuse_unknown(source: Source, partitions: Sequence[int]) -> None:
    there = {info.partition.id for info in source.metadata.partitions()}
    unknown = sorted(set(partitions) - there)
    if unknown:
        have = ", ".join(map(str, sorted(there)))
        msg = f"partition {unknown[0]} does not exist"
        raise TopicNotFound(
            msg, stream=source.config.name, remedy=f"name one of {have}"
        )
