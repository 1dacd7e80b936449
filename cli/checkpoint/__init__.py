"""``checkpoint``: where queries and groups are, without Spark or Java."""

from __future__ import annotations

import click

from streamfactory.cli.checkpoint.comparing import diff_command, lag_command
from streamfactory.cli.checkpoint.deleting import delete_command
from streamfactory.cli.checkpoint.planning import next_command
from streamfactory.cli.checkpoint.showing import show_command


class _AsGiven(click.Group):
    """Commands in their own order."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """The names, in the order of the help."""
        return list(self.commands)


@click.group(
    "checkpoint",
    cls=_AsGiven,
    commands=[show_command, lag_command, diff_command, next_command, delete_command],
)
def checkpoint_command() -> None:
    """Look at checkpoints of pipelines, Spark queries and groups."""
