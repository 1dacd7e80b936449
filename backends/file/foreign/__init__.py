"""Reads Arrow IPC and Parquet files of other programs, by offset, also while they grow.

A path names one file (random-access or stream format of Arrow, or Parquet), a folder of
such files, or a prefix of an object store. It is one partition, 0, whose offsets count
rows. Files of pyarrow, pandas, Polars, DuckDB, Spark and Arrow Java are supported;
readers get plain types.
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

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk.rules import scheme_of
from streamfactory.backends.file.foreign.consumer import ForeignConsumer
from streamfactory.backends.file.foreign.folder import Folder
from streamfactory.backends.file.foreign.layout import Layout, Settings, SingleFile
from streamfactory.backends.file.foreign.manifest import Manifest
from streamfactory.backends.file.foreign.medium import translate_errors
from streamfactory.backends.file.foreign.metadata import ForeignMetadata
from streamfactory.backends.file.foreign.parts import MANIFEST, LocalParts
from streamfactory.backends.file.foreign.places import LocalPlace
from streamfactory.spi import PartitionVanished

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.backends.file.foreign.parts import Parts
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
    return ForeignConsumer(_layout(config, settings), fields, checked=settings.checked)


def create_metadata(config: StreamConfig) -> MetadataProvider:
    """A provider for the one partition."""
    settings = Settings.of(config)
    return ForeignMetadata(
        lambda: _layout(config, settings), settings.path, declared="schema" in config
    )


def _layout(config: StreamConfig, settings: Settings) -> Layout:
    scheme = scheme_of(settings.path)
    if scheme:
        return _object_layout(config, settings)
    with translate_errors(settings.path):
        os.stat(settings.path)  # noqa: PTH116 - raises if the path does not exist
    if not os.path.isdir(settings.path):  # noqa: PTH112 - the same
        return SingleFile(settings)
    place = LocalPlace(settings.path, links=settings.links)
    return Folder(settings, place, Manifest(LocalParts(_manifest_folder(settings))))


def _object_layout(config: StreamConfig, settings: Settings) -> Layout:
    # Imported here: folders of this machine need none of it.
    from streamfactory.arrowlog.disk.places import object_storage
    from streamfactory.backends.file.foreign.arrivals import arrivals_of
    from streamfactory.backends.file.foreign.objectfolder import ObjectFolder
    from streamfactory.backends.file.foreign.objects import ObjectParts, ObjectPlace

    storage = object_storage(config)
    parts: Parts
    if settings.state is None:
        parts = ObjectParts(storage)
    else:
        parts = LocalParts(_manifest_folder(settings))
    place, manifest = ObjectPlace(storage.client), Manifest(parts)
    return ObjectFolder(settings, place, manifest, arrivals_of(config))


def _manifest_folder(settings: Settings) -> Path:
    if settings.state is None:
        return Path(settings.path) / MANIFEST
    whole = settings.path
    if not scheme_of(whole):
        whole = os.path.realpath(whole)
    digest = hashlib.blake2b(os.fsencode(whole), digest_size=8).hexdigest()
    return Path(settings.state) / f"{Path(whole).name}-{digest}"
