"""``envelopes``: undecoded messages in text files.

A folder has one file for each partition, ``0.jsonl``: a first line with the incarnation
and the earliest offset, then a message a line with its offset, in hexadecimal where
bytes are. Offsets rise with gaps; a null value is a tombstone.
"""

# Overriding methods keep the docstring, and the arguments, of their contract.
# ruff: noqa: ARG002, D102

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from streamfactory.conformance.specimens.envelope_writing import (
    EnvelopesProducerFactory,
)
from streamfactory.spi import (
    INTEGER,
    PATH,
    Backend,
    BatchState,
    Claims,
    ConsumerFactory,
    ErrorTable,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Option,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    PermanentError,
    Position,
    TopicNotFound,
    Yields,
    envelope_schema,
    hookimpl,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_GROUP: Final = ".group.json"
"""End of the name of the file with the position of a group."""
_POLL: Final = 0.01
_LARGEST: Final = 100_000
"""Bytes that a value may have, by default."""
_STEP: Final = 3
"""The harness leaves gaps: every third offset has a message."""


def _load(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line, and the messages; a line counts once its newline is written."""
    text = path.read_text()
    head, *messages = text[: text.rfind("\n") + 1].splitlines()
    return json.loads(head), [json.loads(message) for message in messages]


def _latest(head: dict[str, Any], messages: list[dict[str, Any]]) -> int:
    return int(messages[-1]["offset"]) + 1 if messages else int(head["earliest"])


def _is_message(line: Mapping[str, Any]) -> bool:
    """A line without a value is a marker: it has an offset, and nothing to read."""
    return "value" in line


class EnvelopesConsumer(PartitionLevelConsumer):
    """Reads one file; opens it for each result, because it may have been replaced."""

    def __init__(self, path: Path, partition: Partition) -> None:
        self._path = path
        self._partition = partition
        self._incarnation = _load(path)[0]["incarnation"]

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        """Messages at or after ``start``; polls where there are none."""
        deadline = time.monotonic() + limits.timeout
        while True:
            head, messages = _load(self._path)
            if head["incarnation"] != self._incarnation:
                self._incarnation = head["incarnation"]
                return Fetched(None, head["earliest"], incarnation=self._incarnation)
            found = [m for m in messages if m["offset"] >= start and _is_message(m)]
            left = deadline - time.monotonic()
            if found or left <= 0:
                break
            time.sleep(min(_POLL, left))
        latest = _latest(head, messages)
        wanted = [m for m in found if end is None or m["offset"] < end]
        wanted = wanted[: limits.max_rows]
        if len(wanted) < len(found):
            next_offset = wanted[-1]["offset"] + 1 if wanted else end or start
        else:
            next_offset = max(start, latest)
        return Fetched(
            self._rows(wanted) if wanted else None,
            next_offset,
            state=None if wanted else BatchState.CAUGHT_UP,
            latest=latest,
            held_from=head["earliest"],
            incarnation=self._incarnation,
        )

    def _rows(self, messages: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
        columns: dict[str, list[Any]] = {
            "key": [_bytes(m.get("key")) for m in messages],
            "value": [_bytes(m.get("value")) for m in messages],
            "topic": [self._partition.topic] * len(messages),
            "partition": [self._partition.id] * len(messages),
            "offset": [m["offset"] for m in messages],
            "timestamp": [m.get("timestamp") for m in messages],
            "timestampType": [0 if "timestamp" in m else -1 for m in messages],
            "headers": [
                [(name, _bytes(value)) for name, value in m["headers"]]
                if "headers" in m
                else None
                for m in messages
            ],
        }
        arrays = [pa.array(columns[f.name], f.type) for f in envelope_schema()]
        return pa.RecordBatch.from_arrays(arrays, schema=envelope_schema())


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


class EnvelopesMetadata(MetadataProvider):
    """Reads the first line and the last of each file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        """All files of the folder."""
        paths = sorted(self._folder.glob("*.jsonl"))
        if not paths:
            msg = f"there are no messages in {str(self._folder)!r}"
            raise TopicNotFound(msg)
        return [self._info(topics[0], path) for path in paths]

    def fetch_schema(self, topic: str) -> pa.Schema:
        return envelope_schema()

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        """Times rise with the offsets here; a message without one has none to find."""
        found: dict[Partition, int | None] = {}
        for partition in partitions:
            _, messages = _load(self._folder / f"{partition.id}.jsonl")
            late = [
                message["offset"]
                for message in messages
                if message.get("timestamp", -1) >= timestamp_ms * 1000
            ]
            found[partition] = late[0] if late else None
        return found

    def publish_position(self, group: str, position: Position) -> None:
        path = self._folder / f"{group}{_GROUP}"
        path.write_text(position.to_json(), "utf-8")

    def fetch_groups(self) -> Sequence[str]:
        paths = self._folder.glob(f"*{_GROUP}")
        return sorted(path.name.removesuffix(_GROUP) for path in paths)

    def fetch_positions(self, groups: Collection[str]) -> Mapping[str, Position]:
        paths = {group: self._folder / f"{group}{_GROUP}" for group in groups}
        return {
            group: Position.from_json(path.read_text("utf-8"))
            for group, path in paths.items()
            if path.exists()
        }

    def _info(self, topic: str, path: Path) -> PartitionInfo:
        head, messages = _load(path)
        return PartitionInfo(
            Partition(topic, int(path.stem)),
            head["earliest"],
            _latest(head, messages),
            incarnation=head["incarnation"],
        )


class EnvelopesConsumerFactory(ConsumerFactory):
    """Reads the folder."""

    CLAIMS: ClassVar = Claims(replayable=True, durable=True, shared=True)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        path = Path(self.config["folder"]) / f"{partition.id}.jsonl"
        return EnvelopesConsumer(path, partition)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return EnvelopesMetadata(Path(self.config["folder"]))


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="envelopes",
        doc="Undecoded messages in text files: a specimen.",
        spi_level=1,
        consumer_factory=EnvelopesConsumerFactory,
        producer_factory=EnvelopesProducerFactory,
        yields=Yields.ENVELOPE,
        translate=ErrorTable(
            {FileNotFoundError: TopicNotFound, OSError: PermanentError}
        ),
        options=(
            Option("folder", "Folder with 0.jsonl, 1.jsonl, ...", PATH, required=True),
            Option(
                "value.max.bytes",
                "Bytes that a value may have.",
                INTEGER,
                default=str(_LARGEST),
                minimum=1,
            ),
        ),
    )


# --- the harness ----------------------------------------------------------------


class EnvelopesHarness:
    """Writes the files; a number is the text of a message."""

    largest_value: ClassVar = _LARGEST

    def __init__(self, folder: Path) -> None:
        self._root = folder
        self._folder = folder

    @staticmethod
    def plugin() -> object:
        """This module: no entry point names it."""
        return sys.modules[__name__]

    def create(self, partitions: int) -> None:
        """Begin a new folder."""
        self._folder = self._root / uuid.uuid4().hex
        self._folder.mkdir()
        self.grow(partitions)

    def properties(self) -> Mapping[str, str]:
        """The folder, undecoded."""
        return {
            "streamType": "envelopes",
            "stream.envelopes.topic.name": "messages",
            "stream.envelopes.folder": str(self._folder),
            "stream.envelopes.decoder.class.name": "raw",
        }

    def partitions(self) -> Sequence[int]:
        """Numbers of the files."""
        return sorted(int(path.stem) for path in self._folder.glob("*.jsonl"))

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        """Append a message for each number, with all that an envelope has."""
        self._send(partition, [str(number).encode() for number in numbers])

    def _send(self, partition: int, values: Sequence[bytes | None]) -> None:
        """Append messages of any content; None is a tombstone."""
        now = time.time_ns() // 1000
        self._append(
            partition,
            (
                {
                    "key": b"key".hex(),
                    "value": None if value is None else value.hex(),
                    "timestamp": now,
                    "headers": [["kind", b"test".hex()]],
                }
                for value in values
            ),
        )

    def write_messages(self, partition: int, messages: Sequence[Any]) -> None:
        """Append messages as they are described."""
        lines = []
        for message in messages:
            line: dict[str, Any] = {"value": str(message.number).encode().hex()}
            line["key"] = None if message.key is None else message.key.hex()
            if message.timestamp_ms is not None:
                line["timestamp"] = message.timestamp_ms * 1000
            if message.headers:
                line["headers"] = [
                    [name, None if value is None else value.hex()]
                    for name, value in message.headers
                ]
            lines.append(line)
        self._append(partition, lines)

    def write_values(self, partition: int, values: Sequence[bytes]) -> None:
        """Append messages of any content."""
        self._send(partition, values)

    def gap(self, partition: int, offsets: int) -> None:
        """Append a marker, so many offsets later."""
        self._append(partition, [{}], step=offsets)

    def _append(
        self, partition: int, lines: Iterable[Mapping[str, Any]], step: int = _STEP
    ) -> None:
        head, messages = self._parse(partition)
        at = messages[-1]["offset"] if messages else head["last"]
        with self._file(partition).open("a") as file:
            for line in lines:
                at += step
                file.write(json.dumps({"offset": at, **line}) + "\n")

    def tombstone(self, partition: int) -> None:
        self._send(partition, [None])

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The text of each value."""
        return [int(value) for value in rows.column("value").to_pylist()]

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        """What the ``raw`` encoder takes: a column of bytes."""
        values = [str(number).encode() for number in numbers]
        return pa.record_batch({"value": pa.array(values, pa.binary())})

    def visible(self) -> Mapping[int, Sequence[int]]:
        """The text of each value."""
        found: dict[int, Sequence[int]] = {}
        for partition in self.partitions():
            values = (line.get("value") for line in self._parse(partition)[1])
            found[partition] = [int(bytes.fromhex(v)) for v in values if v is not None]
        return found

    def grow(self, partitions: int) -> None:
        """Add files."""
        for partition in range(len(self.partitions()), partitions):
            self._replace(partition, {"earliest": 0, "last": -_STEP}, [])

    def truncate(self, partition: int, messages: int) -> None:
        """Write the file again, without its oldest messages."""
        head, held = self._parse(partition)
        deleted, kept = held[:messages], held[messages:]
        head |= {"last": deleted[-1]["offset"], "earliest": deleted[-1]["offset"] + 1}
        self._replace(partition, head, kept)

    def recreate(self) -> None:
        """Replace all files by empty ones."""
        for partition in self.partitions():
            self._replace(partition, {"earliest": 0, "last": -_STEP}, [])

    def nowhere(self) -> Mapping[str, str]:
        """A folder that is not there."""
        return {"stream.envelopes.folder": str(self._root / "nowhere")}

    def close(self) -> None:
        """Nothing is open; the folder is the kit's."""

    def _file(self, partition: int) -> Path:
        return self._folder / f"{partition}.jsonl"

    def _parse(self, partition: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        head, *messages = self._file(partition).read_text().splitlines()
        return json.loads(head), [json.loads(message) for message in messages]

    def _replace(
        self, partition: int, head: dict[str, Any], messages: Sequence[Any]
    ) -> None:
        lines = [{"incarnation": uuid.uuid4().hex} | head, *messages]
        new = self._folder / "new"
        new.write_text("".join(json.dumps(line) + "\n" for line in lines))
        new.replace(self._file(partition))
