"""``durable``: a stream in a single file, for reading and writing.

The file is a run of frames (`frames`), and a commit is one of them. Offsets count rows.
Nothing is kept open between calls, so nothing leaks and a fork is safe. What a
task wrote travels inside its commit message: nothing is staged on disk, and an attempt
that is never committed leaves nothing behind.
"""

# Overriding methods keep the docstring, and the arguments, of their contract.
# ruff: noqa: ARG002, D102

from __future__ import annotations

import json
import os
import struct
import sys
import time
import uuid
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from streamfactory.conformance.specimens.frames import PartitionFrames, Topic, to_ipc
from streamfactory.spi import (
    PATH,
    Backend,
    BatchState,
    Claims,
    CommitMessage,
    ConnectionFailed,
    ConsumerFactory,
    EpochVisibility,
    ErrorTable,
    Fetched,
    FetchLimits,
    LastCommit,
    MetadataProvider,
    NotAuthorized,
    OffsetOutOfRange,
    Option,
    Outgoing,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    PermanentError,
    Position,
    ProducerFactory,
    StreamCommitter,
    StreamConfig,
    StreamWriter,
    Summary,
    TopicNotFound,
    WriteContext,
    hookimpl,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

_POLL: Final = 0.01
_CLAIMS: Final = Claims(
    replayable=True,
    durable=True,
    shared=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)


# --- reading --------------------------------------------------------------------


class DurableConsumer(PartitionLevelConsumer):
    """Reads one partition."""

    TOPIC: ClassVar[type[Topic]] = Topic

    def __init__(self, path: str, partition: Partition) -> None:
        self._topic = self.TOPIC(path)
        self._number = partition.id
        self._incarnation = self._topic.incarnation
        self._partition()

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        """Rows of the one chunk that holds ``start``; polls where nothing is."""
        deadline = time.monotonic() + limits.timeout
        while True:
            self._topic.refresh()
            incarnation, partition = self._topic.incarnation, self._partition()
            if incarnation != self._incarnation:
                self._incarnation = incarnation
                return Fetched(None, partition.earliest, incarnation=incarnation)
            left = deadline - time.monotonic()
            if start != partition.latest or left <= 0:
                break
            time.sleep(min(_POLL, left))
        if not partition.earliest <= start <= partition.latest:
            known = f"{partition.earliest} to {partition.latest}"
            msg = f"the file has offsets {known}, not {start}"
            raise OffsetOutOfRange(
                msg, earliest=partition.earliest, latest=partition.latest
            )
        rows, state = None, BatchState.CAUGHT_UP
        if start < partition.latest:
            index = bisect_right(partition.bases, start) - 1
            most = limits.max_rows if end is None else min(limits.max_rows, end - start)
            rows = partition.chunks[index].slice(start - partition.bases[index], most)
        return Fetched(
            rows,
            start if rows is None else start + rows.num_rows,
            state=state if rows is None else None,
            latest=partition.latest,
            held_from=partition.earliest,
            incarnation=incarnation,
        )

    def _partition(self) -> PartitionFrames:
        if self._number not in self._topic.partitions:
            msg = f"the file has no partition {self._number}"
            raise TopicNotFound(msg)
        return self._topic.partitions[self._number]


class DurableMetadata(MetadataProvider):
    """Reads the file for every answer: nothing is shared between threads."""

    TOPIC: ClassVar[type[Topic]] = Topic

    def __init__(self, path: str) -> None:
        self._path = path

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        topic = self.TOPIC(self._path)
        return [
            PartitionInfo(
                Partition(topics[0], number),
                partition.earliest,
                partition.latest,
                incarnation=topic.incarnation,
            )
            for number, partition in topic.partitions.items()
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        return Topic(self._path).schema


class DurableConsumerFactory(ConsumerFactory):
    """Reads the file."""

    CLAIMS: ClassVar = _CLAIMS

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return DurableConsumer(self.config["path"], partition)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return DurableMetadata(self.config["path"])


# --- writing --------------------------------------------------------------------


class DurableWriter(StreamWriter):
    """Keeps the rows of one attempt until it ends."""

    def __init__(self, topic: Topic) -> None:
        self._schema = topic.schema
        self._rows: list[Outgoing] = []

    def write(self, outgoing: Outgoing) -> None:
        self._rows.append(outgoing)

    def commit(self) -> Any:
        """The rows themselves."""
        batches = [outgoing.rows for outgoing in self._rows]
        partitions = [outgoing.partition for outgoing in self._rows]
        return {"partition": partitions, "rows": to_ipc(self._schema, batches)}


class DurableCommitter(StreamCommitter):
    """Writes an epoch as one frame."""

    def __init__(self, config: StreamConfig, writer_id: str | None) -> None:
        self._config = config
        self._writer_id = writer_id
        self._instance = uuid.uuid4().hex
        self._claimed = False

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        """Append the frame, unless the epoch is committed."""
        self._claim()
        topic = self.topic()
        summary = sum((message.summary for message in messages), Summary())
        partitions: list[int] = []
        batches: list[pa.RecordBatch] = []
        for message in messages:
            partitions += message.payload["partition"]
            batches += pa.ipc.open_stream(message.payload["rows"])
        head = {
            "writer": self._writer_id,
            "epoch": epoch,
            "at": time.time(),
            "partition": partitions,
            "position": None if source_position is None else source_position.to_json(),
            "summary": [summary.rows, dict(summary.sums)],
        }
        return topic.commit(head, to_ipc(topic.schema, batches), self._instance)

    def last(self) -> LastCommit | None:
        self._claim()
        return _remembered(self._config, self._writer_id)

    def topic(self) -> Topic:
        """The file, read."""
        return Topic(self._config["path"])

    def _claim(self) -> None:
        """Once: an instance that was fenced stays fenced."""
        if self._writer_id is not None and not self._claimed:
            self.topic().claim(self._writer_id, self._instance)
            self._claimed = True


class DurableProducerFactory(ProducerFactory):
    """Writes the file."""

    CLAIMS: ClassVar = _CLAIMS

    def create_writer(self, context: WriteContext) -> StreamWriter:
        return DurableWriter(Topic(self.config["path"]))

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return DurableCommitter(self.config, writer_id)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        return _remembered(self.config, writer_id)

    def fetch_partition_count(self, topic: str) -> int:
        return len(Topic(self.config["path"]).partitions)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        return Topic(self.config["path"]).schema


def _remembered(config: StreamConfig, writer_id: str | None) -> LastCommit | None:
    kept = Topic(config["path"]).writers.get(writer_id or "")
    if kept is None or time.time() - kept[1] > config["writer.memory.millis"] / 1000:
        return None
    return kept[0]


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="durable",
        doc="A stream in a single file: a specimen.",
        spi_level=1,
        consumer_factory=DurableConsumerFactory,
        producer_factory=DurableProducerFactory,
        translate=ErrorTable(
            {
                ConnectionError: ConnectionFailed,
                PermissionError: NotAuthorized,
                OSError: PermanentError,
            }
        ),
        options=(Option("path", "The file.", PATH, required=True),),
    )


# --- the harness ----------------------------------------------------------------


class DurableHarness:
    """Writes and reads the frames without the backend."""

    SCHEMA: Final = pa.schema([pa.field("number", pa.int64())])

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "none"
        self._count = 0

    @staticmethod
    def plugin() -> object:
        """This module: no entry point names it."""
        return sys.modules[__name__]

    def create(self, partitions: int) -> None:
        """Begin a new file."""
        self._path = self._folder / f"{uuid.uuid4().hex}.frames"
        self._begin(partitions)

    def properties(self) -> Mapping[str, str]:
        """The file is found by its path; the topic is but its name."""
        return {
            "streamType": "durable",
            "stream.durable.topic.name": "numbers",
            "stream.durable.path": str(self._path),
        }

    def partitions(self) -> Sequence[int]:
        """As the frames say."""
        return list(self.visible())

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        """Append a commit without a writer."""
        rows = self.rows(numbers)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        self._append({"partition": [partition]}, sink.getvalue().to_pybytes())

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def grow(self, partitions: int) -> None:
        """Append a growth."""
        self._append({"partitions": partitions})

    def truncate(self, partition: int, messages: int) -> None:
        """Append a retention."""
        earliest = self._read()[1].get(partition, 0)
        self._append({"earliest": {str(partition): earliest + messages}})

    def recreate(self) -> None:
        """Begin a new file in place of the old."""
        partitions = len(self.partitions())
        self._path.unlink()
        self._begin(partitions)

    def stop(self) -> None:
        """Take the server of the file away."""
        self._server().write_text("")

    def start(self) -> None:
        """Have it back, in another session."""
        self._server().write_text(uuid.uuid4().hex)

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=self.SCHEMA)

    def visible(self) -> Mapping[int, Sequence[int]]:
        """What the frames hold, less what retention took."""
        partitions, earliest = self._read()
        return {
            partition: rows[earliest.get(partition, 0) :]
            for partition, rows in partitions.items()
        }

    def nowhere(self) -> Mapping[str, str]:
        """A file that is not there."""
        return {"stream.durable.path": str(self._folder / "nowhere.frames")}

    def close(self) -> None:
        """Nothing is open; the folder is the kit's."""

    def _server(self) -> Path:
        return self._path.with_name(f"{self._path.name}.server")

    def _begin(self, partitions: int) -> None:
        head = {"incarnation": uuid.uuid4().hex, "partitions": partitions}
        sink = pa.BufferOutputStream()
        pa.ipc.new_stream(sink, self.SCHEMA).close()
        self._append(head, sink.getvalue().to_pybytes())

    def _append(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        payload = json.dumps(head).encode() + b"\n" + body
        with self._path.open("ab") as file:
            file.write(struct.pack(">II", len(payload), zlib.crc32(payload)) + payload)
            file.flush()
            os.fsync(file.fileno())

    def _read(self) -> tuple[dict[int, list[int]], dict[int, int]]:
        partitions: dict[int, list[int]] = {}
        earliest: dict[int, int] = {}
        data = self._path.read_bytes()
        while data:
            length = int.from_bytes(data[:4], "big")
            head, _, body = data[8 : 8 + length].partition(b"\n")
            found, data = json.loads(head), data[8 + length :]
            for partition in range(len(partitions), found.get("partitions", 0)):
                partitions[partition] = []
            earliest |= {int(k): v for k, v in found.get("earliest", {}).items()}
            if "partition" in found:
                batches = pa.ipc.open_stream(body)
                for partition, rows in zip(found["partition"], batches, strict=True):
                    partitions[partition] += self.numbers(rows)
        return partitions, earliest
