"""Messages of ``json`` for the conformance kit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


class JsonHarness:
    """Encodes a number as a field, next to fields of other types."""

    several = False

    def options(self) -> Mapping[str, str]:
        """A schema with a nested column."""
        return {
            "schema": "number bigint not null, text string, at timestamp, "
            "more struct<list:array<double>>"
        }

    def message(self, numbers: Sequence[int]) -> bytes:
        """One object."""
        [number] = numbers
        fields = {
            "number": number,
            "text": f"a text, {number}",
            "at": "2013-01-01T05:00:00Z",
            "more": {"list": [0.5, None, number]},
        }
        return json.dumps(fields).encode()

    def undeclared(self, number: int) -> bytes:
        """A field that is not in the schema."""
        return json.dumps({"number": number, "unread": {"deep": [[1]]}}).encode()

    def misfit(self, number: int) -> bytes:
        """A number in a column of text."""
        return json.dumps({"number": number, "text": 1}).encode()

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The column ``number``."""
        return list(rows.column("number").to_pylist())

    def bad(self) -> Mapping[str, bytes]:
        """Messages that are not JSON or do not fit the schema."""
        return {
            "empty": b"",
            "blanks": b"  \n",
            "no JSON": b"number",
            "a list": b"[1]",
            "null": b"null",
            "cut short": b'{"number": 1',
            "two objects": b'{"number": 1}{"number": 2}',
            "two lines": b'{"number": 1}\n{"number": 2}',
            "another field behind": b'{"number": 1},"x":{"y":1}',
            "a byte order mark": b'\xef\xbb\xbf{"number": 1}',
            "a comma behind": b'{"number": 1,}',
            "junk behind": b'{"number": 1} x',
            "no number": b'{"number": "1"}',
            "no whole number": b'{"number": 1.0}',
            "a number of 65 bits": b'{"number": 9223372036854775808}',
            "null, which may not be": b'{"number": null}',
            "nothing, which may not be": b"{}",
            "no time": b'{"number": 1, "at": "yesterday"}',
            "a time without zone": b'{"number": 1, "at": "2013-01-01T05:00:00"}',
            "NaN": b'{"number": 1, "more": {"list": [NaN]}}',
            "NaN in what is not read": b'{"number": 1, "unread": NaN}',
            "a number too large": b'{"number": 1, "more": {"list": [1e400]}}',
            "a lone surrogate": b'{"number": 1, "text": "\\ud800"}',
            "no UTF-8": b'{"number": 1, "text": "\xff"}',
            "no UTF-8 in what is not read": b'{"number": 1, "unread": "\xff"}',
            "a line end in a text": b'{"number": 1, "text": "\n"}',
        }
