"""``topics compact`` and ``topics verify``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.results import Result, count
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import opened, place_options, target_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer


@dataclass(frozen=True, slots=True)
class Compacted(Result):
    """The answer of ``topics compact``."""

    topic: str
    before: dict[str, str | int]
    after: dict[str, str | int]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        changed = [
            f"{name} {self.before[name]} to {value}"
            for name, value in self.after.items()
            if name in self.before and self.before[name] != value
        ]
        yield f"{self.topic}: {', '.join(changed) or 'nothing to compact'}"


@click.command("compact")
@target_argument
@place_options
@click.pass_obj
def compact_command(printer: Printer, /, *, target: str, **where: Any) -> None:
    """Merge small files and sweep what nobody needs.

    Offsets stay, and readers and writers go on meanwhile.
    """
    with opened(printer, target, **where) as admin:
        before = dict(admin.facts())
        admin.compact()
        printer.show(Compacted(admin.topic, before, dict(admin.facts())))


@dataclass(frozen=True, slots=True)
class Verified(Result):
    """The answer of ``topics verify``."""

    topic: str
    ok: bool
    rows: int
    problems: list[str]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        found = count(len(self.problems), "problem") if self.problems else "all is well"
        yield f"{self.topic}: {count(self.rows, 'row')} read, {found}"
        for problem in self.problems:
            yield f"  {problem}"


@click.command("verify")
@target_argument
@place_options
@click.pass_obj
def verify_command(printer: Printer, /, *, target: str, **where: Any) -> Status:
    """Read everything, and check it against what was committed.

    Status 1 where anything is wrong. Nothing is mended.
    """
    with opened(printer, target, **where) as admin:
        found = admin.verify()
        problems = list(found.problems)
        printer.show(Verified(admin.topic, not problems, found.rows, problems))
    return Status.FAILED if problems else Status.FINE
