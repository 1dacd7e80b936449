"""Reads Arrow IPC and Parquet files of other programs, by offset, also while they grow.

A path names one file (random-access or stream format of Arrow, or Parquet), or a folder
of such files. It is one partition, 0, whose offsets count rows. Files of pyarrow,
pandas, Polars, DuckDB, Spark and Arrow Java are supported; readers get plain types.
Read-only, replayable, durable, and shared by all processes that see the files.

A random-access or Parquet file is readable once it has its footer. Of a stream, all
complete messages are readable; its end marker ends the partition. For folders see
`streamfactory.backends.file.foreign.folder`.

Limits: a file that is overwritten in place is detected by its first bytes and by the
    last
message that was read; a listed file of a folder by its length and samples of its bytes.
Complete files are memory-mapped. If another program truncates one while its rows are in
use, the process is killed by SIGBUS, unless ``memory.map`` is false.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Final

from streamfactory.backends.file.foreign.arrowfile import AUTO, RANDOM, STREAM
from streamfactory.backends.file.foreign.consumer import ForeignConsumer
from streamfactory.backends.file.foreign.folder import Folder
from streamfactory.backends.file.foreign.layout import (
    PARQUET,
    Layout,
    Settings,
    SingleFile,
)
from streamfactory.backends.file.foreign.medium import translate_errors
from streamfactory.backends.file.foreign.metadata import ForeignMetadata
from streamfactory.spi import (
    BOOLEAN,
    PATH,
    SIZE,
    Claims,
    ConsumerFactory,
    MetadataProvider,
    Option,
    Partition,
    PartitionLevelConsumer,
    PartitionVanished,
    StreamConfig,
    choice,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "FORMATS",
    "OPTIONS",
    "ForeignConsumerFactory",
    "claims",
    "create_consumer",
    "create_metadata",
]

FORMATS: Final = (STREAM, RANDOM, AUTO, PARQUET)
"""Values of ``format`` for files of other programs."""

_READ: Final = frozenset({"read", "spark"})

OPTIONS: Final = (
    Option(
        "state.folder",
        "Folder for the manifest of a folder of files, if that folder is read-only.",
        PATH,
        applies=_READ,
    ),
    Option(
        "order",
        "Order of files that are found at the same time: by name, or by modification "
        "time.",
        choice("name", "time"),
        default="name",
        applies=_READ,
    ),
    Option(
        "names",
        "Shell pattern of the files of a folder that belong to the stream.",
        default="*",
        applies=_READ,
        example="part-*.arrow",
    ),
    Option(
        "message.max.bytes",
        "Maximum size of an Arrow message, also when decompressed; of a row group of "
        "a Parquet file when decompressed.",
        SIZE,
        default="4G",
        minimum=1024,
        applies=_READ,
    ),
    Option(
        "memory.map",
        "Memory-map complete files; false copies, for files that may be truncated.",
        BOOLEAN,
        default="true",
        applies=_READ,
    ),
    Option(
        "check.values",
        "Validate all values that are read: offsets, indices, run ends, UTF-8, times "
        "and null counts. Set false only if you trust every program that writes the "
        "files.",
        BOOLEAN,
        default="true",
    ),
)


def claims(config: StreamConfig) -> Claims:  # noqa: ARG001 - the caller's form
    """The claims for files of other programs, which do not depend on options."""
    return Claims(replayable=True, durable=True, shared=True)


def create_consumer(
    config: StreamConfig,
    client_id: str,  # noqa: ARG001 - has no effect on files
    partition: Partition,
    fields: Sequence[str] | None = None,
) -> PartitionLevelConsumer:
    """A consumer of the one partition.

    Raises:
        PartitionVanished: data_loss; the partition is not 0.
        TopicNotFound: permanent; the path does not exist.
    """
    if partition.id != 0:
        msg = f"files of other programs have only partition 0, not {partition.id}"
        raise PartitionVanished(msg)
    settings = Settings.of(config)
    return ForeignConsumer(
        _layout(settings),
        fields,
        checked=settings.checked,
    )


def create_metadata(
    config: StreamConfig,
    client_id: str,  # noqa: ARG001 - has no effect on files
) -> MetadataProvider:
    """A provider for the one partition."""
    settings = Settings.of(config)
    return ForeignMetadata(
        lambda: _layout(settings), settings.path, declared="schema" in config
    )


def _layout(settings: Settings) -> Layout:
    with translate_errors(settings.path):
        os.stat(settings.path)  # noqa: PTH116 - raises if the path does not exist
    is_folder = os.path.isdir(settings.path)  # noqa: PTH112 - the same
    return Folder(settings) if is_folder else SingleFile(settings)


class ForeignConsumerFactory(ConsumerFactory):
    """Reads the files of one path."""

    CLAIMS: ClassVar = Claims(replayable=True, durable=True, shared=True)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return create_consumer(self.config, client_id, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return create_metadata(self.config, client_id)

    def claims(self) -> Claims:
        return claims(self.config)
