"""The conformance kit's access to ``delta``: writes with ``deltalake``."""

from __future__ import annotations

import json
import shutil
import uuid
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, PostCommitHookProperties, write_deltalake

from streamfactory.tables.harness import NUMBERS, TableHarness, numbers_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_HOOKS: Final = PostCommitHookProperties(
    create_checkpoint=False, cleanup_expired_logs=False
)


class DeltaHarness(TableHarness):
    """A table of numbers in a folder; each write is a commit."""

    stream_type = "delta"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder

    def _location(self) -> str:
        return str(self._path)

    def create(self, partitions: int) -> None:
        self._path = self.folder / uuid.uuid4().hex
        self._table = self._created()

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        rows = numbers_table(numbers)
        # The table stays open: opening it takes as long as the write.
        write_deltalake(
            self._table, rows, mode="append", post_commithook_properties=_HOOKS
        )

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        """Rows for a writer."""
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=NUMBERS)

    def visible(self) -> Mapping[int, Sequence[int]]:
        """The rows of all files that the log names, commit by commit."""
        found: list[int] = []
        for commit in sorted((self._path / "_delta_log").glob("*.json")):
            for line in commit.read_text().splitlines():
                added = json.loads(line).get("add")
                if added is not None:
                    table = pq.read_table(self._path / added["path"])
                    found += table.column("number").to_pylist()
        return {0: found}

    def recreate(self) -> None:
        shutil.rmtree(self._path)
        self._table = self._created()

    def _created(self) -> DeltaTable:
        return DeltaTable.create(str(self._path), NUMBERS)
