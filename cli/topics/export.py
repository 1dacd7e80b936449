"""``topics export``: a range of a topic as plain files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.draining import Progress, draining
from streamfactory.cli.parameters import Overrides, one_definition
from streamfactory.cli.positions import read_marks
from streamfactory.cli.results import count, lost_lines
from streamfactory.cli.topics.arguments import place_options, target_argument
from streamfactory.transfer.exporting import open_export
from streamfactory.transfer.outputs import FORMATS
from streamfactory.wiring.core.plain import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.transfer.exporting import Exported
    from streamfactory.wiring.reading.position_arguments import Marks


@click.command("export")
@target_argument
@click.argument("output", metavar="OUTPUT", type=click.Path(path_type=Path))
@click.option(
    "--from",
    "start",
    multiple=True,
    metavar="PLACE",
    callback=read_marks,
    help="First row: earliest, an offset, a time, a period before now such as 2h, or "
    "a position; PARTITION=PLACE for one partition. Repeatable.",
)
@click.option(
    "--to",
    "end",
    multiple=True,
    metavar="PLACE",
    callback=read_marks,
    help="End of the range, exclusive, in the same form; latest by default.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="ID",
    help="Only this partition. Repeatable.",
)
@click.option(
    "--format",
    type=click.Choice(FORMATS),
    help="Format of OUTPUT; by default what its name ends in.",
)
@click.option(
    "--by-partition",
    is_flag=True,
    help="OUTPUT is a new folder, with one file per partition.",
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
    overrides: Overrides,
    **given: Any,
) -> None:
    """Write a range of a topic to the Parquet or Arrow file OUTPUT.

    Rows are ordered by partition, and by offset within it. The file becomes visible
    when it is complete; an existing file is replaced only with --force. Nothing is
    committed.
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
            done = export.run(stop, on_progress=progress.report)
        finally:
            progress.wipe()
        if done is None:
            raise click.Abort
        topic, seconds = export.config.topic, round(progress.seconds, 3)
        document = plain(done)
        document["bytes"] = document.pop("size")
        for one in document["partitions"]:
            del one["topic"]  # stands at the top
        printer.show(
            {"topic": topic, "seconds": seconds, **document},
            _lines(topic, done, seconds),
        )


def _lines(topic: str, done: Exported, seconds: float) -> Iterator[str]:
    size = f"{count(done.size, 'byte')} in {count(len(done.files), 'file')}"
    yield f"{topic}: {count(done.rows, 'row')}, {size}, {seconds:.2f} s"
    yield from lost_lines(done.losses)
    yield f"position: {json.dumps(json.loads(done.position.to_json())['offsets'])}"
