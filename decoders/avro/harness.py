"""Messages of ``avro`` for the conformance kit."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Final

import fastavro

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

_SCHEMA: Final = {
    "type": "record",
    "name": "reading",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
    ],
}


class AvroHarness:
    """Encodes a number as a long, a text and a map value."""

    several = False

    def __init__(self) -> None:
        self._schema = fastavro.parse_schema(json.loads(json.dumps(_SCHEMA)))

    def options(self) -> Mapping[str, str]:
        """The schema."""
        return {"schema": json.dumps(_SCHEMA)}

    def message(self, numbers: Sequence[int]) -> bytes:
        """One message, written by fastavro."""
        [number] = numbers
        row = {"number": number, "text": f"number {number}", "tags": {"n": number}}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, self._schema, row)
        return out.getvalue()

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The column ``number``, after a check of the other columns."""
        found = rows.to_pylist()
        for row in found:
            assert row["text"] == f"number {row['number']}"
            assert row["tags"] == [("n", row["number"])]
        return [row["number"] for row in found]

    def bad(self) -> Mapping[str, bytes]:
        """Messages that do not fit the schema."""
        good = self.message([7])
        return {
            "cut short": good[:-1],
            "junk behind": good + b"\0",
            "empty": b"",
            "text that is no UTF-8": b"\x02\x02\x02\xff\x00",
            "an endless number": b"\x80" * 11,
            "an int of 64 bits": b"\x02\x00\x02\x02n" + b"\xff" * 9 + b"\x01\x00",
            "no such branch": b"\x02\x04\x00",
            "a negative branch": b"\x02\x01\x00",
            "a huge text": b"\x02\x02" + b"\xfe" * 4 + b"\x01",
            "a huge map": b"\x02\x00" + b"\xfe" * 9 + b"\x01",
        }
