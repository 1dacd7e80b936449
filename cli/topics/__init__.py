"""``topics``: what an operator does with the topics of a place."""

from __future__ import annotations

import click

from streamfactory.cli.topics.export import export_command
from streamfactory.cli.topics.looking import list_command, show_command
from streamfactory.cli.topics.making import create_command, grow_command
from streamfactory.cli.topics.removing import delete_command, truncate_command
from streamfactory.cli.topics.upkeep import compact_command, verify_command


class _AsGiven(click.Group):
    """Commands in their own order: looking before doing."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(self.commands)


@click.group(
    "topics",
    cls=_AsGiven,
    commands=[
        list_command,
        show_command,
        create_command,
        grow_command,
        truncate_command,
        delete_command,
        compact_command,
        verify_command,
        export_command,
    ],
)
def topics_command() -> None:
    """List, make, look after, empty and export topics.

    A command takes a stream, and means its topic; --topic names another one of the same
    place. What deletes says what would go, and asks.
    """
