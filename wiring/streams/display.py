"""Previews of open streams for notebooks, as HTML and text."""

from __future__ import annotations

import html
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spi import StreamError
from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from streamfactory.spi import PartitionInfo, Position
    from streamfactory.wiring.reading.source import Source

    Row = tuple[str, ...]

_SECONDS: Final = 1.0
"""Maximum seconds of fetching the rows, after connecting."""
_BYTES: Final = 1 << 20
_CELL_BYTES: Final = 1 << 16
_CELL: Final = 60
"""Maximum characters of a value."""
_MANY: Final = 20
"""Maximum partitions and columns."""


@dataclass(frozen=True)
class Preview:
    """Properties, partitions and first rows of a stream, as text and as HTML.

    The values are untrusted: control characters are escaped in both forms, and markup
    in HTML.
    """

    title: str
    facts: tuple[Row, ...]
    """Names and values."""
    partitions: tuple[Row, ...]
    """The first is the header."""
    rows: tuple[Row, ...]
    """The first is the header; empty if there are no rows."""
    notes: tuple[str, ...]
    """Notes on what is not shown."""

    def __str__(self) -> str:
        lines = [self.title, *_aligned(self.facts, "  ")]
        for table in (self.partitions, self.rows):
            if table:
                lines += ["", *_aligned(table, "  ")]
        return "\n".join([*lines, *(f"({note})" for note in self.notes)])

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self.facts
        )
        tables = "".join(map(_table, (self.partitions, self.rows)))
        notes = "".join(f"<p><i>{html.escape(note)}</i></p>" for note in self.notes)
        title = f"<p><b>{html.escape(self.title)}</b></p>"
        return f"<div>{title}<table>{facts}</table>{tables}{notes}</div>"


def preview(source: Source, position: Position | None, rows: int) -> Preview:
    """Preview a stream without consuming messages.

    Rows are fetched with separate readers, from the earliest offsets, and only if the
    stream can be read again.

    Args:
        source: The stream.
        position: Next offsets of its reader; None if it is closed.
        rows: Maximum number of rows.
    """
    config = source.config
    shown: list[Row] = []
    cells: list[Row] = []
    notes: list[str] = []
    facts = [("type", _text(config.type)), ("guarantee", _text(str(source.guarantee)))]
    if position is None:
        notes.append("the stream is closed")
    else:
        try:
            facts.append(("schema", _fields(source.schema)))
            difference = source.differs_from_declared()
            if difference is not None:
                notes.append(f"the topic differs from the option schema: {difference}")
            infos = source.metadata.partitions()
            shown = list(_partitions(infos, position))
            if len(infos) > _MANY:
                notes.append(f"{len(infos) - _MANY} more partitions")
            if source.claims.replayable:
                cells = list(_rows(source, infos, rows))
            else:
                notes.append("rows are not shown: reading them would consume them")
        except StreamError as error:
            notes.append(_text(str(error), most=500))
    title = _text(f"stream {config.name!r}")
    return Preview(title, tuple(facts), tuple(shown), tuple(cells), tuple(notes))


def _fields(schema: pa.Schema) -> str:
    fields = [f"{field.name} {type_text(field.type)}" for field in schema][:_MANY]
    more = len(schema.names) - len(fields)
    return ", ".join([_text(f) for f in fields] + ([f"{more} more"] if more else []))


def _partitions(infos: Sequence[PartitionInfo], position: Position) -> Iterator[Row]:
    yield ("partition", "earliest", "latest", "next", "state")
    for info in infos[:_MANY]:
        after = position.get(info.partition)
        yield (
            _text(str(info.partition)),
            str(info.earliest),
            "unknown" if info.latest is None else str(info.latest),
            "" if after is None else str(after),
            info.state.value,
        )


def _rows(source: Source, infos: Sequence[PartitionInfo], most: int) -> Iterator[Row]:
    names = source.schema.names
    more = ("...",) if len(names) > _MANY else ()
    yield (*map(_text, names[:_MANY]), *more)
    filled = [i for i in infos if i.latest is None or i.latest > i.start]
    deadline = time.monotonic() + _SECONDS
    left = _SECONDS
    for info in filled:
        if most <= 0 or left <= 0:
            return
        with closing(source.reader(info.partition, info=info)) as reader:
            batch = reader.fetch(
                info.start, max_rows=most, max_bytes=_BYTES, timeout=left
            )
        for index in range(min(most, batch.num_rows)):
            row = batch.rows.slice(index, 1)
            yield (*(_cell(row.column(n)) for n in range(len(names[:_MANY]))), *more)
        most -= batch.num_rows
        left = deadline - time.monotonic()


def _cell(column: pa.Array) -> str:
    """The text of the only value of a column."""
    if column.nbytes > _CELL_BYTES:
        return _text(f"<{column.type}, {column.nbytes} bytes>")
    try:
        value: Any = column[0].as_py()
    except Exception:  # noqa: BLE001 - a date out of Python's range, invalid text
        return _text(f"<{column.type}>")
    return "null" if value is None else _text(str(value))


def _text(text: str, most: int = _CELL) -> str:
    """Return one line: control characters are escaped, and long text is cut."""
    cut = text[: most - 3] + "..." if len(text) > most else text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in cut)


def _aligned(table: Sequence[Row], indent: str) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        indent
        + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows[1:]
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
