"""``checkpoint delete``: of groups whose checkpoints a server keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.parameters import json_flag, one_definition
from streamfactory.cli.recording import recorded
from streamfactory.cli.results import count
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import confirmed, deleting_options
from streamfactory.spark.locating import locate_kept
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from streamfactory.cli.printing import Printer


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

    Stop the members of the group first: a running member saves its position again. The
    next member starts as its options say. To delete checkpoints in files, delete the
    files.
    """
    located = locate_kept(group, server)
    answer = {
        "group": group,
        "outcome": "dry-run",
        "checkpoints": len((located.groups or {})[group]),
    }
    if not dry_run:
        answer["outcome"] = "declined"
        if confirmed(printer, _lines(answer | {"outcome": "dry-run"}), yes=yes):
            with (
                recorded("operate", "group", group, "deleted with its checkpoints"),
                open_admin(one_definition(server)) as admin,
            ):
                admin.checkpoints().delete(group)
            answer["outcome"] = "done"
    printer.show(answer, _lines(answer))
    declined = answer["outcome"] == "declined"
    return Status.INTERRUPTED if declined else Status.FINE


def _lines(answer: dict[str, Any]) -> list[str]:
    what = count(answer["checkpoints"], "checkpoint")
    text = {
        "done": f"deleted, with {what}",
        "dry-run": f"would be deleted, with {what}",
        "declined": "nothing was done",
    }
    return [f"group {answer['group']}: {text[answer['outcome']]}"]
