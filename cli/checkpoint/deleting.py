"""``checkpoint delete``: of groups whose checkpoints a server keeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from streamfactory.cli.checkpoint.locating import locate_kept
from streamfactory.cli.parameters import json_flag, one_definition
from streamfactory.cli.results import Result, count
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import deleting_options, may_delete
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.cli.printing import Printer


@dataclass(frozen=True, slots=True)
class DeletedGroup(Result):
    """The answer of ``checkpoint delete``."""

    group: str
    outcome: str
    """``done``, ``dry-run`` or ``declined``."""
    checkpoints: int

    def lines(self) -> Sequence[str]:
        """The answer as text."""
        what = count(self.checkpoints, "checkpoint")
        text = {
            "done": f"deleted, with {what}",
            "dry-run": f"would be deleted, with {what}",
            "declined": "nothing was done",
        }
        return [f"group {self.group}: {text[self.outcome]}"]


@click.command("delete")
@click.argument("group", metavar="GROUP")
@click.option(
    "--server",
    metavar="NAME-OR-FILE",
    required=True,
    help="A stream whose server keeps the checkpoints of the group.",
)
@deleting_options
@json_flag
@click.pass_obj
def delete_command(
    printer: Printer, /, *, group: str, server: str, yes: bool, dry_run: bool
) -> Status:
    """Delete the checkpoints of a group that a server keeps.

    Stop the members of the group first: one that runs saves its position again. The
    next one begins as its options say. Checkpoints in files are deleted as files.
    """
    located = locate_kept(group, server)
    answer = DeletedGroup(group, "dry-run", len((located.groups or {})[group]))
    if not dry_run:
        outcome = "declined"
        if may_delete(printer, answer.lines(), yes=yes):
            with open_admin(one_definition(server, {})) as admin:
                admin.checkpoints().delete(group)
            outcome = "done"
        answer = replace(answer, outcome=outcome)
    printer.show(answer)
    return Status.INTERRUPTED if answer.outcome == "declined" else Status.FINE
