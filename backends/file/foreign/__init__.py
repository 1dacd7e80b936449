"""Reads Arrow IPC and Parquet files of other programs, by offset, also while they grow.

A path names one file (random-access or stream format of Arrow, or Parquet), or a folder
of such files. It is one partition, 0, whose offsets count rows. Files of pyarrow,
pandas, Polars, DuckDB, Spark and Arrow Java are supported; readers get plain types.
Read-only, replayable, durable, and shared by all processes that see the files.

A random-access or Parquet file is readable once it has its footer. Of a stream, all
complete messages are readable; its end marker ends the partition. For folders see
`streamfactory.backends.file.foreign.folder`.

Limits: a file that is overwritten in place is detected by its first bytes and by the
last message that was read; a listed file of a folder by its length and samples of its
bytes. Complete files are memory-mapped. If another program truncates one while its rows
are in use, the process is killed by SIGBUS, unless ``memory.map`` is false.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from streamfactory.backends.file.foreign.consumer import ForeignConsumer
from streamfactory.backends.file.foreign.folder import Folder
from streamfactory.backends.file.foreign.layout import Layout, Settings, SingleFile
from streamfactory.backends.file.foreign.medium import translate_errors
from streamfactory.backends.file.foreign.metadata import ForeignMetadata
from streamfactory.spi import PartitionVanished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import (
        MetadataProvider,
        Partition,
        PartitionLevelConsumer,
        StreamConfig,
    )

__all__ = ["create_consumer", "create_metadata"]


def create_consumer(
    config: StreamConfig, partition: Partition, fields: Sequence[str] | None = None
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
    return ForeignConsumer(_layout(settings), fields, checked=settings.checked)


def create_metadata(config: StreamConfig) -> MetadataProvider:
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
