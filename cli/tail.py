"""``tail``: the rows of a stream as they arrive."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from streamfactory.cli.draining import draining
from streamfactory.cli.parameters import (
    Overrides,
    class_paths_flag,
    one_definition,
    set_option,
)
from streamfactory.cli.positions import read_start
from streamfactory.cli.printing import JsonPrinter
from streamfactory.cli.rows import Table, json_lines
from streamfactory.cli.status import Status
from streamfactory.spi import TopicNotFound
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.reading.following import all_ended, read_from
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.reading.rotation import Rotation
    from streamfactory.wiring.reading.starts import Start

_TURN = 0.2
"""Maximum seconds of one fetch, and so until a signal is handled."""


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
    help="Begin this many offsets before the end of each partition.",
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
    overrides: Overrides,
    allow_class_paths: bool,
) -> Status:
    """Show the rows of a stream as they arrive.

    Starts at the latest offset by default, with --no-follow at the earliest. Consumes
    and commits nothing. Losses are reported on standard error. With --json, prints one
    object per line.
    """
    if start is not None and back is not None:
        msg = "--from and -n exclude each other."
        raise click.UsageError(msg)
    configured = load(
        one_definition(target, overrides), "read", allow_class_paths=allow_class_paths
    )
    printer.mask = configured.config.mask
    with ExitStack() as stack:
        source = Source(configured, fields=columns, client_id="streamfactory-tail")
        stack.callback(source.close)
        if SPOOL_PATH in configured.config:
            # Imported here: streams without a spool have no receiver.
            from streamfactory.wiring.receiving.embedded import receive_embedded

            receive_embedded(source, configured)
        _refuse_unknown(source, partitions)
        rotation = read_from(
            source,
            start=start,
            default="earliest" if no_follow else "latest",
            follow=not no_follow,
            back=back,
            mine=lambda p: not partitions or p.id in partitions,
        )
        stack.callback(rotation.close)
        show = _shower(printer, source.schema)
        rows = _Rows(source, rotation, follow=not no_follow)
        # Not before: what opens a stream may wait long, and has no batch to finish.
        stop = stack.enter_context(draining())
        ended = rows.show_all(show, stop)
        if ended and not no_follow:
            printer.note("note", f"{configured.config.name}: {_end_of(rotation)}")
    return Status.FINE if ended or not no_follow else Status.INTERRUPTED


class _Rows:
    """The rows of a stream, in the order in which they are read."""

    def __init__(self, source: Source, rotation: Rotation, *, follow: bool) -> None:
        self._source, self._rotation, self._follow = source, rotation, follow

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
                show(batch.rows)
            if ended:
                return True
        return False


def _end_of(rotation: Rotation) -> str:
    """Why a followed stream has no more rows."""
    number = len(rotation.ends)
    which = "its partition" if number == 1 else f"all {number} partitions"
    return f"the source ended {which}"


def _shower(printer: Printer, schema: pa.Schema) -> Callable[[pa.RecordBatch], None]:
    table = Table(schema.names)
    lines = json_lines if isinstance(printer, JsonPrinter) else table.lines

    def show(rows: pa.RecordBatch) -> None:
        # Data is not masked: it may have the text of a reference by chance.
        click.echo("\n".join(lines(rows)))

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
