"""The formats of segments: what writes and reads the files of one format.

Batches are numbered from 0 in the order in which they were written.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from streamfactory.arrowlog.checks import MOST_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from streamfactory.arrowlog.disk.settings import Settings

Times = list[tuple[int, int]]
"""First row of each epoch's rows in a batch, and when they were appended, in ms."""


class BatchesOut(ABC):
    """Writes the batches of one segment."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch, times: Times | None) -> None:
        """Write a batch, with the append times of its rows if a merge writes it.

        Raises:
            OSError: The sink failed.
            pa.ArrowInvalid: The format cannot store the batch.
            SchemaMismatch: permanent; the same, of Parquet.
        """

    @property
    def full(self) -> bool:
        """Whether the format allows no further batch."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Write what belongs to the end of the file; the sink remains open."""

    def abandon(self) -> None:  # noqa: B027 - most hold nothing
        """Drop it: nothing is written to the sink from here on."""


class BatchesIn(ABC):
    """Reads the batches of one segment, which is untrusted. Not thread-safe.

    Errors of the content are ``ValueError``, ``OSError`` or Arrow's.
    """

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows of all batches."""

    @abstractmethod
    def check(self, number: int) -> None:
        """Check what a batch expands to, before `read` allocates it.

        Raises:
            ValueError: It expands to more than was committed.
        """

    @abstractmethod
    def read(self, number: int) -> pa.RecordBatch:
        """Read a batch. Its values are not validated."""

    @abstractmethod
    def times(self, number: int) -> tuple[Any, int] | None:
        """Return the append times of a merged batch, and its number of rows.

        The times are as JSON has them. None if no merge has written the batch.
        """


class SegmentFormat(ABC):
    """One format of segments."""

    name: str
    mixed: bool
    """Whether a segment may have rows of several partitions, and gaps in offsets."""
    most_partitions: int = MOST_PARTITIONS
    """Maximum number of partitions of a topic."""

    @abstractmethod
    def check_schema(self, schema: pa.Schema) -> None:
        """Refuse a schema of a new topic that the format cannot store.

        Raises:
            SchemaMismatch: permanent.
        """

    def cut(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Return a batch in parts that readers accept; by default as it is.

        Raises:
            MessageTooLarge: permanent; a row cannot be stored so that readers accept
                it.
        """
        return [rows]

    @abstractmethod
    def create(self, sink: Any, schema: pa.Schema, settings: Settings) -> BatchesOut:
        """Begin a segment."""

    @abstractmethod
    def open(
        self, file: Any, size: int, schema: pa.Schema, committed: Callable[[], int]
    ) -> BatchesIn:
        """Open a segment.

        Args:
            file: An Arrow random-access file.
            size: Its bytes.
            schema: Schema of the topic.
            committed: Returns the bytes in memory of all rows of the segment.
        """


def plain_times(data: bytes) -> Any:
    """Decode append times, which are JSON.

    Raises:
        ValueError: They are not.
    """
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        msg = f"the times of its rows: {error}"
        raise ValueError(msg) from None
