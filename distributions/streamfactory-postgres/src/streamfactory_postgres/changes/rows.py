"""Collects the changes of a table until a batch is complete."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from streamfactory_postgres import columns
from streamfactory_postgres.changes.messages import Values
from streamfactory_postgres.changes.numbering import text_of

FIELDS = (
    pa.field("_change", pa.string(), nullable=False),
    pa.field("_commit", pa.string(), nullable=False),
    pa.field("_commit_time", pa.timestamp("us", tz="UTC")),
)
"""Kind of change, position of the commit in the WAL, and time of the commit."""
_SENT = (*FIELDS[:2], pa.field("_commit_time", pa.int64()))
"""The same as they are parsed."""
NAMES = frozenset(field.name for field in FIELDS)


class Rows:
    """Changes with their offsets, in order.

    Changes of one offset are one message: the last offset is complete once a change
    with another one was added, or `complete` was called.
    """

    def __init__(self) -> None:
        self.ready = 0
        """Changes that can be returned."""
        self.size = 0
        """Bytes of all that were added."""
        self._lines: list[bytes] = []
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def next_offset(self) -> int:
        """The offset behind those that can be returned; there has to be one."""
        if self.ready < len(self._offsets):
            return self._offsets[self.ready]
        return self._offsets[-1] + 1

    def add(self, offset: int, values: Values, change: bytes) -> None:
        """Add a change.

        Args:
            offset: Of it.
            values: Those of the columns that are read.
            change: Those of `FIELDS`, as CSV: see `text_of_change`.
        """
        if self._offsets and self._offsets[-1] != offset:
            self.ready = len(self._offsets)
        line = b",".join(
            (
                b"%d" % offset,
                *(
                    b"" if value is None else b'"%b"' % value.replace(b'"', b'""')
                    for value in values
                ),
                change,
            )
        )
        self._lines.append(line)
        self._offsets.append(offset)
        self.size += len(line)

    def complete(self) -> None:
        """No more changes have the offset of the last one."""
        self.ready = len(self._lines)

    def take(self, schema: pa.Schema) -> tuple[pa.RecordBatch, pa.Int64Array]:
        """Remove the changes that are ready.

        Args:
            schema: Of their values.

        Returns:
            The rows, with `FIELDS` behind their columns, and the offset of each.
        """
        count = self.ready
        read = columns.parse(
            pa.py_buffer(b"\n".join((*self._lines[:count], b""))),
            pa.schema([pa.field("", pa.int64()), *schema, *_SENT]),
        )
        offsets, *values, kinds, commits, times = read.columns
        del self._lines[:count], self._offsets[:count]
        self.size = sum(map(len, self._lines))
        self.ready = 0
        return with_changes(values, schema, kinds, commits, times), offsets


def text_of_change(kind: str, lsn: int, time: int) -> bytes:
    """The values of `FIELDS` as CSV.

    Args:
        kind: insert, update_before, update_after or delete.
        lsn: Where the record of the commit begins.
        time: Of the commit, in microseconds since 1970, UTC.
    """
    return f"{kind},{text_of(lsn)},{time}".encode()


def with_changes(
    values: Sequence[pa.Array],
    schema: pa.Schema,
    kinds: pa.StringArray,
    commits: pa.StringArray,
    times: pa.Int64Array,
) -> pa.RecordBatch:
    """Rows with the columns of `FIELDS` behind their own."""
    added = [kinds, commits, times.cast(FIELDS[2].type)]
    return pa.RecordBatch.from_arrays(
        [*values, *added], schema=pa.schema([*schema, *FIELDS])
    )
