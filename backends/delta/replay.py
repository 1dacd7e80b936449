"""The state of a Delta table as of a version: the last checkpoint, then commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.backends.delta.actions import (
    File,
    Metadata,
    Protocol,
    damaged,
)
from streamfactory.backends.delta.log import FOLDER, Actions, gathered
from streamfactory.spi import CorruptData, FormatRefused
from streamfactory.tables import PieceGone, open_parquet, relative_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.backends.delta.log import DeltaLog

_SIDECARS: Final = f"{FOLDER}/_sidecars"
_ROWS: Final = 4096
_STATED: Final = (
    "metaData.id",
    "metaData.schemaString",
    "metaData.partitionColumns",
    "metaData.configuration",
    "metaData.format.provider",
    "protocol.minReaderVersion",
    "protocol.readerFeatures",
)
_WRITTEN: Final = (
    *_STATED,
    "metaData.name",
    "metaData.description",
    "metaData.createdTime",
    "protocol.minWriterVersion",
    "protocol.writerFeatures",
    "txn.appId",
    "txn.version",
)
_FILES: Final = (
    "add.path",
    "add.partitionValues",
    "add.size",
    "add.modificationTime",
    "add.stats",
    "add.stats_parsed.numRecords",
    "add.deletionVector",
)
"""Columns of a checkpoint that are read: others may be as wide as the table."""
SUPPORTED: Final = frozenset(
    (
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
    )
)
"""Features of tables that a reader must support, and this one does."""
_NEWEST: Final = 3
"""Version of the protocol."""


def check_protocol(version: int, protocol: Protocol) -> None:
    """Refuse a table that a reader of this protocol cannot read.

    Raises:
        FormatRefused: permanent.
    """
    unknown = ", ".join(sorted(protocol.features - SUPPORTED))
    if protocol.version > _NEWEST:
        unknown = f"version {protocol.version} of the protocol"
    if unknown:
        what = f"version {version} of the table cannot be read: it requires {unknown}, "
        what += "which is unsupported"
        raise FormatRefused(what)


def stated(log: DeltaLog, version: int) -> Metadata:
    """What the log states of the table as of a version.

    Raises:
        CorruptData: data_loss; a file of the log is damaged, or states nothing.
        FormatRefused: permanent; the table requires what is unsupported.
        OffsetOutOfRange: data_loss; the log was cleaned.
    """
    return _stated(log, version, _STATED)[0]


def written(
    log: DeltaLog, version: int
) -> tuple[Metadata, Protocol, Mapping[str, int]]:
    """What the log states of the table and of its writers. Raises as `stated` does.

    Returns:
        The metadata, the protocol, and the versions of applications by their ids.
    """
    return _stated(log, version, _WRITTEN)


def _stated(
    log: DeltaLog, version: int, columns: tuple[str, ...]
) -> tuple[Metadata, Protocol, Mapping[str, int]]:
    metadata, protocol = None, None
    writers: dict[str, int] = {}
    for actions in _history(log, version, columns):
        metadata = actions.metadata or metadata
        protocol = actions.protocol or protocol
        writers |= actions.writers
    if metadata is None or protocol is None:
        what = "the log states no columns or no protocol of the table"
        raise damaged(version, what)
    check_protocol(version, protocol)
    return metadata, protocol, writers


def live_files(log: DeltaLog, version: int) -> list[File]:
    """The data files of the table as of a version.

    Raises:
        CorruptData: data_loss; a file of the log is damaged.
        OffsetOutOfRange: data_loss; the log was cleaned.
    """
    files: dict[object, File] = {}
    for actions in _history(log, version, _FILES):
        for one in actions.remove:
            files.pop(one.key, None)
        files |= {one.key: one for one in actions.add}
    return list(files.values())


def _history(
    log: DeltaLog, version: int, columns: tuple[str, ...]
) -> Iterator[Actions]:
    """The parts of the last checkpoint, and the commits behind it."""
    checkpoints = log.listed().checkpoints
    base = max((v for v in checkpoints if v <= version), default=None)
    first = 0
    if base is not None:
        first = base + 1
        for path in checkpoints[base]:
            yield from _parts(log, base, path, columns)
    for number in range(first, version + 1):
        yield log.read(number)


def _parts(
    log: DeltaLog, version: int, path: str, columns: tuple[str, ...]
) -> Iterator[Actions]:
    """The actions of a file of a checkpoint, and of the files that it names."""
    for actions in _read(log, version, path, (*columns, "sidecar.path")):
        yield actions
        if columns is not _FILES:
            continue  # the others have files only
        for name in actions.sidecars:
            prefix = f"{log.files.location.rstrip('/')}/{_SIDECARS}/"
            below = relative_path(name.removeprefix(prefix), log.files.location)
            yield from _read(log, version, f"{_SIDECARS}/{below}", columns)


def _read(
    log: DeltaLog, version: int, path: str, columns: tuple[str, ...]
) -> Iterator[Actions]:
    try:
        if path.endswith(".json"):
            yield log.read_file(version, path)
            return
        with open_parquet(log.files, path) as file:
            for rows, _ in file.stream(columns, 0, _ROWS):
                yield gathered(version, _actions(rows))
    except (FileNotFoundError, PieceGone) as error:
        what = f"{path!r} of the table's log does not exist"
        remedy = "restore the file of the log from a backup"
        raise CorruptData(what, remedy=remedy) from error


def _actions(rows: pa.RecordBatch) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name in rows.schema.names:
        column = rows.column(name)
        if pa.types.is_struct(column.type):
            for body in column.drop_null().to_pylist():
                yield name, body
