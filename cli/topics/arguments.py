"""Arguments of ``topics``, and the confirmation before rows are deleted."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from streamfactory.cli.parameters import (
    Overrides,
    class_paths_flag,
    json_flag,
    one_definition,
    set_option,
)
from streamfactory.spi import MisuseError
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.topics.admin import Admin

C = TypeVar("C", bound="Callable[..., Any]")
"""A command's function."""

target_argument = click.argument("target", metavar="NAME-OR-FILE")

topic_option = click.option(
    "--topic", metavar="TOPIC", help="Another topic of the same place."
)


def place_options(function: C) -> C:
    """``--topic`` and what every command that opens a stream has."""
    for option in (json_flag, class_paths_flag, set_option, topic_option):
        function = option(function)
    return function


def deleting_options(function: C) -> C:
    """``--yes`` and ``--dry-run``."""
    for option in (
        click.option(
            "--dry-run", is_flag=True, help="Show what would change; change nothing."
        ),
        click.option("--yes", is_flag=True, help="Do not ask; for scripts."),
    ):
        function = option(function)
    return function


@contextmanager
def opened(
    printer: Printer,
    target: str,
    *,
    overrides: Overrides,
    allow_class_paths: bool,
    topic: str | None = None,
) -> Iterator[Admin]:
    """The topic that a command operates on."""
    with open_admin(
        one_definition(target, overrides),
        topic=topic,
        allow_class_paths=allow_class_paths,
    ) as admin:
        printer.mask = admin.config.mask
        yield admin


def confirmed(printer: Printer, lines: Sequence[str], *, yes: bool) -> bool:
    """Whether the user agrees, by ``--yes`` or when asked.

    Args:
        printer: Shows the lines on standard error.
        lines: What would change; the first one is the summary.
        yes: The value of ``--yes``.

    Raises:
        MisuseError: misuse; there is no terminal to ask at.
    """
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        msg = f"{lines[0]}: there is no terminal to ask at, so nothing was done"
        raise MisuseError(msg, remedy="look with --dry-run, then give --yes")
    for line in lines:
        printer.note("note", line)
    return click.confirm("Continue?", err=True)
