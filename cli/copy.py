"""``copy``: one stream into another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.draining import Progress, draining, rate
from streamfactory.cli.metrics_endpoint import telemetry, telemetry_option
from streamfactory.cli.parameters import (
    class_paths_flag,
    copied_streams,
    json_flag,
    log_format_option,
)
from streamfactory.cli.pausing import paused_line
from streamfactory.cli.results import count, lost_lines, skipped_lines
from streamfactory.cli.status import Status
from streamfactory.spi import StreamError
from streamfactory.transfer.copies import open_copy
from streamfactory.transfer.skipping import copy_writer
from streamfactory.wiring.controls.states import copy_job
from streamfactory.wiring.core.plain import plain
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer
    from streamfactory.transfer.copying import Copied, Copy
    from streamfactory.wiring.config.definition import StreamDefinition


@click.command("copy")
@click.option(
    "--sql",
    metavar="QUERY",
    help="A SELECT of DataFusion from rows, for each row: filter, columns, casts.",
)
@click.option(
    "--where", metavar="CONDITION", help="Copy the rows for which this SQL is true."
)
@click.option("--follow", is_flag=True, help="Continue with new rows until stopped.")
@click.option(
    "--writer", metavar="ID", help="Writer id; by default made of both stream names."
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Store positions in FOLDER too; for a TO that stores none.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions, if the topic of TO is created; by default as FROM.",
)
@click.option("--no-create", is_flag=True, help="Fail if the topic does not exist.")
@copied_streams
@class_paths_flag
@telemetry_option
@log_format_option
@json_flag
@click.pass_obj
def copy_command(
    printer: Printer,
    /,
    *,
    source: StreamDefinition,
    sink: StreamDefinition,
    follow: bool,
    writer: str | None,
    checkpoint: Path | None,
    no_create: bool,
    opentelemetry: bool,
    **given: Any,
) -> Status:
    """Copy the stream FROM into the stream TO.

    Ends when the rows that FROM has now are copied. Exactly once if both streams allow
    it: the same command continues after the rows that TO has. FROM and TO are
    NAME-OR-FILE. SIGINT and SIGTERM finish the epoch if that takes less than a second;
    a second one stops at once.
    """
    copy = open_copy(
        source,
        sink,
        writer_id=writer,
        checkpoints=None if checkpoint is None else FileCheckpointStore(checkpoint),
        create=not no_create,
        **given,
    )
    return run_copy(printer, copy, opentelemetry=opentelemetry, follow=follow)


def run_copy(
    printer: Printer, copy: Copy, *, opentelemetry: bool, follow: bool = False
) -> Status:
    """Run a copy until its end or a signal, and print what it has done.

    Args:
        printer: Prints.
        copy: The copy; closed.
        opentelemetry: Whether metrics and traces are sent.
        follow: Whether it continues after the latest offsets.
    """
    with copy, telemetry(opentelemetry), draining() as stop:
        printer.mask = copy.mask
        printer.note("note", f"writer: {copy.writer_id}")
        printer.note("note", f"guarantee: {copy.guarantee}")
        progress = Progress(printer, lambda: None)
        try:
            done = copy.run(stop, follow=follow, on_progress=progress.report)
        except StreamError:
            progress.wipe()
            if copy.rows:
                rows = f"{count(copy.rows, 'row')} were committed before"
                printer.note("note", f"{rows}; the same command continues after them")
            raise
        progress.wipe()
        document = {
            "source": copy.source_name,
            "sink": copy.sink_name,
            "writer": copy.writer_id,
            **plain(done),
            "seconds": round(progress.seconds, 3),
            "rows_per_second": rate(done.rows, progress.seconds),
            "created": copy.created,
            **plain(copy.guarantee),
        }
        printer.show(document, _lines(document, done))
    if not done.confirmed:
        return Status.FAILED
    return Status.FINE if done.complete or follow else Status.INTERRUPTED


def _lines(document: dict[str, Any], done: Copied) -> Iterator[str]:
    rows = f"{count(done.rows, 'row')} in {count(done.epochs, 'epoch')}"
    speed = f"{document['seconds']:.2f} s, {document['rows_per_second']} rows/s"
    yield f"{document['source']} to {document['sink']}: {rows}, {speed}"
    offsets = document["position"]["offsets"]
    yield f"position: {json.dumps(offsets, sort_keys=True)}"
    yield from lost_lines(done.losses)
    yield from skipped_lines(done.skipped)
    if done.skipped:
        ends, writer = (document["source"], document["sink"]), document["writer"]
        command = f"streamfactory backfill {ends[0]} {ends[1]}"
        given = "" if writer == copy_writer(*ends) else f" --writer {writer}"
        yield f"to read what was skipped: {command}{given}"
    if done.pause is not None:
        yield paused_line(copy_job(document["writer"]), document["pause"])
    elif not done.complete:
        yield "stopped before the end: the same command continues from there"
