"""The least that a Python stream reader and a Python writer of Spark do.

`mapped` has the least that a Python batch reader does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType


class SingleRows(DataSource):
    """A stream of ``rows`` rows, one in each batch. Keeps no state."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "single-rows"

    def schema(self) -> str:
        """One column."""
        return "id bigint"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """See `_SingleRowReader`."""
        return _SingleRowReader(int(self.options["rows"]))


class _SingleRowReader(DataSourceStreamReader):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"row": 0}

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        return {"row": min(start["row"] + 1, self._rows)}

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        return [InputPartition(row) for row in range(start["row"], end["row"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [partition.value]})


@dataclass(frozen=True)
class _Discarded(WriterCommitMessage):
    """How many rows a task was given."""

    rows: int


class DiscardedRows(DataSource):
    """A sink that drops all batches; they have to have ``rows`` rows."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "discarded-rows"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """See `_DiscardingWriter`."""
        return _DiscardingWriter(int(self.options["rows"]))


class _DiscardingWriter(DataSourceArrowWriter):
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _Discarded(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        found = sum(one.rows for one in messages if isinstance(one, _Discarded))
        if found != self._rows:
            msg = f"{found} rows were written instead of {self._rows}"
            raise ValueError(msg)
