"""The conformance kit's access to ``hudi``: writes a table as Hudi 0.x lays it out.

Each write is a commit of one new file group of a copy-on-write table of version 6,
whose commits are JSON. Tables that Hudi's own writer left are in ``tests/data/tables``.
"""

from __future__ import annotations

import json
import shutil
import uuid
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from streamfactory.tables.harness import TableHarness, numbers_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PROPERTIES: Final = """\
hoodie.table.name={name}
hoodie.table.type=COPY_ON_WRITE
hoodie.table.version=6
hoodie.timeline.layout.version=1
hoodie.table.timeline.timezone=UTC
"""
_SCHEMA: Final = {
    "type": "record",
    "name": "numbers",
    "fields": [{"name": "number", "type": ["null", "long"], "default": None}],
}


class HudiHarness(TableHarness):
    """A table of numbers in a folder; each write is a commit."""

    stream_type = "hudi"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._path = folder
        self._last = datetime.now(UTC)

    def _location(self) -> str:
        return str(self._path)

    def create(self, partitions: int) -> None:
        self._path = self.folder / uuid.uuid4().hex
        self._make()

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        """Write a file group, then its commit, in one rename."""
        time = self._time()
        group = f"{uuid.uuid4()}-0"
        name = f"{group}_0-1-1_{time}.parquet"
        count = len(numbers)
        columns = {
            "_hoodie_commit_time": [time] * count,
            "_hoodie_commit_seqno": [f"{time}_0_{row}" for row in range(count)],
            "_hoodie_record_key": [uuid.uuid4().hex for _ in numbers],
            "_hoodie_partition_path": [""] * count,
            "_hoodie_file_name": [name] * count,
        }
        table = pa.table(columns).append_column(
            "number", numbers_table(numbers).column("number")
        )
        pq.write_table(table, self._path / name)
        stat = {
            "fileId": group,
            "path": name,
            "partitionPath": "",
            "prevCommit": "null",
            "numWrites": count,
            "numInserts": count,
            "numUpdateWrites": 0,
            "numDeletes": 0,
        }
        commit = {
            "partitionToWriteStats": {"": [stat]},
            "operationType": "INSERT",
            "extraMetadata": {"schema": json.dumps(_SCHEMA)},
        }
        self._complete(time, commit)

    def recreate(self) -> None:
        shutil.rmtree(self._path)
        self._make()

    def _make(self) -> None:
        timeline = self._path / ".hoodie"
        timeline.mkdir(parents=True)
        name = f"numbers_{uuid.uuid4().hex[:8]}"
        text = _PROPERTIES.format(name=name)
        (timeline / "hoodie.properties").write_text(text)
        # An empty table has columns as well.
        extra = {"extraMetadata": {"schema": json.dumps(_SCHEMA)}}
        self._complete(self._time(), {"partitionToWriteStats": {}, **extra})

    def _complete(self, time: str, commit: Mapping[str, object]) -> None:
        timeline = self._path / ".hoodie"
        (timeline / f"{time}.commit.requested").touch()
        part = timeline / f"{time}.inflight"
        part.write_text(json.dumps(commit))
        part.rename(timeline / f"{time}.commit")

    def _time(self) -> str:
        """A time of a commit: later than that of the last."""
        self._last = max(datetime.now(UTC), self._last + timedelta(milliseconds=1))
        return self._last.strftime("%Y%m%d%H%M%S%f")[:17]
