"""Arguments and titles that the commands about checkpoints share."""

from __future__ import annotations

import click

target_argument = click.argument("target", metavar="FILE-or-DIR")

kept_target_argument = click.argument(
    "target", metavar="[FILE-or-DIR-or-GROUP]", required=False
)

server_option = click.option(
    "--server",
    metavar="NAME-OR-FILE",
    help="A stream whose server stores checkpoints of groups; GROUP is one of them, "
    "all by default.",
)

streams_option = click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="NAME-OR-FILE",
    help="A stream that the query reads, in the order of its sources; not for the FILE "
    "of a pipeline. Repeatable.",
)


def source_title(index: int, name: str | None) -> str:
    """The title of a source: its name, else its number in the query."""
    return f"source {index}" if name is None else f"source {name}"
