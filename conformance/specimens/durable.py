"""``durable``: a stream in a single file, for reading and writing.

The file is a run of frames: length, checksum, a line of JSON, Arrow IPC. The first
frame has the incarnation, the schema and the number of partitions; every other one is
a commit, a growth or a retention, written and fsynced under a lock. A frame counts
once it is whole: a torn tail is ignored by readers and overwritten by the next writer.
Offsets count rows.

Nothing is kept open between calls, so nothing leaks and a fork disturbs nobody. What a
task wrote travels inside its commit message: nothing is staged on disk, and an attempt
that nobody commits leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import struct
import time
import uuid
import zlib
from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from streamfactory.spi import (
    PATH,
    Backend,
    BatchState,
    Claims,
    CommitMessage,
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
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import BinaryIO

_FRAME: Final = struct.Struct(">II")
_POLL: Final = 0.01
_CLAIMS: Final = Claims(
    replayable=True,
    durable=True,
    shared=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)


# --- the file -------------------------------------------------------------------


def pack(head: Mapping[str, Any], body: bytes = b"") -> bytes:
    """A frame."""
    payload = json.dumps(head).encode() + b"\n" + body
    return _FRAME.pack(len(payload), zlib.crc32(payload)) + payload


def unpack(data: bytes) -> Iterator[tuple[dict[str, Any], bytes, int]]:
    """The whole frames at the beginning of ``data``: head, body, length."""
    at = 0
    while len(data) - at >= _FRAME.size:
        length, checksum = _FRAME.unpack_from(data, at)
        begin, end = at + _FRAME.size, at + _FRAME.size + length
        if zlib.crc32(data[begin:end]) != checksum:
            if end < len(data):
                msg = f"the file is corrupt: a frame of {length} bytes is damaged"
                raise PermanentError(msg)
            return
        head, _, body = data[begin:end].partition(b"\n")
        yield json.loads(head), body, end - at
        at = end


def to_ipc(schema: pa.Schema, batches: Sequence[pa.RecordBatch] = ()) -> bytes:
    """Rows as an Arrow IPC stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


@dataclass(slots=True)
class Lane:
    """One partition, as far as the file was read."""

    earliest: int = 0
    latest: int = 0
    bases: list[int] = field(default_factory=list)
    chunks: list[pa.RecordBatch] = field(default_factory=list)

    def append(self, rows: pa.RecordBatch) -> None:
        """Rows of a commit; of no rows nothing is kept."""
        if rows.num_rows:
            self.bases.append(self.latest)
            self.chunks.append(rows)
            self.latest += rows.num_rows


