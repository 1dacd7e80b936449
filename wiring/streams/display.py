"""Previews of open streams for notebooks, as HTML and text."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.spi import StreamError
from streamfactory.spi.ddl import type_text
from streamfactory.spi.notebook import header_of, html_of, one_line, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from streamfactory.spi import PartitionInfo, Position
    from streamfactory.wiring.reading.source import Source

    Row = tuple[str, ...]

_SECONDS: Final = 1.0
"""Maximum seconds of fetching the rows, after connecting."""
_BYTES: Final = 1 << 20
_MANY: Final = 20
"""Maximum partitions, and columns of the schema."""


@dataclass(frozen=True)
class Preview:
    """Properties, partitions and first rows of a stream, as text and as HTML.

    The values are untrusted: control characters are escaped in both forms, and markup
    in HTML.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
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
        return html_of(self.title, self.facts, (self.partitions, self.rows), self.notes)


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
    facts = [
        ("type", one_line(config.type)),
        ("guarantee", one_line(str(source.guarantee))),
    ]
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
            notes.append(one_line(str(error), most=500))
    title = one_line(f"stream {config.name!r}")
    return Preview(title, tuple(facts), tuple(shown), tuple(cells), tuple(notes))


def _fields(schema: pa.Schema) -> str:
    fields = [f"{field.name} {type_text(field.type)}" for field in schema][:_MANY]
    more = len(schema.names) - len(fields)
    return ", ".join([one_line(f) for f in fields] + ([f"{more} more"] if more else []))


def _partitions(infos: Sequence[PartitionInfo], position: Position) -> Iterator[Row]:
    yield ("partition", "earliest", "latest", "next", "state")
    for info in infos[:_MANY]:
        after = position.get(info.partition)
        yield (
            one_line(str(info.partition)),
            str(info.earliest),
            "unknown" if info.latest is None else str(info.latest),
            "" if after is None else str(after),
            info.state.value,
        )


def _rows(source: Source, infos: Sequence[PartitionInfo], most: int) -> Iterator[Row]:
    yield header_of(source.schema.names)
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
        yield from rows_of(batch.rows, most)
        most -= batch.num_rows
        left = deadline - time.monotonic()


def _aligned(table: Sequence[Row], indent: str) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        indent
        + "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
