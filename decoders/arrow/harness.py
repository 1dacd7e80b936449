"""Messages of ``arrow`` for the conformance kit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SCHEMA: Final = pa.schema([pa.field("number", pa.int64()), ("text", pa.string())])


class ArrowHarness:
    """Encodes a number as a long and a text column."""

    def options(self) -> Mapping[str, str]:
        """The columns."""
        return {"schema": "number bigint, text string"}

    def message(self, numbers: Sequence[int]) -> bytes:
        """A stream for an even number of rows, else a record batch alone."""
        texts = [f"number {number}" for number in numbers]
        rows = pa.record_batch([pa.array(numbers, pa.int64()), texts], schema=_SCHEMA)
        return bytes(rows.serialize()) if len(numbers) % 2 else _stream(rows)

    def undeclared(self, number: int) -> bytes:
        """A third column."""
        return _stream(pa.record_batch({"number": [number], "more": [1]}))

    def misfit(self, number: int) -> bytes:
        """A number in the text column."""
        return _stream(pa.record_batch({"number": [number], "text": [1]}))

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The column ``number``. The text is not compared.

        A mutated message may be valid Arrow and contain other values.
        """
        return list(rows.column("number").to_pylist())

    def bad(self) -> Mapping[str, bytes]:
        """Messages that are not Arrow, or do not fit the schema."""
        alone, stream = self.message([1]), self.message([1, 2])
        other = pa.record_batch({"number": ["one"]})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, other.schema) as writer:
            writer.write_batch(other)
        return {
            "empty": b"",
            "a batch cut short": alone[:-8],
            "a stream cut short": stream[:-8],
            "junk behind a batch": alone + bytes(8),
            "junk behind a stream": stream + b"x",
            "two batches": alone + alone,
            "a column of text for numbers": sink.getvalue().to_pybytes(),
        }


def _stream(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())
