"""``audit``: who changed what, as pages and commands recorded it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.parameters import json_flag, one_definition
from streamfactory.cli.results import table
from streamfactory.engines.search.browsing import Limits
from streamfactory.spi import PERIOD, MisuseError
from streamfactory.transfer.auditing import OUTCOMES, Wanted, audit_stream, read_audit
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.cli.printing import Printer

_LIMITS: Final = Limits(rows=10_000_000, size=256 << 20, seconds=60.0)
"""What the search may cost."""
_SHOWN: Final = ("time", "user", "client", "outcome", "kind", "name", "what", "reason")


@click.command("audit")
@click.argument("stream", required=False)
@click.option("--user", default="", metavar="NAME", help="Only changes of this user.")
@click.option("--name", default="", metavar="NAME", help="Only changes of what has it.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only rows of it.")
@click.option("--since", metavar="PERIOD", help="Only rows that are younger: 2d.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Rows, at most: the newest ones.",
)
@json_flag
@click.pass_obj
def audit_command(
    printer: Printer,
    *,
    stream: str | None,
    user: str,
    name: str,
    outcome: str | None,
    since: str | None,
    last: int,
) -> None:
    """Show who changed what: topics, positions, jobs and definitions.

    STREAM is the stream of the record; by default the one of the catalogue with
    audit.record=true. A change has a row when it begins, and one with its outcome; a
    refused one has one row. With --json, also what was before and after it.
    """
    if stream is None:
        definition = audit_stream(Catalogue().snapshot())
        if definition is None:
            msg = "no stream of the catalogue has audit.record=true"
            raise MisuseError(msg, remedy="name the stream of the record")
    else:
        definition = one_definition(stream)
    wanted = Wanted(user, name, outcome or "", _begin(since))
    page = read_audit(definition, wanted, most=last, limits=_LIMITS)
    document = {"stream": definition.name, "rows": page.rows, "more": page.more}
    printer.show(document, _lines(page.rows))


def _begin(since: str | None) -> datetime | None:
    if since is None:
        return None
    try:
        seconds = float(PERIOD.parse(since)) / 1000
    except ValueError as error:
        msg = f"--since {since!r} {error}"
        raise click.UsageError(msg) from None
    return datetime.fromtimestamp(time.time() - seconds, UTC)


def _lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        yield "no changes are recorded"
        return
    head = tuple(name.upper() for name in _SHOWN)
    cells = [tuple(str(one[name]) for name in _SHOWN) for one in rows]
    yield from table([head, *cells])
