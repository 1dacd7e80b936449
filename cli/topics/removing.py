"""``topics truncate`` and ``topics delete``: they say what would go, and ask."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.results import Result, count, table
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import (
    deleting_options,
    may_delete,
    opened,
    place_options,
    read_marks,
    target_argument,
)
from streamfactory.cli.topics.looking import rows_of
from streamfactory.wiring.topics.trimming import (
    held_by_checkpoints,
    held_by_groups,
    nearest,
    plan_retention,
    plan_truncation,
    retention_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.spi import Partition
    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.topics.admin import Admin
    from streamfactory.wiring.topics.trimming import Hold, Plan

DONE, DRY_RUN, DECLINED = "done", "dry-run", "declined"


@dataclass(frozen=True, slots=True)
class CutLine:
    """One partition of ``topics truncate``."""

    partition: int
    earliest: int
    """As it was."""
    before: int
    """As it is, or would be."""
    latest: int | None
    rows: int
    held_by: str | None


@dataclass(frozen=True, slots=True)
class Truncated(Result):
    """The answer of ``topics truncate``."""

    topic: str
    outcome: str
    """``done``, ``dry-run`` or ``declined``."""
    rows: int
    """Which went, or would go."""
    partitions: list[CutLine]
    retention: dict[str, str] | None
    """What was applied; None where --before said it."""
    unforeseen: list[str]
    """Options that may take more than was said before."""

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield f"{self.topic}: {self._told()}"
        for name, value in (self.retention or {}).items():
            yield f"  {name}={value}"
        lines = [line for line in self.partitions if line.rows or line.held_by]
        if lines:
            head = ("PARTITION", "FROM", "BEFORE", "ROWS", "HELD BY")
            rows = [
                (
                    str(line.partition),
                    str(line.earliest),
                    str(line.before),
                    str(line.rows),
                    line.held_by or "",
                )
                for line in lines
            ]
            width = 5 if any(row[-1] for row in rows) else 4
            yield from table([row[:width] for row in (head, *rows)], indent="  ")

    def _told(self) -> str:
        more = " or more" if self.unforeseen else ""
        told = f"{count(self.rows, 'row')}{more}"
        if self.outcome == DONE:
            return f"{told} let go of"
        if self.outcome == DRY_RUN:
            return f"would let go of {told}"
        return "nothing was done"


@click.command("truncate")
@target_argument
@click.option(
    "--before",
    multiple=True,
    metavar="PLACE",
    callback=read_marks,
    help="An offset, a time, a period before now such as 2d, or latest; with "
    "PARTITION= in front for one partition, several times.",
)
@click.option("--retention", is_flag=True, help="What the options retention.* keep.")
@click.option(
    "--hold",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep what the readers whose checkpoints are there still want.",
)
@click.option(
    "--hold-groups",
    is_flag=True,
    help="Keep what the groups whose checkpoints the server keeps still want.",
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
    """Let go of the oldest rows: those before a place, or those out of retention.

    Says what would go, and asks. Offsets stay what they are; a reader that comes too
    late is told of its loss.
    """
    if (before is None) != retention:
        msg = "Give one of --before and --retention."
        raise click.UsageError(msg)
    with opened(printer, target, **where) as admin:
        held = _held(printer, admin, hold, groups=hold_groups)
        if before is None:
            plan = plan_retention(admin, held)
            policy = retention_of(admin)
        else:
            plan, policy = plan_truncation(admin, before, held), None
        answer = _planned(admin, plan, policy)
        if not dry_run:
            answer = _truncate(printer, admin, plan, answer, held, yes=yes)
        printer.show(answer)
    return Status.INTERRUPTED if answer.outcome == DECLINED else Status.FINE


def _held(
    printer: Printer, admin: Admin, folder: Path | None, *, groups: bool
) -> dict[Partition, Hold]:
    """What readers still want, as the options name them."""
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


def _planned(admin: Admin, plan: Plan, policy: dict[str, str] | None) -> Truncated:
    lines = [
        CutLine(
            cut.partition.id,
            cut.earliest,
            cut.before,
            cut.latest,
            cut.rows,
            cut.held_by,
        )
        for cut in plan.cuts
    ]
    return Truncated(
        admin.topic, DRY_RUN, plan.rows, lines, policy, list(plan.unforeseen)
    )


def _truncate(
    printer: Printer,
    admin: Admin,
    plan: Plan,
    planned: Truncated,
    held: dict[Partition, Hold],
    *,
    yes: bool,
) -> Truncated:
    """Do what was planned, if it may be done; answers what became of it."""
    if not plan.rows and not plan.unforeseen:
        return _came_to(planned, DONE, planned.partitions)
    if not may_delete(printer, _question(planned), yes=yes):
        return _came_to(planned, DECLINED, planned.partitions)
    admin.refuse_another_life({cut.partition: cut.incarnation for cut in plan.cuts})
    if plan.unforeseen:
        admin.retain({partition.id: hold.offset for partition, hold in held.items()})
    else:
        admin.truncate(plan.before)  # what was said, however long the answer took
    after = {info.partition.id: info for info in admin.partitions()}
    lines = [
        CutLine(
            line.partition,
            line.earliest,
            after[line.partition].earliest,
            after[line.partition].latest,
            after[line.partition].earliest - line.earliest,
            line.held_by,
        )
        for line in planned.partitions
        if line.partition in after
    ]
    return _came_to(planned, DONE, lines)


def _question(planned: Truncated) -> list[str]:
    first, *others = planned.lines()
    return [first, *(line.strip() for line in others)]


def _came_to(planned: Truncated, outcome: str, lines: list[CutLine]) -> Truncated:
    rows = sum(line.rows for line in lines)
    return Truncated(planned.topic, outcome, rows, lines, planned.retention, [])


@dataclass(frozen=True, slots=True)
class Deleted(Result):
    """The answer of ``topics delete``."""

    topic: str
    outcome: str
    """``done``, ``dry-run`` or ``declined``."""
    partitions: int
    rows: int | None
    """Which went, or would go; None where nobody knows."""

    def lines(self) -> Sequence[str]:
        """The answer as text."""
        held = "an unknown number of rows"
        if self.rows is not None:
            held = count(self.rows, "row")
        what = f"{held} in {count(self.partitions, 'partition')}"
        told = {
            DONE: f"deleted, with {what}",
            DRY_RUN: f"would be deleted, with {what}",
            DECLINED: "nothing was done",
        }
        return [f"{self.topic}: {told[self.outcome]}"]


@click.command("delete")
@target_argument
@deleting_options
@place_options
@click.pass_obj
def delete_command(
    printer: Printer, /, *, target: str, yes: bool, dry_run: bool, **where: Any
) -> Status:
    """Delete a topic and all that it holds.

    Says how much that is, and asks. Whoever still reads or writes it is told that it is
    gone, also when one of the same name is created afterwards.
    """
    with opened(printer, target, **where) as admin:
        infos = admin.partitions()
        held = (len(infos), rows_of(infos))
        answer = Deleted(admin.topic, DRY_RUN, *held)
        if not dry_run:
            if may_delete(printer, answer.lines(), yes=yes):
                lives = {info.partition: info.incarnation for info in infos}
                admin.refuse_another_life(lives)
                admin.delete()
                answer = Deleted(admin.topic, DONE, *held)
            else:
                answer = Deleted(admin.topic, DECLINED, *held)
        printer.show(answer)
    return Status.INTERRUPTED if answer.outcome == DECLINED else Status.FINE
