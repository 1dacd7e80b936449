"""The foreign half as a stream type of its own, and hands on its files."""

from __future__ import annotations

import shutil
import uuid
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from streamfactory.backends.file.foreign import create_consumer, create_metadata
from streamfactory.backends.file.foreign_options import CLAIMS, FORMATS, OPTIONS
from streamfactory.spi import (
    PATH,
    Backend,
    ConsumerFactory,
    MetadataProvider,
    Option,
    Partition,
    PartitionLevelConsumer,
    choice,
    hookimpl,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import PartitionInfo, StreamConfig

    Consumers = Callable[..., PartitionLevelConsumer]
    Providers = Callable[..., MetadataProvider]
    Infos = Callable[..., PartitionInfo]
    Values = Callable[..., list[Any]]
    """What the fixtures of this folder are."""

NUMBERS = pa.schema([pa.field("number", pa.int64())])


class ForeignConsumerFactory(ConsumerFactory):
    """Reads the files of one path."""

    CLAIMS: ClassVar = CLAIMS

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return create_consumer(self.config, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return create_metadata(self.config)


class Plugin:
    """The type ``foreign``."""

    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return Backend(
            name="foreign",
            doc="Files of others.",
            spi_level=1,
            consumer_factory=ForeignConsumerFactory,
            options=(
                Option("path", "File or folder.", PATH, required=True),
                Option("format", "How.", choice(*FORMATS), default="auto"),
                *OPTIONS,
            ),
        )


def plugins() -> PluginManager:
    manager = PluginManager()
    manager.register(Plugin())
    return manager


def properties(path: Path, **options: str) -> dict[str, str]:
    """The configuration of a path; ``__`` stands for a dot."""
    given = {
        f"stream.foreign.{key.replace('__', '.')}": text
        for key, text in options.items()
    }
    return {
        "streamType": "foreign",
        "stream.foreign.topic.name": "t",
        "stream.foreign.path": str(path),
        **given,
    }


def config_of(path: Path, **options: str) -> StreamConfig:
    definition = from_mapping(properties(path, **options))
    return configure(definition, plugins(), use="read").config


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.int64())], schema=NUMBERS)


def write_stream(path: Path, *batches: pa.RecordBatch, **options: Any) -> Path:
    with path.open("wb") as file:
        schema = batches[0].schema if batches else NUMBERS
        chosen = pa.ipc.IpcWriteOptions(**options)
        with pa.ipc.new_stream(file, schema, options=chosen) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return path


def write_random(path: Path, *batches: pa.RecordBatch, **options: Any) -> Path:
    with path.open("wb") as file:
        schema = batches[0].schema if batches else NUMBERS
        chosen = pa.ipc.IpcWriteOptions(**options)
        with pa.ipc.new_file(file, schema, options=chosen) as writer:
            for batch in batches:
                writer.write_batch(batch)
    return path


def write_parquet(path: Path, *batches: pa.RecordBatch) -> Path:
    schema = batches[0].schema if batches else NUMBERS
    with pq.ParquetWriter(path, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


class FolderHarness:
    """A folder; each message batch is a whole file, of one form or the other."""

    single_partition = True
    form = "auto"
    writers: Sequence[Callable[..., Path]] = (write_stream, write_random)

    def __init__(self, folder: Path) -> None:
        self._root = folder
        self._folder = folder / "files"
        self._count = 0

    @staticmethod
    def plugin() -> Any:
        return Plugin()

    def create(self, partitions: int) -> None:
        self.close()
        self._folder.mkdir()
        self.writers[0](self._folder / "000000")

    def properties(self) -> Mapping[str, str]:
        return properties(self._folder, format=self.form)

    def partitions(self) -> Sequence[int]:
        return [0]

    def write(self, partition: int, values: Sequence[int]) -> None:
        self._count += 1
        write = self.writers[self._count % len(self.writers)]
        whole = write(self._root / "being-written", numbers(*values))
        whole.rename(self._folder / f"{self._count:06d}.arrow")

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def recreate(self) -> None:
        self.create(1)

    def nowhere(self) -> Mapping[str, str]:
        return {"stream.foreign.path": str(self._root / "nowhere")}

    def close(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class ParquetHarness(FolderHarness):
    """The same of Parquet files."""

    form = "parquet"
    writers = (write_parquet,)


class GrowingHarness:
    """One stream file that nobody ends."""

    single_partition = True

    def __init__(self, folder: Path) -> None:
        self._path = folder / "growing.arrows"
        self._stack = ExitStack()
        self._file: Any = None

    @staticmethod
    def plugin() -> Any:
        return Plugin()

    def create(self, partitions: int) -> None:
        self._drop()
        self._file = self._stack.enter_context(self._path.open("wb", buffering=0))
        self._file.write(NUMBERS.serialize())

    def properties(self) -> Mapping[str, str]:
        return properties(self._path)

    def partitions(self) -> Sequence[int]:
        return [0]

    def write(self, partition: int, values: Sequence[int]) -> None:
        self._file.write(numbers(*values).serialize())

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def recreate(self) -> None:
        self.create(1)  # over the old one, in its place

    def nowhere(self) -> Mapping[str, str]:
        return {"stream.foreign.path": str(self._path.with_name(uuid.uuid4().hex))}

    def close(self) -> None:
        self._drop()
        self._path.unlink(missing_ok=True)

    def _drop(self) -> None:
        """Leave the file as if its writer had died: without an end."""
        self._stack.close()
