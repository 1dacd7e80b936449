"""What the project keeps in folders of others: manifests, staged rows of Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.fuzz import mutating
from tests.fuzz.corpus import Seed
from tests.fuzz.entries.base import Entry, configured, numbered

from streamfactory.arrowlog import message_schema
from streamfactory.backends.file.foreign.parts import MANIFEST
from streamfactory.backends.file.reading import FileConsumerFactory
from streamfactory.backends.kafka.parcels import encoded, read_parcels
from streamfactory.spi import FetchLimits, Partition

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

_NOW: Final = FetchLimits(1000, 1 << 24, 0.0)


class FolderManifests(Entry):
    """The manifest of a folder of Arrow files."""

    NAME = "file-manifest"

    def prepare(self) -> None:
        self._folder = self.folder / "arrow"
        self._folder.mkdir()
        for name, first in (("a", 0), ("b", 3)):
            rows = pa.record_batch({"id": [first, first + 1, first + 2]})
            with pa.ipc.new_file(str(self._folder / name), rows.schema) as writer:
                writer.write_batch(rows)
        properties = {
            "streamType": "file",
            "stream.file.topic.name": "t",
            "stream.file.path": str(self._folder),
            "stream.file.format": "auto",
        }
        self._config = configured(properties).config
        with numbered():
            list(self._read())
        [self._part] = (self._folder / MANIFEST).iterdir()
        self._text = self._part.read_bytes()

    def make(self, chance: random.Random) -> bytes:
        if chance.random() < 0.25:
            return self._text
        lines = self._text.splitlines()
        at = chance.randrange(len(lines))
        if chance.random() < 0.7:
            damaged = mutating.json_of(json.loads(lines[at]), chance)
            lines[at] = damaged.encode("utf-8", "surrogatepass")
            return b"\n".join([*lines, b""])
        return mutating.text_of(self._text, chance)

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        self._part.write_bytes(data)
        yield from self._read()

    def _read(self) -> Generator[pa.RecordBatch]:
        factory = FileConsumerFactory(self._config)
        try:
            metadata = factory.create_metadata_provider("fuzz")
            try:
                metadata.fetch_partitions(["t"], ())
                metadata.fetch_schema("t")
            finally:
                metadata.close()
            consumer = factory.create_partition_level_consumer(
                "fuzz", Partition("t", 0)
            )
            at = 0
            try:
                while True:
                    found = consumer.fetch_messages(at, None, _NOW)
                    at = found.next_offset
                    if found.rows is None:
                        return
                    yield found.rows
            finally:
                consumer.close()
        finally:
            factory.close()

    def check(self) -> str | None:
        return None if (self._folder / "a").exists() else "a file of the folder is gone"


class StagedRows(Entry):
    """Rows that a task staged for the committer of Kafka."""

    NAME = "kafka-staged"
    SHARE = 2

    def prepare(self) -> None:
        rows = [
            {"key": b"k", "value": b"v" * length, "headers": [("a", b"b")]}
            for length in (0, 1, 40)
        ]
        batch = pa.RecordBatch.from_pylist(rows, schema=message_schema())
        stream = encoded([("clicks", 0, batch), ("carts", 3, batch.slice(1))])
        schema = message_schema().serialize().to_pybytes()
        self._seed = Seed("staged", stream, b"", schema)

    def make(self, chance: random.Random) -> bytes:
        return mutating.stream_of(self._seed, chance, self._plain)

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        for _, _, rows in read_parcels(pa.BufferReader(data)):
            yield rows
