"""The kit, on a prefix of objects of other programs."""

from __future__ import annotations

import io
import os
import uuid
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.conformance.parts import chapters
from tests.objects.server import BUCKET, ObjectServer
from tests.objects.stage import properties_at, storage_at

from streamfactory.backends.file import streamfactory_backend
from streamfactory.conformance import Outcome, Subject, run
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ArrivalsHarness:
    """A prefix; each message batch is an object of Parquet."""

    single_partition = True

    def __init__(self, folder: Path) -> None:
        self._endpoint = os.environ["OBJECT_ENDPOINT"]
        self._server = ObjectServer(int(self._endpoint.rpartition(":")[2]))
        self._key = uuid.uuid4().hex
        self._count = 0

    def create(self, partitions: int) -> None:
        self.close()
        self.write(0, [])

    def properties(self) -> Mapping[str, str]:
        url = f"s3://{BUCKET}/{self._key}"
        return properties_at(self._endpoint, url, "t") | {
            "stream.file.format": "parquet",
            "stream.file.list.interval.millis": "100ms",
        }

    def partitions(self) -> Sequence[int]:
        return [0]

    def write(self, partition: int, values: Sequence[int]) -> None:
        self._count += 1
        table = pa.table({"number": pa.array(values, pa.int64())})
        sink = io.BytesIO()
        pq.write_table(table, sink)
        name = f"{self._key}/{self._count:06d}.parquet"
        obstore.put(self._server.store(), name, sink.getvalue())

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def recreate(self) -> None:
        self.create(1)

    def nowhere(self) -> Mapping[str, str]:
        return {"stream.file.path": f"s3://{uuid.uuid4().hex}/in"}

    def close(self) -> None:
        store = self._server.store()
        listed = obstore.list(store, self._key).collect()
        if listed:
            obstore.delete(store, [found["path"] for found in listed])


@pytest.mark.long("half of the kit, over HTTP")
@pytest.mark.usefixtures("credentials")
def test_arriving_objects_pass_the_kit(server: ObjectServer) -> None:
    # What the client keeps for the life of the process is no leak of a case.
    storage_at(server.endpoint, f"s3://{BUCKET}/none").names("")
    subject = Subject(streamfactory_backend(), ArrivalsHarness, PluginManager())
    cases = chapters("reading", "metadata", "lifecycle", "processes")
    results = list(run(subject, cases=cases, quick=True))
    failed = [(r.case.name, r.reason) for r in results if r.outcome is Outcome.FAILED]
    assert failed == []
    assert sum(r.outcome is Outcome.PASSED for r in results) > 25
