"""Messages of ``text`` for the conformance kit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa


class TextHarness:
    """Encodes a number as a group of a pattern."""

    several = False

    def options(self) -> Mapping[str, str]:
        """Two groups."""
        return {
            "pattern": "number (?P<number>-?[0-9]+) at (?P<at>[0-9T:Z-]*)",
            "schema": "number bigint not null, at timestamp",
        }

    def message(self, numbers: Sequence[int]) -> bytes:
        """A sentence."""
        [number] = numbers
        return f"number {number} at 2013-01-01T05:00:00Z".encode()

    def misfit(self, number: int) -> bytes:
        """An invalid timestamp."""
        return f"number {number} at 2013-13-01".encode()

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The column ``number``."""
        return list(rows.column("number").to_pylist())

    def bad(self) -> Mapping[str, bytes]:
        """Messages that do not match, or with invalid values."""
        return {
            "empty": b"",
            "another text": b"nothing",
            "more behind": b"number 1 at 2013-01-01T05:00:00Z.",
            "a line end behind": b"number 1 at 2013-01-01T05:00:00Z\n",
            "a number of 65 bits": b"number 9223372036854775808 at ",
            "no time": b"number 1 at 2013-13-01",
            "no UTF-8": b"number 1 at \xff",
        }
