"""What notebooks show of an object: a title, facts and tables, as HTML and as text.

Values are untrusted: control characters are escaped, and markup in HTML.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    Row = tuple[str, ...]

_CELL_BYTES: Final = 1 << 16
_CELL: Final = 60
"""Maximum characters of a value."""
MOST_COLUMNS: Final = 20
"""Maximum columns, and rows of a table of facts."""


def html_of(
    title: str,
    facts: Iterable[tuple[str, object]],
    tables: Iterable[Sequence[Row]] = (),
    notes: Iterable[str] = (),
) -> str:
    """Return the HTML of an object.

    Args:
        title: What it is.
        facts: Names and values.
        tables: Rows; the first of each is its header. Empty ones are left out.
        notes: Notes on what is not shown.
    """
    named = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(str(value))}</td></tr>"
        for name, value in facts
    )
    shown = "".join(map(_table, tables))
    ended = "".join(f"<p><i>{html.escape(note)}</i></p>" for note in notes)
    heading = f"<p><b>{html.escape(title)}</b></p>"
    return f"<div>{heading}<table>{named}</table>{shown}{ended}</div>"


def one_line(text: str, most: int = _CELL) -> str:
    """Return one line: control characters are escaped, and long text is cut."""
    cut = text[: most - 3] + "..." if len(text) > most else text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def header_of(names: Sequence[str]) -> Row:
    """Return the header of a table of rows."""
    return (*map(one_line, names[:MOST_COLUMNS]), *_more(len(names)))


def rows_of(batch: pa.RecordBatch, most: int) -> Iterator[Row]:
    """Yield the first rows of a batch, as `header_of` has its columns."""
    more = _more(batch.num_columns)
    for index in range(min(most, batch.num_rows)):
        row = batch.slice(index, 1)
        columns = range(min(MOST_COLUMNS, batch.num_columns))
        yield (*(_cell(row.column(n)) for n in columns), *more)


def _more(columns: int) -> Row:
    return ("...",) if columns > MOST_COLUMNS else ()


def _cell(column: pa.Array) -> str:
    """The text of the only value of a column."""
    if column.nbytes > _CELL_BYTES:
        return one_line(f"<{column.type}, {column.nbytes} bytes>")
    try:
        value: Any = column[0].as_py()
    except Exception:  # noqa: BLE001 - a date out of Python's range, invalid text
        return one_line(f"<{column.type}>")
    return "null" if value is None else one_line(str(value))


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
