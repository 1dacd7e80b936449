"""``copy``: one stream into another."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.draining import Progress, draining, rate
from streamfactory.cli.parameters import (
    class_paths_flag,
    json_flag,
    one_definition,
    overrides_of,
)
from streamfactory.cli.results import Result, count
from streamfactory.cli.status import Status
from streamfactory.spi import StreamError
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer
    from streamfactory.transfer.copying import Copied, Copy


@dataclass(frozen=True, slots=True)
class CopyAnswer(Result):
    """The answer of ``copy``."""

    source: str
    sink: str
    writer: str
    rows: int
    epochs: int
    seconds: float
    rows_per_second: int
    complete: bool
    created: bool
    """Whether the sink's topic was made."""
    position: dict[str, Any]
    """Next offset of each partition of the source, as it is committed."""
    losses: list[dict[str, Any]]
    guarantee: str
    reasons: list[str]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        told = f"{count(self.rows, 'row')} in {count(self.epochs, 'epoch')}"
        speed = f"{self.seconds:.2f} s, {self.rows_per_second} rows/s"
        yield f"{self.source} to {self.sink}: {told}, {speed}"
        yield f"position: {json.dumps(self.position['offsets'], sort_keys=True)}"
        for loss in self.losses:
            until = "?" if loss["to"] is None else loss["to"]
            where = f"{loss['partition']}, {loss['from']} to {until}"
            yield f"lost: {where} ({loss['cause']})"
        if not self.complete:
            yield "stopped before the end: the same command goes on from there"


@click.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("sink", metavar="TO")
@click.option("--follow", is_flag=True, help="Go on for ever, with what comes later.")
@click.option(
    "--writer", metavar="ID", help="Who writes; else a name made of both streams'."
)
@click.option(
    "--checkpoint",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Keep positions there too, for a TO that remembers none.",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Partitions of a topic that is created; else as many as FROM has.",
)
@click.option("--no-create", is_flag=True, help="Fail where the topic is not there.")
@click.option(
    "--from-set",
    multiple=True,
    metavar="KEY=VALUE",
    callback=overrides_of,
    help="Replace or add a property of FROM; may be given several times.",
)
@click.option(
    "--to-set",
    multiple=True,
    metavar="KEY=VALUE",
    callback=overrides_of,
    help="Likewise, of TO.",
)
@class_paths_flag
@json_flag
@click.pass_obj
def copy_command(
    printer: Printer,
    /,
    *,
    source: str,
    sink: str,
    follow: bool,
    writer: str | None,
    checkpoint: Path | None,
    no_create: bool,
    from_set: dict[str, str],
    to_set: dict[str, str],
    **given: Any,
) -> Status:
    """Copy the stream FROM into the stream TO.

    Until caught up with what FROM holds now; exactly once where both ends allow it:
    run again, it goes on where TO stands. FROM and TO are NAME-OR-FILE. SIGINT and
    SIGTERM finish the epoch; a second one stops at once.
    """
    copy = open_copy(
        one_definition(source, from_set),
        one_definition(sink, to_set),
        writer_id=writer,
        checkpoints=None if checkpoint is None else FileCheckpointStore(checkpoint),
        create=not no_create,
        **given,
    )
    with copy, draining() as stop:
        printer.mask = copy.mask
        printer.note("note", f"writer: {copy.writer_id}")
        printer.note("note", f"guarantee: {copy.guarantee}")
        progress = Progress(printer, lambda: None)
        try:
            done = copy.run(stop, follow=follow, tell=progress.tell)
        except StreamError:
            progress.wipe()
            if copy.rows:
                told = f"{count(copy.rows, 'row')} were committed before"
                printer.note("note", f"{told}; the same command goes on behind them")
            raise
        progress.wipe()
        printer.show(_answer(copy, done, progress.seconds))
    return Status.FINE if done.complete or follow else Status.INTERRUPTED


def _answer(copy: Copy, done: Copied, seconds: float) -> CopyAnswer:
    return CopyAnswer(
        source=copy.source_name,
        sink=copy.sink_name,
        writer=copy.writer_id,
        rows=done.rows,
        epochs=done.epochs,
        seconds=round(seconds, 3),
        rows_per_second=rate(done.rows, seconds),
        complete=done.complete,
        created=copy.created,
        position=json.loads(done.position.to_json()),
        losses=[
            {
                "partition": str(loss.partition),
                "from": loss.start,
                "to": loss.end,
                "cause": loss.cause,
            }
            for loss in done.losses
        ],
        guarantee=str(copy.guarantee.guarantee),
        reasons=list(copy.guarantee.reasons),
    )
