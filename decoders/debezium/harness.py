"""Messages of ``debezium`` for the conformance kit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


class DebeziumHarness:
    """Encodes a number as an inserted row of PostgreSQL."""

    several = False

    def options(self) -> Mapping[str, str]:
        """A table with a decimal and times."""
        return {
            "schema": "number bigint not null, text string, price decimal(10,2), "
            "at timestamp_ntz, day date",
            "timestamp.unit": "micros",
        }

    def message(self, numbers: Sequence[int]) -> bytes:
        """An event of an inserted row."""
        [number] = numbers
        return _event(
            {
                "number": number,
                "text": f"a text, {number}",
                "price": "BNI=",
                "at": 1_700_000_000_000_000 + number,
                "day": 19_675,
            }
        )

    def undeclared(self, number: int) -> bytes:
        """A column that is not in the schema."""
        return _event({"number": number, "unread": {"deep": [[1]]}})

    def misfit(self, number: int) -> bytes:
        """A number in a column of text."""
        return _event({"number": number, "text": 1})

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The column ``number``."""
        return list(rows.column("number").to_pylist())

    def bad(self) -> Mapping[str, bytes]:
        """Messages that are no events, or do not fit the schema."""
        return {
            "empty": b"",
            "no JSON": b"number",
            "a list": b"[1]",
            "null": b"null",
            "a row without envelope": b'{"number": 1}',
            "a heartbeat": b'{"ts_ms": 1700000000000}',
            "a change of the schema": b'{"source": {}, "ddl": "DROP TABLE t"}',
            "another operation": _event({"number": 1}, op="m"),
            "a truncated table": _event(None, op="t"),
            "nothing inserted": _event(None),
            "nothing deleted": _event({"number": 1}, op="d"),
            "no number": _event({"number": "1"}),
            "null, which may not be": _event({"number": None}),
            "nothing, which may not be": _event({}),
            "no decimal": _event({"number": 1, "price": "~"}),
            "a decimal too large": _event({"number": 1, "price": "f" * 16}),
            "a day that is a text": _event({"number": 1, "day": "2023-11-14"}),
            "a value that was not logged": _event(
                {"number": 1, "text": "__debezium_unavailable_value"}
            ),
            "a source that is a list": b'{"op": "c", "after": {"number": 1}, '
            b'"source": [1]}',
        }


def _event(after: dict[str, Any] | None, op: str = "c") -> bytes:
    source = {"connector": "postgresql", "ts_ms": 1_700_000_000_000, "table": "t"}
    found = {"before": None, "after": after, "source": source, "op": op}
    return json.dumps({**found, "ts_ms": 1_700_000_000_500}).encode()
