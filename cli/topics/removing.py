"""``topics truncate`` and ``topics delete``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.positions import read_marks
from streamfactory.cli.recording import recorded
from streamfactory.cli.results import count, table
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import (
    confirmed,
    deleting_options,
    opened,
    place_options,
    target_argument,
)
from streamfactory.cli.topics.looking import rows_of
from streamfactory.wiring.topics.trimming import (
    apply_plan,
    held_by_checkpoints,
    held_by_groups,
    nearest,
    plan_retention,
    plan_truncation,
    retention_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer
    from streamfactory.spi import Partition
    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.topics.admin import Admin
    from streamfactory.wiring.topics.trimming import Hold, Plan

DONE, DRY_RUN, DECLINED = "done", "dry-run", "declined"

Document = dict[str, Any]


@click.command("truncate")
@target_argument
@click.option(
    "--before",
    multiple=True,
    metavar="PLACE",
    callback=read_marks,
    help="An offset, a time, a period before now such as 2d, or latest; "
    "PARTITION=PLACE for one partition. Repeatable.",
)
@click.option("--retention", is_flag=True, help="Apply the options retention.*.")
@click.option(
    "--hold",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep rows that groups with checkpoints in FOLDER have not read yet.",
)
@click.option(
    "--hold-groups",
    is_flag=True,
    help="Keep rows that groups with checkpoints on the server have not read yet.",
)
@deleting_options
@place_options
@click.pass_obj
def truncate_command(
    printer: Printer,
    /,
    *,
    target: str,
    before: Marks | None,
    retention: bool,
    hold: Path | None,
    hold_groups: bool,
    yes: bool,
    dry_run: bool,
    **where: Any,
) -> Status:
    """Delete the oldest rows: those before a place, or those beyond retention.

    Shows how many rows that is, and asks. The remaining rows keep their offsets. A
    reader whose next row was deleted reports a loss.
    """
    if (before is None) != retention:
        msg = "Give one of --before and --retention."
        raise click.UsageError(msg)
    with opened(printer, target, **where) as admin:
        held = _held(printer, admin, hold, groups=hold_groups)
        policy = None if before is not None else retention_of(admin)
        plan = (
            plan_retention(admin, held)
            if before is None
            else plan_truncation(admin, before, held)
        )
        answer = _document(admin, plan, policy, DRY_RUN)
        if not dry_run:
            outcome = DONE
            if plan.before or plan.unforeseen:
                question = [line.strip() for line in _lines(answer)]
                if confirmed(printer, question, yes=yes):
                    what = f"truncated by {plan.rows} rows"
                    with recorded("edit", "topic", admin.topic, what):
                        plan = apply_plan(admin, plan, held)
                else:
                    outcome = DECLINED
            answer = _document(admin, plan, policy, outcome)
        printer.show(answer, _lines(answer))
    return Status.INTERRUPTED if answer["outcome"] == DECLINED else Status.FINE


def _held(
    printer: Printer, admin: Admin, folder: Path | None, *, groups: bool
) -> dict[Partition, Hold]:
    """The first offsets that groups have not read, as the options name them."""
    holds = {}
    if folder is not None:
        holds[str(folder)] = held_by_checkpoints(admin, folder)
    if groups:
        holds["the server"] = held_by_groups(admin)
    for place, held in holds.items():
        if not held:
            msg = f"no checkpoint in {place} is of the topic {admin.topic!r}"
            printer.note("warning", msg)
    return nearest(*holds.values())


def _document(
    admin: Admin, plan: Plan, policy: dict[str, str] | None, outcome: str
) -> Document:
    cuts = [
        {
            "partition": cut.partition.id,
            "earliest": cut.earliest,
            "before": cut.before,
            "latest": cut.latest,
            "rows": cut.rows,
            "held_by": cut.held_by,
        }
        for cut in plan.cuts
    ]
    return {
        "topic": admin.topic,
        "outcome": outcome,
        "rows": plan.rows,
        "partitions": cuts,
        "retention": policy,
        "unforeseen": plan.unforeseen if outcome == DRY_RUN else [],
    }


def _lines(answer: Document) -> Iterator[str]:
    yield f"{answer['topic']}: {_summary(answer)}"
    for name, value in (answer["retention"] or {}).items():
        yield f"  {name}={value}"
    cuts = [cut for cut in answer["partitions"] if cut["rows"] or cut["held_by"]]
    if cuts:
        head = ("PARTITION", "FROM", "BEFORE", "ROWS", "HELD BY")
        rows = [
            (
                *(str(cut[key]) for key in ("partition", "earliest", "before", "rows")),
                cut["held_by"] or "",
            )
            for cut in cuts
        ]
        width = 5 if any(row[-1] for row in rows) else 4
        yield from table([row[:width] for row in (head, *rows)], indent="  ")


def _summary(answer: Document) -> str:
    more = " or more" if answer["unforeseen"] else ""
    rows = f"{count(answer['rows'], 'row')}{more}"
    if answer["outcome"] == DONE:
        return f"{rows} deleted"
    if answer["outcome"] == DRY_RUN:
        return f"{rows} would be deleted"
    return "nothing was done"


@click.command("delete")
@target_argument
@deleting_options
@place_options
@click.pass_obj
def delete_command(
    printer: Printer, /, *, target: str, yes: bool, dry_run: bool, **where: Any
) -> Status:
    """Delete a topic and all its rows.

    Shows how many rows it holds, and asks. Readers and writers of the topic fail
    from then on, also if a topic of the same name is created afterwards.
    """
    with opened(printer, target, **where) as admin:
        infos = admin.partitions()
        answer = {
            "topic": admin.topic,
            "outcome": DRY_RUN,
            "partitions": len(infos),
            "rows": rows_of(infos, admin.metadata),
        }
        if not dry_run:
            if confirmed(printer, _deleted(answer), yes=yes):
                seen = {info.partition: info.incarnation for info in infos}
                with recorded("edit", "topic", admin.topic, "deleted"):
                    admin.refuse_recreated(seen)
                    admin.delete()
                answer["outcome"] = DONE
            else:
                answer["outcome"] = DECLINED
        printer.show(answer, _deleted(answer))
    return Status.INTERRUPTED if answer["outcome"] == DECLINED else Status.FINE


def _deleted(answer: Document) -> list[str]:
    # Offsets: those of Kafka's transaction markers hold no message.
    rows = "an unknown number of offsets"
    if answer["rows"] is not None:
        rows = count(answer["rows"], "offset")
    what = f"{rows} in {count(answer['partitions'], 'partition')}"
    text = {
        DONE: f"deleted, with {what}",
        DRY_RUN: f"would be deleted, with {what}",
        DECLINED: "nothing was done",
    }
    return [f"{answer['topic']}: {text[answer['outcome']]}"]
