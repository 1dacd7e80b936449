"""The least that a Python data source of Spark does: it yields mapped Arrow batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

_BATCH: Final = 1 << 16
"""Rows."""


def write_mapped(folder: Path, files: Sequence[str]) -> None:
    """Write the rows of each Parquet file to an Arrow file."""
    folder.mkdir()
    for number, file in enumerate(files):
        rows = _as_spark(pq.read_table(file))
        with pa.ipc.new_file(folder / f"{number}.arrow", rows.schema) as writer:
            writer.write_table(rows, _BATCH)


def _as_spark(rows: pa.Table) -> pa.Table:
    """In the types of a Python data source: Parquet files of Spark have others."""
    instants = pa.timestamp("us", "UTC")
    fields = [
        (field.name, instants if pa.types.is_timestamp(field.type) else field.type)
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


class MappedFiles(DataSource):
    """Arrow files of a folder, one partition each."""

    @classmethod
    def name(cls) -> str:
        """As Spark finds it."""
        return "mapped"

    def schema(self) -> StructType:
        """That of the files."""
        from pyspark.sql.pandas.types import from_arrow_schema

        path = next(Path(self.options["path"]).iterdir())
        with pa.memory_map(str(path)) as file:
            schema = pa.ipc.open_file(file).schema
        found: StructType = from_arrow_schema(schema)
        return found

    def reader(self, schema: StructType) -> DataSourceReader:
        """See `_Reader`; yields the columns of the schema only."""
        return _Reader(self.options["path"], schema.names)


class _Reader(DataSourceReader):
    def __init__(self, folder: str, columns: list[str]) -> None:
        self._folder = folder
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in Path(self._folder).iterdir()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number).select(self._columns)
