"""What the conformance kit's harnesses of all table formats share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

NUMBERS: Final = pa.schema([pa.field("number", pa.int64())])
"""Columns of the tables."""


class TableHarness(ABC):
    """A table of numbers in a folder; each write is a commit. See `Harness`.

    Args:
        folder: For the tables.
    """

    single_partition = True
    stream_type: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def _location(self) -> str:
        """The folder of the present table."""

    def properties(self) -> Mapping[str, str]:
        """The configuration of the present table."""
        return self._at(self._location())

    def nowhere(self) -> Mapping[str, str]:
        """A configuration without a table."""
        return self._at(str(self.folder / "none"))

    def partitions(self) -> Sequence[int]:
        """The only one."""
        return [0]

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """What was written in the rows."""
        found: list[int] = rows.column("number").to_pylist()
        return found

    def close(self) -> None:  # noqa: B027 - most writers hold nothing open
        """Release what is open: nothing."""

    def _at(self, path: str) -> Mapping[str, str]:
        prefix = f"stream.{self.stream_type}"
        return {
            "streamType": self.stream_type,
            f"{prefix}.path": path,
            f"{prefix}.poll.interval.millis": "5",
        }


def numbers_table(numbers: Sequence[int]) -> pa.Table:
    """The rows of one write."""
    return pa.table([pa.array(numbers, pa.int64())], schema=NUMBERS)
