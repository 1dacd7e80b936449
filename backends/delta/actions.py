"""The actions of a Delta table's log, validated: what files and metadata it states."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from streamfactory.spi import CorruptData

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_VERSIONS: Final = (1 << 24) - 2
"""Versions beyond it have no offset."""
_MOST_ROWS: Final = 1 << 38
_MOST: Final = (1 << 63) - 1
_LAST_MS: Final = 253_402_300_800_000
"""The year 10000: later times are damaged."""


class Vector(NamedTuple):
    """Where a deletion vector is. Pickles."""

    kind: str
    """``u`` and ``p`` are files; ``i`` is in the log itself."""
    text: str
    """Its file, or its bytes."""
    offset: int
    size: int
    rows: int
    """Rows that it marks."""


@dataclass(frozen=True, slots=True)
class File:
    """A file of rows that the log names."""

    path: str
    """As the log has it: URL-encoded."""
    values: Mapping[str, str | None]
    """Of partition columns, by the names that files have."""
    size: int | None = None
    modified_ms: int = 0
    records: int | None = None
    """Rows, deleted ones included; None where they are not known."""
    vector: Vector | None = None
    changes: bool = True
    """Whether it changed rows of the table: a compaction does not."""

    @property
    def key(self) -> tuple[str, object]:
        """What identifies it in the log: its path and its deletion vector."""
        vector = self.vector
        return self.path, None if vector is None else vector[:3]


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the log states of the table."""

    id: str
    schema: str
    """As JSON."""
    partitioned: tuple[str, ...]
    configuration: Mapping[str, str]
    name: str | None = None
    description: str | None = None
    created_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a reader must support, and a writer."""

    version: int
    features: frozenset[str]
    writer_version: int = 0
    writer_features: frozenset[str] = frozenset()


class Damaged(ValueError):
    """An action is not as Delta's protocol has it."""


def damaged(version: int, cause: object) -> CorruptData:
    """The error for a commit, or a checkpoint of a version, that is damaged."""
    what = f"commit {version} of the table is damaged: {str(cause)[:300]}"
    return CorruptData(what, remedy="restore the file of the log from a backup")


def file_of(body: Mapping[str, Any]) -> File:
    """The file that an action ``add``, ``remove`` or ``cdc`` names.

    Raises:
        Damaged: A part of it is of another type, or a number is none that a file can
            have.
    """
    values = _mapping(body, "partitionValues")
    path = _text(body, "path")
    changes = body.get("dataChange")
    if changes is not None and type(changes) is not bool:
        _refuse("dataChange", changes)
    return File(
        path,
        values,
        _number(body, "size", _MOST),
        _number(body, "modificationTime", _MOST) or 0,
        _records(body),
        vector_of(body.get("deletionVector")),
        changes is not False,
    )


def metadata_of(body: Mapping[str, Any]) -> Metadata:
    """The metadata of the table.

    Raises:
        Damaged: A part of it is of another type.
    """
    columns = body.get("partitionColumns") or []
    if not isinstance(columns, list) or not all(isinstance(c, str) for c in columns):
        _refuse("partitionColumns", columns)
    stated = body.get("format") or {"provider": "parquet"}
    provider = stated.get("provider") if isinstance(stated, dict) else stated
    if provider != "parquet":
        _refuse("format", provider)
    configuration = _mapping(body, "configuration")
    return Metadata(
        str(body.get("id")),
        _text(body, "schemaString"),
        tuple(columns),
        {key: value for key, value in configuration.items() if value is not None},
        _optional(body, "name"),
        _optional(body, "description"),
        _number(body, "createdTime", _MOST),
    )


def metadata_action(metadata: Metadata) -> dict[str, Any]:
    """The action ``metaData`` that states the metadata of a table."""
    stated = {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": metadata.schema,
        "partitionColumns": list(metadata.partitioned),
        "configuration": dict(metadata.configuration),
        "createdTime": metadata.created_ms,
    }
    return {"metaData": {k: v for k, v in stated.items() if v is not None}}


def protocol_of(body: Mapping[str, Any]) -> Protocol:
    """What a reader must support, and a writer.

    Raises:
        Damaged: A part of it is of another type.
    """
    version = _number(body, "minReaderVersion", 1 << 31)
    features = body.get("readerFeatures") or []
    if version is None or not isinstance(features, list):
        _refuse("protocol", body)
    writer = body.get("writerFeatures") or []
    if not isinstance(writer, list):
        _refuse("protocol", body)
    return Protocol(
        version,
        frozenset(map(str, features)),
        _number(body, "minWriterVersion", 1 << 31) or 0,
        frozenset(map(str, writer)),
    )


def writer_of(body: Mapping[str, Any]) -> tuple[str, int]:
    """The application that an action ``txn`` names, and its version.

    Raises:
        Damaged: A part of it is of another type.
    """
    version = _number(body, "version", _MOST)
    if version is None:
        _refuse("txn", body)
    return _text(body, "appId"), version


def time_of(body: Mapping[str, Any]) -> int | None:
    """When a commit was made, in milliseconds since the epoch; None if not stated."""
    time = body.get("inCommitTimestamp") or body.get("timestamp")
    return time if type(time) is int and 0 < time < _LAST_MS else None


def vector_of(found: Any) -> Vector | None:
    """The deletion vector of a file; None if it has none.

    Raises:
        Damaged: A part of it is of another type, or a number is none that it can have.
    """
    if found is None:
        return None
    try:
        kind, text = _text(found, "storageType"), _text(found, "pathOrInlineDv")
        size = _number(found, "sizeInBytes", _MOST)
        rows = _number(found, "cardinality", _MOST_ROWS)
        offset = _number(found, "offset", _MOST) or 0
        if size is None or rows is None:
            _refuse("deletionVector", found)
    except (AttributeError, Damaged) as error:
        what = f"a deletion vector: {error}"
        raise Damaged(what) from error
    return Vector(kind, text, offset, size, rows)


def _records(body: Mapping[str, Any]) -> int | None:
    """Rows of a file, by its statistics: text in JSON, or parsed in a checkpoint.

    Statistics that cannot be parsed are none. A number that is no count is damage.
    """
    stats = body.get("stats")
    parsed: Any = body.get("stats_parsed")
    if isinstance(stats, str):
        try:
            parsed = json.loads(stats)
        except (ValueError, RecursionError):
            parsed = None
    if not isinstance(parsed, dict):
        return None
    return _number(parsed, "numRecords", _MOST_ROWS)


def _number(body: Mapping[str, Any], name: str, most: int) -> int | None:
    """A number from 0 on; None where there is none."""
    found = body.get(name)
    if found is None:
        return None
    if type(found) is not int or not 0 <= found <= most:
        _refuse(name, found)
    return found


def _text(body: Mapping[str, Any], name: str) -> str:
    found = body.get(name)
    if not isinstance(found, str) or not found:
        _refuse(name, found)
    return found


def _optional(body: Mapping[str, Any], name: str) -> str | None:
    found = body.get(name)
    return None if found is None else str(found)


def _mapping(body: Mapping[str, Any], name: str) -> dict[str, str | None]:
    """A map of text; checkpoints have it as pairs."""
    found = body.get(name) or {}
    if isinstance(found, list) and all(isinstance(pair, tuple) for pair in found):
        found = dict(found)
    if not isinstance(found, dict):
        _refuse(name, found)
    for key, value in found.items():
        if value is not None and not isinstance(value, str):
            _refuse(f"{name} {str(key)[:100]!r}", value)
    return found


def _refuse(name: str, value: object) -> NoReturn:
    what = f"{name} is {str(value)[:100]!r}"
    raise Damaged(what)
