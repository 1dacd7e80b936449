"""``checkpoint``: checkpoints of queries and groups, without Spark or Java."""

from __future__ import annotations

import click

from streamfactory.cli.checkpoint.comparing import diff_command, lag_command
from streamfactory.cli.checkpoint.deleting import delete_command
from streamfactory.cli.checkpoint.planning import next_command
from streamfactory.cli.checkpoint.rewinding import rewind_command
from streamfactory.cli.checkpoint.showing import show_command
from streamfactory.cli.parameters import OrderedGroup


@click.group(
    "checkpoint",
    cls=OrderedGroup,
    commands=[
        show_command,
        lag_command,
        diff_command,
        next_command,
        rewind_command,
        delete_command,
    ],
)
def checkpoint_command() -> None:
    """Inspect and change checkpoints of pipelines, Spark queries and groups."""
