"""Frames of ``top`` as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.cli.checkpoint.showing import span
from streamfactory.cli.results import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.top.observing import Frame, Row

COLUMNS: Final = (
    "KIND",
    "NAME",
    "OF",
    "PER SECOND",
    "LAG",
    "LOSSES",
    "DEAD LETTERS",
    "LAST COMMIT",
    "STATE",
)
NUMBERS: Final = ("PER SECOND", "LAG", "LOSSES", "DEAD LETTERS")
ORDERS: Final = ("name", "rate", "lag", "dead letters")


def ordered(rows: Sequence[Row], order: str) -> list[Row]:
    """The rows by name, or the highest numbers first."""
    if order == "name":
        return sorted(rows, key=lambda row: (row.kind != "process", row.key))

    def number(row: Row) -> float:
        found = {
            "rate": row.rate,
            "lag": row.lag,
            "dead letters": row.dead_letters,
        }[order]
        return -1.0 if found is None else found

    return sorted(rows, key=number, reverse=True)


def cells(row: Row) -> tuple[str, ...]:
    """The texts of one row; empty where nothing is known."""
    numbers = (row.lag, row.losses, row.dead_letters)
    return (
        row.kind,
        row.name,
        row.stream,
        "" if row.rate is None else f"{row.rate:,.1f}",
        *("" if number is None else f"{number:,}" for number in numbers),
        "" if row.commit_age is None else f"{span(row.commit_age)} ago",
        row.state,
    )


def frame_lines(frame: Frame, order: str) -> Iterator[str]:
    """A frame as a table."""
    rows = [cells(row) for row in ordered(frame.rows, order)]
    if not rows:
        yield "the catalogue has no streams and no pipelines"
        return
    yield from table([COLUMNS, *rows])


def frame_document(frame: Frame, order: str) -> dict[str, Any]:
    """A frame as plain values."""
    return {
        "rows": [
            {
                "kind": row.kind,
                "name": row.name,
                "of": row.stream or None,
                "per_second": None if row.rate is None else round(row.rate, 3),
                "lag": row.lag,
                "losses": row.losses,
                "dead_letters": row.dead_letters,
                "commit_age_seconds": row.commit_age,
                "state": row.state,
            }
            for row in ordered(frame.rows, order)
        ]
    }
