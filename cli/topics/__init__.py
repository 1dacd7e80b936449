"""``topics``: administration of topics."""

from __future__ import annotations

import click

from streamfactory.cli.parameters import OrderedGroup
from streamfactory.cli.topics.export import export_command
from streamfactory.cli.topics.looking import list_command, show_command
from streamfactory.cli.topics.making import create_command, grow_command
from streamfactory.cli.topics.removing import delete_command, truncate_command
from streamfactory.cli.topics.upkeep import compact_command, verify_command


@click.group(
    "topics",
    cls=OrderedGroup,
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
    """List, create, maintain, truncate, delete and export topics.

    Each command takes a stream and operates on its topic; --topic names another topic
    of the same place. Commands that delete rows show how many, and ask.
    """
