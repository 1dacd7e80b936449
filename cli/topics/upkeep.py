"""``topics compact`` and ``topics verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.results import count
from streamfactory.cli.status import Status
from streamfactory.cli.topics.arguments import opened, place_options, target_argument

if TYPE_CHECKING:
    from streamfactory.cli.printing import Printer


@click.command("compact")
@target_argument
@place_options
@click.pass_obj
def compact_command(printer: Printer, /, *, target: str, **where: Any) -> None:
    """Merge small files, and delete files that are no longer used.

    Offsets do not change. Readers and writers may run at the same time.
    """
    with opened(printer, target, **where) as admin:
        before = dict(admin.facts())
        admin.compact()
        after = dict(admin.facts())
        changed = [
            f"{name} {before[name]} to {value}"
            for name, value in after.items()
            if name in before and before[name] != value
        ]
        printer.show(
            {"topic": admin.topic, "before": before, "after": after},
            [f"{admin.topic}: {', '.join(changed) or 'nothing to compact'}"],
        )


@click.command("verify")
@target_argument
@place_options
@click.pass_obj
def verify_command(printer: Printer, /, *, target: str, **where: Any) -> Status:
    """Read all rows of a topic, and compare them with what was committed.

    Status 1 if a problem is found. Nothing is repaired.
    """
    with opened(printer, target, **where) as admin:
        found = admin.verify()
        problems = list(found.problems)
        verdict = count(len(problems), "problem") if problems else "no problems"
        printer.show(
            {
                "topic": admin.topic,
                "ok": not problems,
                "rows": found.rows,
                "problems": problems,
            },
            [
                f"{admin.topic}: {count(found.rows, 'row')} read, {verdict}",
                *(f"  {problem}" for problem in problems),
            ],
        )
    return Status.FAILED if problems else Status.FINE
