"""Messages of ``csv`` for the conformance kit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Arrow's reader opens a signal pipe once per process. Done here: it is not a leak.
csv.read_csv(pa.BufferReader(b"column\n"))


class CsvHarness:
    """Encodes a number as a field, next to a quoted field with a line end."""

    def options(self) -> Mapping[str, str]:
        """Three columns."""
        return {"schema": "number bigint not null, text string, at timestamp"}

    def message(self, numbers: Sequence[int]) -> bytes:
        """A record for each number."""
        records = [
            f'{number},"a text,\nof ""two"" lines",2013-01-01T05:00:00Z'
            if number % 3 == 0
            else f"{number},a text,"
            for number in numbers
        ]
        return "\n".join(records).encode()

    def misfit(self, number: int) -> bytes:
        """An invalid timestamp."""
        return f"{number},a,yesterday".encode()

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The column ``number``."""
        return list(rows.column("number").to_pylist())

    def bad(self) -> Mapping[str, bytes]:
        """Messages with other columns or invalid values."""
        return {
            "two fields": b"1,a",
            "four fields": b"1,a,,",
            "an open quote": b'1,"a,',
            "an open quote before a line end": b'1,"a,\n',
            "a second record of two fields": b"1,a,\n2,b",
            "text behind a closing quote": b'1,"a"b,',
            "a blank behind a closing quote": b'1,"a" ,',
            "text behind an empty quoted field": b'1,""a,\n2,b,',
            "no number": b"one,a,",
            "a number in hexadecimal": b"0x1,a,",
            "a number of 65 bits": b"9223372036854775808,a,",
            "null, which may not be": b",a,",
            "no time": b"1,a,yesterday",
            "a time without zone": b"1,a,2013-01-01T05:00:00",
            "a second record without a number": b"1,a,\none,b,",
            "no UTF-8": b"1,\xff,",
        }
