"""Expectations of pipelines: conditions that the rows of a step should fulfil.

A step with expectations becomes several: its query under another id, whose rows are
counted; the rows that pass, under its id; and those that are written elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from streamfactory.spark.pipelines.model import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spark.pipelines.model import Expectation

DEAD_LETTER: Final = "dead-letter"
_UNCHECKED: Final = "__unchecked"
_FAILED: Final = "__failed_"
_PART: Final = re.compile(f"{_UNCHECKED}$|{_FAILED}[0-9a-f]+$", re.IGNORECASE)
"""Ends of the ids of parts. Spark compares ids without case."""
_ROW: Final = "__row"
_IN_PLACE: Final = "spark_partition_id() >= 0"
"""Always true. Spark does not know it: it moves no filter of a later step before this
one, which would drop rows that have to fail."""
_SHOWN: Final = 200
"""Characters of a row that an error shows."""


def checked(step: Step, expectations: Sequence[Expectation]) -> list[Step]:
    """The steps that a step with expectations consists of; others stay as they are."""
    own = tuple(one for one in expectations if one.on == step.id)
    if not own:
        return [step]
    source = step.id + _UNCHECKED
    raw = replace(step, id=source, of=step.id, expectations=own)
    passing = " and ".join(filter(None, map(_passing, own))) or "true"
    sql = f"select * from {source} where {passing}"  # noqa: S608 - SQL of its user
    if any(one.on_failure == "fail" for one in own):
        rows = f"select *, struct(*) as {_ROW} from {source}"  # noqa: S608 - SQL of its user
        sql = f"select * except ({_ROW}) from ({rows}) where {passing}"  # noqa: S608 - SQL of its user
    found = [raw, _part(step, step.id, sql)]
    for one in own:
        if one.on_failure == DEAD_LETTER:
            columns = f"*, {_literal(one.name)} as _expectation"
            sql = f"select {columns} from {source} where not {one.fulfilled}"  # noqa: S608 - SQL of its user
            found.append(_part(step, failed_id(one), sql))
    return found


def failed_id(expectation: Expectation) -> str:
    """Id of the rows that do not fulfil an expectation."""
    return f"{expectation.on}{_FAILED}{expectation.name.encode().hex()}"


def reserved_end(name: str) -> str | None:
    """The end of an id that only parts of steps may have; None if it has none."""
    found = _PART.search(name)
    return None if found is None else found[0]


def _passing(one: Expectation) -> str | None:
    """The condition for rows that pass; None if all do."""
    if one.on_failure == "warn":
        return None
    if one.on_failure != "fail":
        return one.fulfilled
    what = f"expectation {one.name!r} of step {one.on!r} failed for the row "
    row = f"left(to_json({_ROW}), {_SHOWN})"
    error = f"cast(raise_error(concat({_literal(what)}, {row})) as boolean)"
    return f"if({one.fulfilled} and {_IN_PLACE}, true, {error})"


def _part(step: Step, name: str, sql: str) -> Step:
    return Step(name, sql, None, step.origin, of=step.id)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
