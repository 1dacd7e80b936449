"""Files that others wrote: foreign Arrow files, and inputs of `publish`."""

from __future__ import annotations

import io
import json
import zlib
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from tests.fuzz import mutating
from tests.fuzz.columns import batch_of
from tests.fuzz.entries.base import Entry, configured

import streamfactory
from streamfactory.backends.file.reading import FileConsumerFactory
from streamfactory.spi import FetchLimits, Partition
from streamfactory.transfer.inputs.base import InputOptions
from streamfactory.transfer.inputs.formats import open_input

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Generator, Iterator, Sequence

    Step = Callable[[], None]
    """Changes the file while it is read."""

_NOW: Final = FetchLimits(1000, 1 << 24, 0.0)
_SOON: Final = 1.0
_ROWS: Final = 1000
_LIMIT: Final = "32M"
_OPTIONS: Final = InputOptions(max_message=32 << 20)


class _Foreign(Entry):
    """One file, through the contract: bounds, schema, rows."""

    FORM = "auto"

    def prepare(self) -> None:
        self.path = self.folder / "damaged.arrow"
        self.properties = {
            "streamType": "file",
            "stream.file.topic.name": "t",
            "stream.file.path": str(self.path),
            "stream.file.format": self.FORM,
            "stream.file.message.max.bytes": _LIMIT,
        }
        mapped = [self.properties | {"stream.file.memory.map": word} for word in _BOTH]
        self._configs = [configured(each).config for each in mapped]

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        self.path.write_bytes(data)
        factory = FileConsumerFactory(self._configs[zlib.crc32(data) % 2])
        try:
            metadata = factory.create_metadata_provider("fuzz")
            try:
                metadata.fetch_partitions(["t"], ())
                metadata.fetch_schema("t")
            finally:
                metadata.close()
            yield from self._rows(factory, data)
        finally:
            factory.close()

    def _rows(
        self, factory: FileConsumerFactory, data: bytes
    ) -> Iterator[pa.RecordBatch]:
        consumer = factory.create_partition_level_consumer("fuzz", Partition("t", 0))
        at = 0
        try:
            for more in self._growing_by(data):
                while True:
                    found = consumer.fetch_messages(at, None, _NOW)
                    at = found.next_offset
                    if found.rows is None:
                        break
                    yield found.rows
                more()
        finally:
            consumer.close()

    def _growing_by(self, data: bytes) -> Iterator[Step]:
        yield lambda: None


_BOTH: Final = ("true", "false")


class ForeignStreams(_Foreign):
    """Files of the stream form."""

    NAME = "file-stream"
    SHARE = 3

    def make(self, chance: random.Random) -> bytes:
        return mutating.stream_of(self.seed(chance), chance, self._plain)


class ForeignFiles(_Foreign):
    """Random-access files."""

    NAME = "file-random"
    SHARE = 3

    def make(self, chance: random.Random) -> bytes:
        seed = self.seed(chance)
        while not seed.random:
            seed = self.seed(chance)
        return mutating.random_of(seed, chance, self._plain)


