"""``topics export``: a range of a topic as plain files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.draining import Progress, draining
from streamfactory.cli.parameters import one_definition
from streamfactory.cli.results import Result, count, lost_lines, plain
from streamfactory.cli.topics.arguments import (
    place_options,
    read_marks,
    target_argument,
)
from streamfactory.transfer.exporting import open_export
from streamfactory.transfer.outputs import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spi import Loss, Position
    from streamfactory.transfer.exporting import Lane
    from streamfactory.wiring.reading.position_arguments import Marks


@dataclass(frozen=True, slots=True)
class Exportation(Result):
    """The answer of ``topics export``."""

    topic: str
    files: Sequence[Path]
    rows: int
    bytes: int
    seconds: float
    partitions: list[dict[str, int]]
    position: Position
    """Where reading came to; --from takes it."""
    losses: Sequence[Loss]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        size = f"{count(self.bytes, 'byte')} in {count(len(self.files), 'file')}"
        yield f"{self.topic}: {count(self.rows, 'row')}, {size}, {self.seconds:.2f} s"
        yield from lost_lines(self.losses)
        yield f"position: {json.dumps(json.loads(self.position.to_json())['offsets'])}"


@click.command("export")
@target_argument
@click.argument("output", metavar="OUTPUT", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "start",
    multiple=True,
    metavar="PLACE",
    callback=read_marks,
    help="Where to begin: earliest, an offset, a time, a period before now such as "
    "2h, or a position; with PARTITION= in front for one partition, several times.",
)
@click.option(
    "--to",
    "end",
    multiple=True,
    metavar="PLACE",
    callback=read_marks,
    help="Where to end, likewise; latest, where nothing is said. Exclusive.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="ID",
    help="This partition only; may be given several times.",
)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Else what OUTPUT ends in says it.",
)
@click.option(
    "--by-partition",
    is_flag=True,
    help="OUTPUT is a new folder, with one file for each partition.",
)
@click.option("--force", is_flag=True, help="Replace the file OUTPUT.")
@place_options
@click.pass_obj
def export_command(
    printer: Printer,
    /,
    *,
    target: str,
    output: Path,
    start: Marks | None,
    end: Marks | None,
    partitions: Sequence[int],
    overrides: dict[str, str],
    **given: Any,
) -> None:
    """Write a range of a topic to the Parquet or Arrow file OUTPUT.

    Rows come by partition, and by offset in it. The file appears when it is whole;
    what is there already is refused without --force. Nothing is committed.
    """
    with (
        open_export(
            one_definition(target, overrides),
            output,
            start="earliest" if start is None else start,
            end="latest" if end is None else end,
            partitions=frozenset(partitions),
            **given,
        ) as export,
        draining() as stop,
    ):
        printer.mask = export.config.mask
        progress = Progress(printer, lambda: None)
        try:
            done = export.run(stop, tell=progress.tell)
        finally:
            progress.wipe()
        if done is None:
            raise click.Abort
        printer.show(
            Exportation(
                export.config.topic,
                done.files,
                done.rows,
                done.size,
                round(progress.seconds, 3),
                [_of_topic(lane) for lane in done.lanes],
                done.position,
                done.losses,
            )
        )


def _of_topic(lane: Lane) -> dict[str, int]:
    """A partition whose topic is said already."""
    return {key: value for key, value in plain(lane).items() if key != "topic"}
