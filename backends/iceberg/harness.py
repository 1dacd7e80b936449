"""The conformance kit's access to ``iceberg``: writes with ``pyiceberg``."""

from __future__ import annotations

import os
import shutil
import uuid
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.concurrent import ExecutorFactory

from streamfactory.tables.harness import NUMBERS, TableHarness, numbers_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_NAMESPACE: Final = "kit"


class IcebergHarness(TableHarness):
    """A table of numbers in a catalog in a folder; each write is a commit."""

    stream_type = "iceberg"

    @classmethod
    def prepare(cls) -> None:
        # The thread that writes runs as long as the process.
        os.environ.setdefault("PYICEBERG_MAX_WORKERS", "1")
        ExecutorFactory.get_or_create().submit(int).result()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._catalog = SqlCatalog(
            "default",
            uri=f"sqlite:///{folder}/catalog.db",
            warehouse=f"file://{folder}",
        )
        self._catalog.create_namespace(_NAMESPACE)
        self._name = ""

    def properties(self) -> Mapping[str, str]:
        """The configuration of the present table."""
        return self._named(self._name)

    def nowhere(self) -> Mapping[str, str]:
        """A configuration without a table."""
        return self._named(f"{_NAMESPACE}.none")

    def create(self, partitions: int) -> None:
        self._name = f"{_NAMESPACE}.t{uuid.uuid4().hex}"
        self._table = self._catalog.create_table(self._name, NUMBERS)

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self._table.append(numbers_table(numbers))

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        """Rows for a writer."""
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=NUMBERS)

    def visible(self) -> Mapping[int, Sequence[int]]:
        """The rows of all files of the newest snapshot, commit by commit."""
        table = self._catalog.load_table(self._name)
        snapshot = table.current_snapshot()
        manifests = [] if snapshot is None else snapshot.manifests(table.io)
        entries = [e for one in manifests for e in one.fetch_manifest_entry(table.io)]
        found: list[int] = []
        for entry in sorted(entries, key=lambda e: e.sequence_number or 0):
            rows = pq.read_table(urlsplit(entry.data_file.file_path).path)
            found += rows.column("number").to_pylist()
        return {0: found}

    def recreate(self) -> None:
        location = self._location()
        self._catalog.drop_table(self._name)
        shutil.rmtree(location)
        self._table = self._catalog.create_table(
            self._name, NUMBERS, location=f"file://{location}"
        )

    def close(self) -> None:
        self._catalog.close()

    def _location(self) -> str:
        return urlsplit(self._table.location()).path

    def _named(self, name: str) -> Mapping[str, str]:
        prefix = f"stream.{self.stream_type}"
        return {
            "streamType": self.stream_type,
            f"{prefix}.table": name,
            f"{prefix}.warehouse": str(self.folder),
            f"{prefix}.poll.interval.millis": "5",
        }
