"""``checkpoint rewind``, and what it shares with ``offsets`` of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.parameters import json_flag
from streamfactory.cli.positions import read_marks
from streamfactory.cli.recording import recorded
from streamfactory.cli.results import count, number, offsets_text, table
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import confirmed, deleting_options
from streamfactory.spark.checkpoints import Place, apply_rewind, plan_rewind
from streamfactory.spark.locating import locate, opened
from streamfactory.spi import MisuseError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spark.checkpoints import Rewind, Rewound
    from streamfactory.spark.locating import Located
    from streamfactory.wiring.reading.position_arguments import Marks

Document = dict[str, Any]

force_option = click.option(
    "--force", is_flag=True, help="Change it although a run may be using it."
)


@click.command("rewind")
@click.argument("target", metavar="FILE")
@click.option(
    "--batch",
    type=click.IntRange(min=0),
    metavar="NUMBER",
    help="Read this batch and all later ones again.",
)
@click.option(
    "--to",
    "to",
    multiple=True,
    metavar="PLACE",
    callback=read_marks,
    help="An offset, earliest, latest, a time, a period before now such as 2h, or a "
    "position; PARTITION=PLACE for one partition. Repeatable.",
)
@force_option
@deleting_options
@json_flag
@click.pass_obj
def rewind_command(
    printer: Printer,
    *,
    target: str,
    batch: int | None,
    to: Marks | None,
    force: bool,
    yes: bool,
    dry_run: bool,
) -> Status:
    """Move a pipeline back to a batch, a time or a position.

    FILE is the file of the pipeline. The next run starts a new query there, with a new
    query id: exactly-once sinks write the rows again, instead of recognising them as a
    replay. Shows the offsets that are written again, and asks. Partitions that are not
    named stay where they are. Refused while a run uses the checkpoint.
    """
    if (batch is None) == (to is None):
        msg = "Give one of --batch and --to."
        raise click.UsageError(msg)
    located = locate(target)
    how = f"batch {batch}" if batch is not None else "a position"
    why = f"moved by `checkpoint rewind` to {how}"
    return rewind(
        printer, located, to, why, batch=batch, force=force, yes=yes, dry_run=dry_run
    )


def rewind(
    printer: Printer,
    located: Located,
    to: Marks | None,
    why: str,
    *,
    batch: int | None = None,
    force: bool,
    yes: bool,
    dry_run: bool,
) -> Status:
    """Plan the change of a pipeline's position, show it, and apply it if confirmed."""
    if not located.definitions:
        msg = f"{located.folder}: a folder does not name the stream of its pipeline"
        raise MisuseError(msg, remedy="give the file of the pipeline")
    place = Place.of(located.folder)
    query = located.asked()
    with opened(located, len(located.definitions), printer.also_mask) as sources:
        source = sources[0]
        plan = plan_rewind(place, located.record, query, source, to, batch=batch)
        outcome, generation = "dry-run", plan.record.generation
        document = _document(located, plan, outcome, generation)
        if not dry_run:
            outcome = "declined"
            if confirmed(printer, list(_lines(document)), yes=yes):
                with recorded(
                    "operate",
                    "pipeline",
                    plan.record.pipeline,
                    f"moved: {why}",
                    after=plan.position.to_json(),
                ):
                    after = apply_rewind(place, plan, source, why=why, force=force)
                outcome, generation = "done", after.generation
            document = _document(located, plan, outcome, generation)
        printer.show(document, _lines(document))
    return Status.INTERRUPTED if outcome == "declined" else Status.FINE


def _document(
    located: Located, plan: Rewind, outcome: str, generation: int
) -> Document:
    return {
        "checkpoint": located.folder,
        "pipeline": plan.record.pipeline,
        "outcome": outcome,
        "generation": generation,
        "again": plan.again,
        "skipped": plan.skipped,
        "unfinished_batch": plan.unfinished,
        "position": plan.position,
        "partitions": plan.partitions,
    }


def _lines(document: Document) -> Iterator[str]:
    outcome, name = document["outcome"], document["pipeline"]
    again = count(document["again"], "offset")
    skipped = f", {count(document['skipped'], 'offset')} skipped"
    what = f"{again} written again{skipped if document['skipped'] else ''}"
    text = {
        "done": f"moved, generation {document['generation']}: {what} by the next run",
        "dry-run": f"would be moved: {what}",
        "declined": "nothing was done",
    }
    yield f"{name}: {text[outcome]}"
    if document["unfinished_batch"] is not None:
        batch = document["unfinished_batch"]
        yield f"batch {batch} was planned and not finished: sinks may have its rows"
    parts: Sequence[Rewound] = document["partitions"]
    head = ("TOPIC", "PARTITION", "FROM", "TO", "AGAIN", "SKIPPED")
    rows = [
        (
            one.partition.topic,
            str(one.partition.id),
            number(one.before, "new"),
            str(one.after),
            str(one.again),
            str(one.skipped),
        )
        for one in parts
    ]
    yield from table([head, *rows], indent="  ")
    yield f"position: {offsets_text(document['position'])}"
