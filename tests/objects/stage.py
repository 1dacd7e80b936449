"""What the tests of object stores share: places, topics, and the kit's hand on them."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.objects.server import BUCKET, OWNER, ObjectServer, program
from tests.proving.shared import started_once
from tests.proving.skipping import skip_or_fail

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, Settings
from streamfactory.arrowlog.disk.objectclient import ObjectOptions
from streamfactory.arrowlog.disk.objects import ObjectStorage
from streamfactory.arrowlog.harness import LogHarness
from streamfactory.spi import Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tests.objects.server import Identity
    from tests.proving.shared import Run

    from streamfactory.arrowlog.disk import DiskLog

SCHEMA = pa.schema([pa.field("number", pa.int64())])


def serve(run: Run) -> ObjectServer:
    """The server of a run of tests: started by the first process that needs it."""
    if program() is None:
        reason = "no object server: run: pip install 'streamfactory[dev]'"
        skip_or_fail(reason)

    def start() -> dict[str, int]:
        folder = run.folder / "objects"
        folder.mkdir()
        return {"port": ObjectServer.start(folder, run.process).port}

    return ObjectServer(started_once(run, "object-server", start)["port"])


def place() -> str:
    """A URL that no other test uses."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


def options(
    endpoint: str, who: Identity = OWNER, timeout: float = 20.0
) -> ObjectOptions:
    return ObjectOptions(
        config={
            "endpoint": endpoint,
            "region": "us-east-1",
            "access_key_id": who.key,
            "secret_access_key": who.secret,
        },
        allow_http=True,
        timeout=timeout,
    )


def storage_at(endpoint: str, url: str, **how: Any) -> ObjectStorage:
    return ObjectStorage(url, options(endpoint, **how))


def properties_at(endpoint: str, url: str, topic: str) -> dict[str, str]:
    """A configuration whose secrets are in the environment: see `credentials`."""
    prefix = "stream.file."
    return {
        "streamType": "file",
        f"{prefix}path": url,
        f"{prefix}topic.name": topic,
        f"{prefix}storage.endpoint": endpoint,
        f"{prefix}storage.region": "us-east-1",
        f"{prefix}storage.access.key": "${env:OBJECT_KEY}",
        f"{prefix}storage.secret.key": "${env:OBJECT_SECRET}",
        f"{prefix}storage.allow.http": "true",
    }


def rows(numbers: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def append(
    log: DiskLog,
    numbers: Sequence[int],
    writer: str | None = None,
    epoch: int = 0,
    instance: str = "",
) -> None:
    stage = log.stage(uuid.uuid4().hex)
    stage.append(0, rows(numbers))
    summary = Summary(len(numbers))
    log.commit(Epoch(writer, epoch, [stage.seal()], summary, instance=instance))


def numbers_of(log: DiskLog, partition: int = 0) -> list[int]:
    bounds = log.bounds()[partition]
    at, found = bounds.earliest, []
    while at < bounds.latest:
        part = log.read(partition, at, max_rows=2**31, max_bytes=2**62)
        assert part.rows is not None
        found += part.rows.column("number").to_pylist()
        at += part.rows.num_rows
    return found


class ObjectHarness(LogHarness):
    """A topic of numbers in a bucket of the server that the environment names."""

    def __init__(self, folder: Path) -> None:
        self._endpoint = os.environ["OBJECT_ENDPOINT"]
        self._url = f"s3://{BUCKET}/{folder.name}-{uuid.uuid4().hex}"
        self._storage = storage_at(self._endpoint, self._url)
        self._disk = DiskLogStore(self._storage, Settings())
        super().__init__(self._disk)

    def properties(self) -> Mapping[str, str]:
        return properties_at(self._endpoint, self._url, self.topic)

    def close(self) -> None:
        super().close()
        self._disk.close()
        self._storage.close()
