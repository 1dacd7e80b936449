"""The difference between expected rows and those that came out, row by row."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamfactory.wiring.core.values import encode_base64, plain_members

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

Row = dict[str, Any]

_PAIRED: Final = 200
"""Most rows of either side that are compared with each other to find similar ones."""
_SHOWN: Final = 20
"""Most rows that are shown of a kind."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between expected and actual rows. Values are those of JSON."""

    changed: tuple[tuple[Row, Row], ...]
    """Expected and actual row, where they belong together."""
    missing: tuple[Row, ...]
    unexpected: tuple[Row, ...]
    key: tuple[str, ...]

    def lines(self) -> Iterator[str]:
        """The difference as text."""
        for wanted, found in self.changed[:_SHOWN]:
            names = [name for name in wanted if not _equal(wanted[name], found[name])]
            others = self.key or [name for name in wanted if name not in names]
            place = ", ".join(f"{name} {_text(found[name])}" for name in others)
            values = ", ".join(
                f"{name} is {_text(found[name])}, expected {_text(wanted[name])}"
                for name in names
            )
            yield f"{place}: {values}"
        for word, rows in (("missing", self.missing), ("unexpected", self.unexpected)):
            yield from (f"{word}: {_text(row)}" for row in rows[:_SHOWN])
        for count in map(len, (self.changed, self.missing, self.unexpected)):
            if count > _SHOWN:
                yield f"and {count - _SHOWN} more"

    def __str__(self) -> str:
        counts = (
            (len(self.changed), "differ"),
            (len(self.missing), "missing"),
            (len(self.unexpected), "unexpected"),
        )
        return ", ".join(f"{count} {word}" for count, word in counts if count)


def difference(
    expected: pa.Table, actual: pa.Table, key: Sequence[str] = ()
) -> Difference | None:
    """Compare rows, whose order does not matter; None if they are equal.

    Args:
        expected: The expected rows.
        actual: Rows with at least their columns, of the same types.
        key: Columns that identify a row in the difference; without them, rows that
            have most of their values in common are shown together.
    """
    wanted = _plain(expected)
    found = _plain(actual.select(expected.column_names))
    missing, unexpected = _without(wanted, found), _without(found, wanted)
    if not missing and not unexpected:
        return None
    pairs = _by_key(missing, unexpected, key) if key else _similar(missing, unexpected)
    changed = tuple((missing[one], unexpected[other]) for one, other in pairs)
    left, right = {one for one, _ in pairs}, {other for _, other in pairs}
    return Difference(
        changed,
        tuple(row for at, row in enumerate(missing) if at not in left),
        tuple(row for at, row in enumerate(unexpected) if at not in right),
        tuple(key),
    )


def _plain(rows: pa.Table) -> list[Row]:
    names = rows.column_names
    found = []
    for batch in rows.to_batches():
        found += plain_members(names, batch.columns, batch.num_rows, encode_base64)
    return found


def _without(rows: Sequence[Row], others: Sequence[Row]) -> list[Row]:
    """Rows that others lack; of equal ones, as many as they lack."""
    there, found = Counter(map(_text, others)), []
    for row in rows:
        text = _text(row)
        if there[text]:
            there[text] -= 1
        else:
            found.append(row)
    return found


def _by_key(
    missing: Sequence[Row], unexpected: Sequence[Row], key: Sequence[str]
) -> list[tuple[int, int]]:
    """Indices of rows with equal keys."""
    there: dict[str, list[int]] = {}
    for at, row in enumerate(unexpected):
        there.setdefault(_text([row[name] for name in key]), []).append(at)
    found = []
    for at, row in enumerate(missing):
        same = there.get(_text([row[name] for name in key]))
        if same:
            found.append((at, same.pop(0)))
    return found


def _similar(
    missing: Sequence[Row], unexpected: Sequence[Row]
) -> list[tuple[int, int]]:
    """Indices of rows with more than half of their values in common."""
    free = set(range(min(len(unexpected), _PAIRED)))
    found = []
    for at, row in enumerate(missing[:_PAIRED]):
        common = {
            other: sum(_equal(row[name], unexpected[other][name]) for name in row)
            for other in free
        }
        best = max(common, key=lambda other: (common[other], -other), default=None)
        if best is not None and common[best] * 2 > len(row):
            found.append((at, best))
            free.remove(best)
    return found


def _equal(one: Any, other: Any) -> bool:
    # Those of JSON differ where Python's do not: 0.0 and -0.0.
    return _text(one) == _text(other)


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
