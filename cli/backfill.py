"""``backfill``: what a copy skipped to be on time."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.copy import run_copy
from streamfactory.cli.metrics_endpoint import telemetry_option
from streamfactory.cli.parameters import (
    class_paths_flag,
    copied_streams,
    json_flag,
    log_format_option,
)
from streamfactory.cli.results import count, skipped_lines
from streamfactory.cli.status import Status
from streamfactory.spark.pipelines.detection import pipeline_path
from streamfactory.transfer.copies import open_copy
from streamfactory.transfer.skipping import copy_writer, open_ranges
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.plain import plain
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spi import Skipped
    from streamfactory.wiring.config.definition import StreamDefinition


@click.command("backfill")
@click.option("--sql", metavar="QUERY", help="As that of the copy.")
@click.option("--where", metavar="CONDITION", help="As that of the copy.")
@click.option(
    "--writer", metavar="ID", help="Writer id of the copy, if it was given one."
)
@click.option("--list", "lists", is_flag=True, help="Print what would be read.")
@partial(copied_streams, or_pipeline=True)
@class_paths_flag
@telemetry_option
@log_format_option
@json_flag
@click.pass_obj
def backfill_command(
    printer: Printer,
    /,
    *,
    source: StreamDefinition | None,
    sink: StreamDefinition | None,
    pipeline: str | None,
    writer: str | None,
    lists: bool,
    opentelemetry: bool,
    **given: Any,
) -> Status:
    """Copy what `copy --follow` skipped to be on time: see fresh.within.millis.

    Takes the arguments of the copy, or the file or name of a pipeline whose engine is
    datafusion. Writes as a writer of its own, while the copy
    runs or later: each row once over both, through kills of both. Ends when nothing is
    left; the same command continues. Of two at once, the earlier one is fenced. Ranges
    that the source no longer has are losses, by out.of.range.
    """
    if pipeline is not None:
        if writer or given["sql"] or given["where"]:
            msg = "--sql, --where and --writer are those of a copy: FROM and TO."
            raise click.UsageError(msg)
        allowed = given["allow_class_paths"]
        return _of_pipeline(printer, pipeline, allowed, opentelemetry, lists=lists)
    assert source is not None
    assert sink is not None
    if lists:
        return _list(printer, source, sink, writer, given["allow_class_paths"])
    copy = open_copy(
        source, sink, writer_id=writer, create=False, backfill=True, **given
    )
    return run_copy(printer, copy, opentelemetry=opentelemetry)


def _list(
    printer: Printer,
    source: StreamDefinition,
    sink: StreamDefinition,
    writer: str | None,
    allow_class_paths: bool,
) -> Status:
    writer = writer or copy_writer(source.name, sink.name)
    with Sink(load(sink, "write", allow_class_paths=allow_class_paths)) as opened:
        ranges = open_ranges(opened, writer)
    return _show(printer, writer, ranges)


def _of_pipeline(
    printer: Printer,
    pipeline: str,
    allowed: bool,
    opentelemetry: bool,
    *,
    lists: bool,
) -> Status:
    # Imported here: a copy needs nothing of pipelines.
    from streamfactory.spark.pipelines.rowwise.ends import open_backfill, skipped_by

    path = Path(pipeline_path(pipeline))
    if lists:
        return _show(printer, *skipped_by(path, allow_class_paths=allowed))
    copy = open_backfill(path, allow_class_paths=allowed)
    return run_copy(printer, copy, opentelemetry=opentelemetry)


def _show(printer: Printer, writer: str, ranges: Sequence[Skipped]) -> Status:
    total = sum(one.size for one in ranges)
    document = {"writer": writer, "offsets": total, "ranges": plain(ranges)}
    lines = [*skipped_lines(ranges), f"to read: {count(total, 'offset')}"]
    printer.show(document, lines)
    return Status.FINE