class Topic:
    """What the file holds. One thread at a time.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._forget()
        self.refresh()

    def refresh(self) -> None:
        """Read the frames that were added.

        Raises:
            TopicNotFound: permanent; there is no file.
        """
        with self._locked("rb", fcntl.LOCK_SH) as file:
            self._read(file)

    def append(self, head: Mapping[str, Any], body: bytes = b"") -> None:
        """Add a frame; it is on the disk when this returns."""
        with self._locked("r+b", fcntl.LOCK_EX) as file:
            self._read(file)
            self._write(file, head, body)

    def commit(self, head: dict[str, Any], body: bytes) -> LastCommit | None:
        """Add an epoch, unless it is there; looking and adding are one step."""
        with self._locked("r+b", fcntl.LOCK_EX) as file:
            self._read(file)
            kept = self.writers.get(head["writer"])
            if kept is not None and head["epoch"] <= kept[0].epoch:
                return kept[0]
            self._write(file, head, body)
            return None

    def _forget(self) -> None:
        self.incarnation = ""
        self.schema = pa.schema([])
        self.lanes: dict[int, Lane] = {}
        self.writers: dict[str, tuple[LastCommit, float]] = {}
        self._at = 0

    def _locked(self, mode: str, kind: int) -> BinaryIO:
        try:
            file = Path(self._path).open(mode)  # noqa: SIM115 - the caller closes it
        except FileNotFoundError as error:
            msg = f"there is no file {self._path!r}"
            raise TopicNotFound(msg) from error
        fcntl.flock(file, kind)  # given back when the file is closed
        return file  # type: ignore[return-value]

    def _read(self, file: BinaryIO) -> None:
        first = next(unpack(file.read(4096)), None)
        if first is None:
            msg = f"{self._path!r} has no header"
            raise PermanentError(msg)
        if first[0]["incarnation"] != self.incarnation:
            self._forget()
        file.seek(self._at)
        for head, body, length in unpack(file.read()):
            self._apply(head, body)
            self._at += length

    def _write(self, file: BinaryIO, head: Mapping[str, Any], body: bytes) -> None:
        file.seek(self._at)
        file.truncate()
        file.write(pack(head, body))
        file.flush()
        os.fsync(file.fileno())

    def _apply(self, head: dict[str, Any], body: bytes) -> None:
        if "incarnation" in head:
            self.incarnation = head["incarnation"]
            self.schema = pa.ipc.open_stream(body).schema
        for number in range(len(self.lanes), head.get("partitions", 0)):
            self.lanes[number] = Lane()
        for number, earliest in head.get("earliest", {}).items():
            self.lanes[int(number)].earliest = earliest
        if "lanes" in head:
            for number, rows in zip(
                head["lanes"], pa.ipc.open_stream(body), strict=True
            ):
                self.lanes[number].append(rows)
        if head.get("writer") is not None:
            self.writers[head["writer"]] = (_last_commit(head), head["at"])


def _last_commit(head: Mapping[str, Any]) -> LastCommit:
    text = head["position"]
    position = None if text is None else Position.from_json(text)
    return LastCommit(head["epoch"], position, Summary(*head["summary"]))


# --- reading --------------------------------------------------------------------


class DurableConsumer(PartitionLevelConsumer):
    """Reads one partition."""

    def __init__(self, path: str, partition: Partition) -> None:
        self._topic = Topic(path)
        self._number = partition.id
        self._incarnation = self._topic.incarnation
        self._lane()

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        """Rows of the one chunk that holds ``start``; polls where nothing is."""
        deadline = time.monotonic() + limits.timeout
        while True:
            self._topic.refresh()
            incarnation, lane = self._topic.incarnation, self._lane()
            if incarnation != self._incarnation:
                self._incarnation = incarnation
                return Fetched(None, lane.earliest, incarnation=incarnation)
            left = deadline - time.monotonic()
            if start != lane.latest or left <= 0:
                break
            time.sleep(min(_POLL, left))
        if not lane.earliest <= start <= lane.latest:
            msg = f"the file has offsets {lane.earliest} to {lane.latest}, not {start}"
            raise OffsetOutOfRange(msg, earliest=lane.earliest, latest=lane.latest)
        rows, state = None, BatchState.CAUGHT_UP
        if start < lane.latest:
            index = bisect_right(lane.bases, start) - 1
            most = limits.max_rows if end is None else min(limits.max_rows, end - start)
            rows = lane.chunks[index].slice(start - lane.bases[index], most)
        return Fetched(
            rows,
            start if rows is None else start + rows.num_rows,
            state=state if rows is None else None,
            latest=lane.latest,
            held_from=lane.earliest,
            incarnation=incarnation,
        )

    def _lane(self) -> Lane:
        if self._number not in self._topic.lanes:
            msg = f"the file has no partition {self._number}"
            raise TopicNotFound(msg)
        return self._topic.lanes[self._number]


class DurableMetadata(MetadataProvider):
    """Reads the file for every answer: nothing is shared between threads."""

    def __init__(self, path: str) -> None:
        self._path = path

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        """All partitions."""
        topic = Topic(self._path)
        return [
            PartitionInfo(
                Partition(topics[0], number),
                lane.earliest,
                lane.latest,
                incarnation=topic.incarnation,
            )
            for number, lane in topic.lanes.items()
        ]

    def fetch_schema(self, topic: str) -> pa.Schema:
        """The schema in the header."""
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
        """Make a consumer."""
        return DurableConsumer(self.config["path"], partition)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        """Make a provider."""
        return DurableMetadata(self.config["path"])


# --- writing --------------------------------------------------------------------


class DurableWriter(StreamWriter):
    """Keeps the rows of one attempt until it ends."""

    def __init__(self, topic: Topic) -> None:
        self._schema = topic.schema
        self._rows: list[Outgoing] = []

    def write(self, outgoing: Outgoing) -> None:
        """Keep rows."""
        self._rows.append(outgoing)

    def commit(self) -> Any:
        """The rows themselves."""
        batches = [outgoing.rows for outgoing in self._rows]
        lanes = [outgoing.partition for outgoing in self._rows]
        return {"lanes": lanes, "rows": to_ipc(self._schema, batches)}


class DurableCommitter(StreamCommitter):
    """Writes an epoch as one frame."""

    def __init__(self, config: StreamConfig, writer_id: str | None) -> None:
        self._config = config
        self._writer_id = writer_id

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        """Append the frame, unless the epoch is there."""
        topic = Topic(self._config["path"])
        summary = sum((message.summary for message in messages), Summary())
        lanes: list[int] = []
        batches: list[pa.RecordBatch] = []
        for message in messages:
            lanes += message.payload["lanes"]
            batches += pa.ipc.open_stream(message.payload["rows"])
        head = {
            "writer": self._writer_id,
            "epoch": epoch,
            "at": time.time(),
            "lanes": lanes,
            "position": None if source_position is None else source_position.to_json(),
            "summary": [summary.rows, dict(summary.sums)],
        }
        return topic.commit(head, to_ipc(topic.schema, batches))

    def last(self) -> LastCommit | None:
        """What the file remembers."""
        return _remembered(self._config, self._writer_id)


class DurableProducerFactory(ProducerFactory):
    """Writes the file."""

    CLAIMS: ClassVar = _CLAIMS

    def create_writer(self, context: WriteContext) -> StreamWriter:
        """Make a writer."""
        return DurableWriter(Topic(self.config["path"]))

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        """Make a committer."""
        return DurableCommitter(self.config, writer_id)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        """What the file remembers."""
        return _remembered(self.config, writer_id)

    def fetch_partition_count(self, topic: str) -> int:
        """As the file has them."""
        return len(Topic(self.config["path"]).lanes)

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        """The schema in the header."""
        return Topic(self.config["path"]).schema


def _remembered(config: StreamConfig, writer_id: str | None) -> LastCommit | None:
    kept = Topic(config["path"]).writers.get(writer_id or "")
    if kept is None or time.time() - kept[1] > config["writer.memory"] / 1000:
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
        translate=ErrorTable({PermissionError: NotAuthorized, OSError: PermanentError}),
        options=(Option("path", "The file.", PATH, required=True),),
    )


# --- the harness ----------------------------------------------------------------


class DurableHarness:
    """Writes and reads the frames by itself."""

    SCHEMA: Final = pa.schema([pa.field("number", pa.int64())])

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "none"
        self._count = 0

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
