"""Conversion of messages without sequence frame to envelopes, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.backends.zeromq.bodies import bytes_of, view_of
from streamfactory.spi import MisuseError, envelope_schema
from streamfactory.spi.envelope import TIMESTAMP_UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import zmq

    from streamfactory.backends.zeromq.bodies import BatchReader
    from streamfactory.backends.zeromq.joining import Backlog
    from streamfactory.backends.zeromq.numbering import MergedNumbers
    from streamfactory.spi import Outgoing, Partition

_HEADER: Final = "frame."
"""Prefix of the header key for a middle frame; its number follows."""


class PlainMessages:
    """Receives messages of one partition; offsets are assigned on receipt.

    Args:
        partition: Partition of the rows.
        numbers: Assigns the offsets.
        reader: Reads and validates Arrow streams.
        backlog: Receives the rows.
        is_raw: Whether each message is a record instead of an Arrow stream.
    """

    def __init__(
        self,
        partition: Partition,
        numbers: MergedNumbers,
        reader: BatchReader,
        backlog: Backlog,
        *,
        is_raw: bool,
    ) -> None:
        self._partition = partition
        self._numbers = numbers
        self._reader = reader
        self._backlog = backlog
        self._is_raw = is_raw
        self._records: list[list[bytes]] = []
        """Records that are not in a batch yet."""
        self.size = 0
        """Bytes of these records."""

    def receive(self, frames: Sequence[bytes | zmq.Frame]) -> None:
        """Add the rows of a message; those of records with `pack`.

        Raises:
            StreamError: As `BatchReader.read_stream`.
        """
        if self._is_raw:
            parts = [bytes_of(frame) for frame in frames]
            self._records.append(parts)
            self.size += sum(map(len, parts))
            return
        for rows, size in self._reader.read_stream(view_of(frames[-1])):
            placed = self._numbers.count(rows.num_rows)
            self._backlog.add(rows, placed, size, is_checked=True)

    def pack(self) -> None:
        """Combine the received records into one batch."""
        records, self._records = self._records, []
        size, self.size = self.size, 0
        if records:
            rows = envelopes_of(records, self._partition, self._numbers.next)
            placed = self._numbers.count(len(records))
            self._backlog.add(rows, placed, size, is_checked=True)


def envelopes_of(
    messages: Sequence[Sequence[bytes]], partition: Partition, offset: int
) -> pa.RecordBatch:
    """Messages: the last frame of each is the value, the first of several the key.

    Frames between them become headers: ``frame.1`` is the second frame.
    """
    count, schema = len(messages), envelope_schema()
    unknown = pa.scalar(TIMESTAMP_UNKNOWN, pa.int32())
    columns = {
        "key": [parts[0] if len(parts) > 1 else None for parts in messages],
        "value": [parts[-1] for parts in messages],
        "topic": pa.repeat(pa.scalar(partition.topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(partition.id, pa.int32()), count),
        "offset": pa.arange(offset, offset + count),
        "timestamp": pa.nulls(count, schema.field("timestamp").type),
        "timestampType": pa.repeat(unknown, count),
        "headers": [_headers(parts) for parts in messages],
    }
    return pa.RecordBatch.from_pydict(columns, schema=schema)


def _headers(parts: Sequence[bytes]) -> list[dict[str, object]] | None:
    if len(parts) < 3:
        return None
    return [
        {"key": f"{_HEADER}{number}", "value": part}
        for number, part in enumerate(parts[1:-1], 1)
    ]


def messages_of(outgoing: Outgoing) -> Iterator[list[bytes]]:
    """The frames of each row: key, values of headers, value.

    Raises:
        MisuseError: misuse; a value is null, which a frame cannot represent.
    """
    values = outgoing.rows.column("value").to_pylist()
    keys = _list(outgoing.key, len(values))
    headers = _list(outgoing.headers, len(values))
    for value, key, some in zip(values, keys, headers, strict=True):
        if value is None:
            msg = "a plain ZeroMQ message cannot represent a tombstone (null value)"
            raise MisuseError(msg, remedy="use framing=sequenced, or drop such rows")
        begin = [] if key is None else [_as_bytes(key)]
        between = [header["value"] or b"" for header in some or ()]
        if between and not begin:
            begin = [b""]
        yield [*begin, *between, value]


def _list(column: pa.Array | None, count: int) -> list[Any]:
    return [None] * count if column is None else column.to_pylist()


def _as_bytes(key: bytes | str) -> bytes:
    return key.encode() if isinstance(key, str) else key
