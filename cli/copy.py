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
from streamfactory.cli.results import Result, count, lost_lines
from streamfactory.cli.status import Status
from streamfactory.spi import StreamError
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer
    from streamfactory.spi import Verdict
    from streamfactory.transfer.copying import Copied


@dataclass(frozen=True, slots=True)
class CopyAnswer(Result):
    """The answer of ``copy``."""

    source: str
    sink: str
    writer: str
    done: Copied
    seconds: float
    rows_per_second: int
    created: bool
    """Whether the sink's topic was made."""
    guarantee: Verdict

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        done = self.done
        told = f"{count(done.rows, 'row')} in {count(done.epochs, 'epoch')}"
        speed = f"{self.seconds:.2f} s, {self.rows_per_second} rows/s"
        yield f"{self.source} to {self.sink}: {told}, {speed}"
        offsets = json.loads(done.position.to_json())["offsets"]
        yield f"position: {json.dumps(offsets, sort_keys=True)}"
        yield from lost_lines(done.losses)
        if not done.complete:
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
        seconds = round(progress.seconds, 3)
        speed = rate(done.rows, progress.seconds)
        ends = (copy.source_name, copy.sink_name, copy.writer_id)
        printer.show(
            CopyAnswer(*ends, done, seconds, speed, copy.created, copy.guarantee)
        )
    return Status.FINE if done.complete or follow else Status.INTERRUPTED