class GrowingFiles(_Foreign):
    """Files of the stream form that grow while they are read, or are cut."""

    NAME = "file-growing"
    FORM = "stream"

    def make(self, chance: random.Random) -> bytes:
        return mutating.stream_of(self.seed(chance), chance, self._plain)

    def _growing_by(self, data: bytes) -> Iterator[Step]:
        # The whole file was there first; then it is cut, and grows again.
        for share in (zlib.adler32(data) % 1000 / 1000, 1.0):
            cut = data[: int(len(data) * share)]
            yield partial(self._write, cut)
        yield lambda: None

    def _write(self, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.write(data)
            file.truncate()


class OpenedFiles(_Foreign):
    """The whole way, through `streamfactory.open`."""

    NAME = "file-open"
    SHARE = 2

    def prepare(self) -> None:
        super().prepare()
        # A file that was cut within its schema is waited for: a second says enough.
        self.properties["stream.file.connection.timeout.millis"] = "1000"

    def make(self, chance: random.Random) -> bytes:
        seed = self.seed(chance)
        if seed.random and chance.random() < 0.5:
            return mutating.random_of(seed, chance, self._plain)
        return mutating.stream_of(seed, chance, self._plain)

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        self.path.write_bytes(data)
        with streamfactory.open(self.properties) as stream:
            for batch in stream:
                yield batch.rows


class _Input(Entry):
    """A file that `publish` reads."""

    FORM = "csv"

    def prepare(self) -> None:
        self.path = self.folder / f"input.{self.FORM}"

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        self.path.write_bytes(data)
        source = open_input(str(self.path), format=self.FORM, options=_OPTIONS)
        try:
            source.columns(_SOON)
            while not source.finished:
                rows = source.read(_SOON, _ROWS)
                if rows is not None:
                    yield rows
        finally:
            source.close()


_CSV: Final = (
    b'id,name,at,x\n1,a,2013-01-01 05:00:00,0.5\n2,"b,""c\nd",,\n3,\xc3\xa9,'
    b"2014-02-03,1e3\n"
)
_LINES: Final = (
    b'{"id":1,"name":"a","more":{"x":[1,2]}}\n{"id":2,"name":null}\n'
    b'{"id":3,"more":{"x":[]},"at":"2013-01-01T00:00:00Z"}\n'
)


class CsvInputs(_Input):
    """CSV."""

    NAME = "input-csv"

    def make(self, chance: random.Random) -> bytes:
        return mutating.text_of(_CSV * chance.choice((1, 3)), chance)


class JsonInputs(_Input):
    """JSON lines."""

    NAME = "input-json"
    FORM = "json"

    def make(self, chance: random.Random) -> bytes:
        lines = _LINES * chance.choice((1, 3))
        if chance.random() < 0.25:
            plain = map(json.loads, lines.splitlines())
            varied = (mutating.varied_json(one, chance, values=False) for one in plain)
            return "\n".join(one.replace("\n", " ") for one in varied).encode()
        return mutating.text_of(lines, chance)


class ArrowInputs(_Input):
    """Arrow, of both forms."""

    NAME = "input-arrow"
    FORM = "arrow"

    def make(self, chance: random.Random) -> bytes:
        seed = self.seed(chance)
        if seed.random and chance.random() < 0.5:
            return mutating.random_of(seed, chance, self._plain)
        return mutating.stream_of(seed, chance, self._plain)


class ParquetInputs(_Input):
    """Parquet."""

    NAME = "input-parquet"
    FORM = "parquet"

    def prepare(self) -> None:
        super().prepare()
        self._files = _parquet_files()

    def make(self, chance: random.Random) -> bytes:
        return _parquet(self._files, chance)


class ForeignParquet(_Foreign):
    """Parquet files of other programs, by offset."""

    NAME = "file-parquet"
    SHARE = 3
    FORM = "parquet"

    def prepare(self) -> None:
        super().prepare()
        self._files = _parquet_files()

    def make(self, chance: random.Random) -> bytes:
        return _parquet(self._files, chance)


def _parquet_files() -> list[bytes]:
    names = ("int64", "string", "list", "struct", "decimal128", "timestamp_us")
    found = []
    table = pa.Table.from_batches([batch_of(*names)])
    for codec in ("none", "snappy", "zstd"):
        for page, words, size in (("1.0", True, 3), ("2.0", False, 1000)):
            sink = io.BytesIO()
            pa.parquet.write_table(
                table,
                sink,
                compression=codec,
                data_page_version=page,
                use_dictionary=words,
                row_group_size=size,
            )
            found.append(sink.getvalue())
    return found


def _parquet(files: Sequence[bytes], chance: random.Random) -> bytes:
    """One of the files; most are damaged."""
    sound, other = chance.choice(files), chance.choice(files)
    return sound if chance.random() < 0.25 else mutating.bytes_of(sound, chance, other)
