"""Waivers: failures that an author accepts, each with a reason and a last day.

::

    [[waiver]]
    case = "a_factory_pickles"
    reason = "issue 12: the client keeps a socket"
    expires = 2027-01-31
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.runner import Outcome, Result
from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

_KEYS: Final = ("case", "reason", "expires")


@dataclass(frozen=True, slots=True)
class Waiver:
    """One known failure."""

    case: str
    reason: str
    expires: date
    """The last day on which it holds."""

    def __str__(self) -> str:
        return f"until {self.expires.isoformat()}: {self.reason}"


def read_waivers(path: Path, cases: Collection[str]) -> dict[str, Waiver]:
    """The waivers of a file, by case.

    Args:
        path: A TOML file.
        cases: The names that there are.

    Raises:
        ConfigError: config; with every problem of the file.
    """
    try:
        body = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = f"the waivers {str(path)!r} cannot be read: {error}"
        raise ConfigError(msg) from error
    problems = [
        Problem(key, "means nothing here", str(path), "write [[waiver]]")
        for key in body
        if key != "waiver"
    ]
    listed = body.get("waiver", [])
    found: dict[str, Waiver] = {}
    if not isinstance(listed, list):
        problems.append(Problem("waiver", "is no list", str(path), "write [[waiver]]"))
        listed = []
    for number, entry in enumerate(listed, start=1):
        wrong = list(_problems(entry, cases))
        if not wrong and entry["case"] in found:
            wrong = [("case", f"{entry['case']!r} is waived twice", None)]
        problems += [
            Problem(f"waiver {number}, {key}", what, str(path), hint)
            for key, what, hint in wrong
        ]
        if not wrong:
            found[entry["case"]] = Waiver(**entry)
    if problems:
        msg = f"the waivers {str(path)!r} cannot be used"
        raise ConfigError(msg, problems=problems)
    return found


def _problems(
    entry: Any, cases: Collection[str]
) -> Iterator[tuple[str, str, str | None]]:
    if not isinstance(entry, dict):
        yield "", f"is {entry!r}, wanted a table", "write [[waiver]]"
        return
    for key in entry.keys() - set(_KEYS):
        yield key, "means nothing here", f"known are {', '.join(_KEYS)}"
    case, reason, expires = (entry.get(key) for key in _KEYS)
    if not isinstance(case, str):
        yield "case", "is missing" if case is None else "is not a string", None
    elif case not in cases:
        near = nearest(case, cases)
        hint = f"did you mean {near}?" if near else None
        yield "case", f"{case!r} is no case of the kit", hint
    if not isinstance(reason, str) or not reason.strip():
        yield "reason", "is missing" if reason is None else "says nothing", None
    # A date with a time is a date to Python.
    if not isinstance(expires, date) or isinstance(expires, datetime):
        what = "is missing" if expires is None else f"{expires!r} is not a date"
        yield "expires", what, "write the last day, as expires = 2027-01-31"


def waived(
    results: Iterable[Result],
    waivers: Mapping[str, Waiver],
    today: date | None = None,
) -> Iterator[Result]:
    """Results with waivers applied.

    A failure becomes waived. A waiver that has expired, or whose case does not fail,
    is itself a failure: what is not needed must go.
    """
    day = datetime.now(tz=UTC).date() if today is None else today
    for result in results:
        waiver = waivers.get(result.case.name)
        yield result if waiver is None else _apply(waiver, result, day)


def _apply(waiver: Waiver, result: Result, today: date) -> Result:
    if result.outcome is not Outcome.FAILED:
        passes = result.outcome in (Outcome.PASSED, Outcome.NARROWED)
        why = "passes" if passes else f"is skipped ({result.reason})"
        reason = f"the waiver is stale: the case {why}; take it out of the file"
        return replace(
            result, outcome=Outcome.FAILED, reason=reason, waiver=str(waiver)
        )
    if waiver.expires < today:
        expired = f"the waiver expired on {waiver.expires.isoformat()}"
        reason = f"{expired} ({waiver.reason}); {result.reason}"
        return replace(result, reason=reason, waiver=str(waiver))
    return replace(result, outcome=Outcome.WAIVED, waiver=str(waiver))
