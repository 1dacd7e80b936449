"""What the commands of ``topics`` share: arguments, places, and asking first."""

from __future__ import annotations

import json
import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from streamfactory.cli.parameters import (
    class_paths_flag,
    json_flag,
    one_definition,
    set_option,
)
from streamfactory.spi import MisuseError, Position, PositionRefused
from streamfactory.wiring.options.types import RESET, Ago
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.reading.position_arguments import Mark, Marks
    from streamfactory.wiring.topics.admin import Admin

C = TypeVar("C", bound="Callable[..., Any]")
"""A command's function."""

_PAIR: Final = re.compile(r"(0|[1-9][0-9]{0,9})=(.+)", re.DOTALL)
_OFFSET: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

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
        click.option("--dry-run", is_flag=True, help="Say what would go; do nothing."),
        click.option("--yes", is_flag=True, help="Do not ask; for scripts."),
    ):
        function = option(function)
    return function


@contextmanager
def opened(
    printer: Printer,
    target: str,
    *,
    overrides: dict[str, str],
    allow_class_paths: bool,
    topic: str | None = None,
) -> Iterator[Admin]:
    """The topic that a command is about."""
    with open_admin(
        one_definition(target, overrides),
        topic=topic,
        allow_class_paths=allow_class_paths,
    ) as admin:
        printer.mask = admin.config.mask
        yield admin


def read_marks(
    context: click.Context, parameter: click.Parameter, texts: Sequence[str]
) -> Marks | None:
    """One place for all partitions, or ``PARTITION=`` one for some."""
    if not texts:
        return None
    pairs = [match for match in map(_PAIR.fullmatch, texts) if match is not None]
    if not pairs and len(texts) == 1:
        return _mark(context, parameter, texts[0])
    if len(pairs) < len(texts):
        msg = "wanted one for all partitions, or PARTITION= in front of each."
        raise click.BadParameter(msg, context, parameter)
    found: dict[int, Mark] = {}
    for pair in pairs:
        number = int(pair[1])
        if number in found:
            msg = f"partition {number} is given twice."
            raise click.BadParameter(msg, context, parameter)
        found[number] = _mark(context, parameter, pair[2])
    return found


def _mark(context: click.Context, parameter: click.Parameter, text: str) -> Mark:
    stripped = text.strip()
    if _OFFSET.fullmatch(stripped):
        return int(stripped)
    try:
        if stripped.startswith("{"):
            return _position(stripped)
        found = RESET.parse(stripped)
    except PositionRefused as error:
        msg = f"{error.what}."
        raise click.BadParameter(msg, context, parameter) from error
    except ValueError as error:
        msg = (
            f"{text!r} is no offset, earliest or latest, time such as "
            "2022-08-09T12:31:38Z, period before now such as 2d, or position."
        )
        raise click.BadParameter(msg, context, parameter) from error
    if isinstance(found, Ago):
        return datetime.now(UTC) - timedelta(milliseconds=found.millis)
    if isinstance(found, int):
        return _EPOCH + timedelta(milliseconds=found)
    return str(found)


def _position(text: str) -> Position:
    """A position as commands print it: with its envelope, or the offsets alone."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = {"version": 1}  # let it be refused in its own words
    if isinstance(body, dict) and "version" not in body:
        text = json.dumps({"version": 1, "offsets": body})
    return Position.from_json(text)


def may_delete(printer: Printer, lines: Sequence[str], *, yes: bool) -> bool:
    """Whether what was said may go: because of ``--yes``, or because a person says so.

    Args:
        printer: Shows what would go, on standard error.
        lines: What would go; the first one is the question.
        yes: Whether it was said on the command line.

    Raises:
        MisuseError: misuse; there is nobody to ask.
    """
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        msg = f"{lines[0]}: there is no terminal to ask at, so nothing was done"
        raise MisuseError(msg, remedy="look with --dry-run, then give --yes")
    for line in lines:
        printer.note("note", line)
    return click.confirm("Go on?", err=True)
