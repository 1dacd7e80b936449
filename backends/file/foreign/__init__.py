"""Arrow IPC files that others wrote: read by offset, followed while they grow.

A path names one file, random-access or stream, or a folder of such files: one
partition, 0, whose offsets count rows. Whatever wrote them (pyarrow, pandas, Polars,
DuckDB, Arrow Java), readers get plain types. Reading only; replayable, durable, and
shared with all that see the same files.

A random-access file is there once it has its footer. Of a stream every whole message
is there; a torn one is waited for; its end marker ends the stream. Of a folder see
`streamfactory.backends.file.foreign.folder`.

Limits. A file that is written over in its place is recognised by its beginning and by
the last message that was read; a listed file of a folder by its length and by samples
of it. Whole files are mapped into memory: one that is cut while its rows are in use
ends the process, unless ``memory.map`` is false.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar, Final

from streamfactory.backends.file.foreign.arrowfile import AUTO, RANDOM, STREAM
from streamfactory.backends.file.foreign.consumer import ForeignConsumer
from streamfactory.backends.file.foreign.folder import Folder
from streamfactory.backends.file.foreign.layout import Layout, Settings, SingleFile
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

FORMATS: Final = (STREAM, RANDOM, AUTO)
"""Values of ``format`` that mean files of others."""

_READ: Final = frozenset({"read", "spark"})

OPTIONS: Final = (
    Option(
        "state.folder",
        "Folder that keeps the order of a folder's files, where the folder itself "
        "cannot be written.",
        PATH,
        applies=_READ,
    ),
    Option(
        "order",
        "Order of files that one look at a folder finds: by name, or by the time of "
        "their last change.",
        choice("name", "time"),
        default="name",
        applies=_READ,
    ),
    Option(
        "names",
        "Which files of a folder belong to the stream, as a shell pattern.",
        default="*",
        applies=_READ,
        example="part-*.arrow",
    ),
    Option(
        "message.max.bytes",
        "Refuse Arrow messages that are longer, or unpack to more.",
        SIZE,
        default="4G",
        minimum=1024,
        applies=_READ,
    ),
    Option(
        "memory.map",
        "Map whole files into memory; false copies, for files that others may cut.",
        BOOLEAN,
        default="true",
        applies=_READ,
    ),
    Option(
        "check.values",
        "Check every value that is read: offsets, indices and runs within their "
        "buffers, UTF-8, times, numbers of nulls. false trusts every program that can "
        "write the files.",
        BOOLEAN,
        default="true",
    ),
)


def claims(config: StreamConfig) -> Claims:  # noqa: ARG001 - the caller's form
    """What reading files of others promises: the same for all of them."""
    return Claims(replayable=True, durable=True, shared=True)


def create_consumer(
    config: StreamConfig,
    client_id: str,  # noqa: ARG001 - files do not care who reads
    partition: Partition,
    fields: Sequence[str] | None = None,
) -> PartitionLevelConsumer:
    """A consumer of the one partition.

    Raises:
        PartitionVanished: data_loss; it is another partition.
        TopicNotFound: permanent; there is no such path.
    """
    if partition.id != 0:
        msg = f"files of others are one partition, 0: there is no {partition.id}"
        raise PartitionVanished(msg)
    settings = Settings.of(config)
    return ForeignConsumer(
        _layout(settings),
        fields,
        checked=settings.checked,
        goes_on=config.get("out.of.range", "fail") != "fail",
    )


def create_metadata(
    config: StreamConfig,
    client_id: str,  # noqa: ARG001 - files do not care who asks
) -> MetadataProvider:
    """A provider for the one partition."""
    settings = Settings.of(config)
    return ForeignMetadata(
        lambda: _layout(settings), settings.path, declared="schema" in config
    )


def _layout(settings: Settings) -> Layout:
    with translate_errors(settings.path):
        os.stat(settings.path)  # noqa: PTH116 - raises where nothing is
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
