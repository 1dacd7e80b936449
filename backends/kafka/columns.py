"""Conversion of the client's messages to envelope columns.

Mapping unbound methods over a list is the fastest way in Python. Messages are converted
in chunks of 500: with more live objects, Python's garbage collector becomes expensive.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from streamfactory.spi import Partition, envelope_schema, headers_type
from streamfactory.spi.envelope import TIMESTAMP_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfactory.spi import StreamConfig

    Numbers = NDArray[Any]

CHUNK: Final = 500
_TIME: Final = pa.timestamp("us", tz="UTC")
_BINARY: Final = pa.binary()


def wants_headers(config: StreamConfig) -> bool:
    """Whether headers are used; reading them costs time."""
    return (
        config.decoder in (None, "raw")
        or config["metadata.populate"]
        or config["includeHeaders"]
        or config["decode.on.error"] == "dead-letter"
    )


class Columns:
    """Collects chunks of messages of one partition.

    Args:
        partition: The partition of the messages.
        headers: Whether headers are needed.
    """

    def __init__(self, partition: Partition, *, headers: bool) -> None:
        self._partition = partition
        self._wants_headers = headers
        self._keys: list[pa.Array] = []
        self._values: list[pa.Array] = []
        self._offsets: list[Numbers] = []
        self._millis: list[Numbers] = []
        self._kinds: list[Numbers] = []
        self._headers: list[pa.Array] = []
        self.rows = 0
        self.size = 0
        """Bytes of keys and values."""
        self.next_offset = 0
        """After the last message."""

    def add(self, messages: Sequence[Message]) -> None:
        """Add messages, without events."""
        count = len(messages)
        keys = pa.array(list(map(Message.key, messages)), _BINARY)
        values = pa.array(list(map(Message.value, messages)), _BINARY)
        offsets = np.fromiter(map(Message.offset, messages), np.int64, count)
        # Alternating kind and milliseconds: building pairs costs three times as much.
        pairs = chain.from_iterable(map(Message.timestamp, messages))
        times = np.fromiter(pairs, np.int64, 2 * count)
        self._keys.append(keys)
        self._values.append(values)
        self._offsets.append(offsets)
        self._millis.append(times[1::2])
        self._kinds.append(times[::2])
        if self._wants_headers:
            self._headers.append(_headers(messages))
        self.rows += count
        self.size += _data_size(keys) + _data_size(values)
        self.next_offset = int(offsets[-1]) + 1

    def batch(self) -> pa.RecordBatch:
        """All added messages, as envelopes."""
        rows, partition = self.rows, self._partition
        # The client's numbers start with 0 for unknown.
        kinds = (np.concatenate(self._kinds) - 1).astype(np.int32)
        unknown = kinds == TIMESTAMP_UNKNOWN
        micros = np.concatenate(self._millis) * 1000
        times = pa.array(micros, mask=unknown if unknown.any() else None)
        columns = [
            pa.concat_arrays(self._keys),
            pa.concat_arrays(self._values),
            pa.repeat(partition.topic, rows),
            pa.array(np.full(rows, partition.id, np.int32)),
            pa.array(np.concatenate(self._offsets)),
            times.view(_TIME),
            pa.array(kinds),
            pa.concat_arrays(self._headers)
            if self._headers
            else pa.nulls(rows, headers_type()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=envelope_schema())


@dataclass(slots=True)
class Kept:
    """Rows fetched beyond a range: all rows from ``start`` to ``end``."""

    rows: pa.RecordBatch
    """Envelopes."""
    start: int
    end: int
    """Exclusive. There is no other row between the last one and this offset."""

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return int(self.rows.nbytes)

    def holds(self, offset: int) -> bool:
        """Whether all rows from an offset to `end` are contained."""
        return self.start <= offset < self.end

    def split(
        self, start: int, end: int | None, most: int
    ) -> tuple[pa.RecordBatch, int, Kept | None]:
        """The rows from ``start`` to ``end``, the offset after them, and the rest.

        Args:
            start: A contained offset.
            end: Exclusive; None for no end.
            most: Maximum number of rows.
        """
        offsets = self.rows.column("offset").to_numpy()
        first = int(np.searchsorted(offsets, start))
        stop = len(offsets) if end is None else int(np.searchsorted(offsets, end))
        after = self.end if end is None else min(self.end, end)
        if stop - first > most:
            stop = first + most
            after = int(offsets[stop - 1]) + 1
        rest = None
        if after < self.end:
            rest = Kept(self.rows.slice(stop), after, self.end)
        return self.rows.slice(first, stop - first), after, rest


def payload_size(rows: pa.RecordBatch) -> int:
    """Bytes of the keys and values of envelopes."""
    lengths = (pc.sum(pc.binary_length(rows.column(name))) for name in ("key", "value"))
    return sum(length.as_py() or 0 for length in lengths)


def _data_size(column: pa.Array) -> int:
    """Bytes of the values of a new column; ``nbytes`` takes ten times as long."""
    data = column.buffers()[2]
    return 0 if data is None else int(data.size)


def _headers(messages: Sequence[Message]) -> pa.Array:
    """Headers, flattened: a list of pairs each, or None."""
    each = list(map(Message.headers, messages))
    if not any(each):
        return pa.nulls(len(each), headers_type())
    lengths = np.fromiter((len(h) if h else 0 for h in each), np.int32, len(each))
    ends = np.cumsum(lengths, dtype=np.int32)
    pairs = list(chain.from_iterable(filter(None, each)))
    keys, values = zip(*pairs, strict=True)
    structs = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.binary())],
        fields=list(headers_type().value_type),
    )
    starts = np.concatenate(([np.int32(0)], ends))
    missing = np.fromiter((not h for h in each), np.bool_, len(each))
    return pa.ListArray.from_arrays(
        pa.array(starts, pa.int32()),
        structs,
        type=headers_type(),
        mask=pa.array(missing),
    )
