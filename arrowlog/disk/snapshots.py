"""Snapshots: files with the state of a topic at one version."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.arrowlog.checks import MOST_PARTITIONS
from streamfactory.arrowlog.decoding import (
    InvalidValue,
    encoded,
    flag,
    mapping_of,
    members_of,
    named,
    names,
    row_of,
    text,
    whole,
    wholes,
)
from streamfactory.arrowlog.disk.names import (
    ARROW,
    ATTEMPT_ID,
    INCARNATION,
    PART,
    SEGMENTS,
)
from streamfactory.arrowlog.disk.records import (
    FORMAT,
    INLINE,
    SEGMENT_FORMATS,
    VERSION,
    SmallSegment,
    WriterState,
    decode_writer,
    to_base64,
)
from streamfactory.arrowlog.disk.sealed import DAMAGED, decode_version, seal
from streamfactory.spi import BatchValidator, CorruptData, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.arrowlog.decoding import Decoder


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A topic at one version; `docs/log-format.md` describes the fields."""

    version: int
    at: int
    schema: str
    earliest: Sequence[int]
    latest: Sequence[int]
    writers: Mapping[str, WriterState]
    small: Mapping[str, SmallSegment]
    segments: int
    deleted: bool
    recent: Sequence[str]
    parts: Sequence[str]
    removed: Sequence[str]
    inline: Mapping[str, bytes] = field(default_factory=dict)
    attempts: Sequence[str] = ()
    format: int = FORMAT
    """Number of its format, which has the format of the topic's segments."""

    def encode(self) -> bytes:
        """Return the content of the file."""
        inline = {name: to_base64(one) for name, one in self.inline.items()}
        return seal(
            {
                "format": self.format,
                "version": self.version,
                "at": self.at,
                "schema": self.schema,
                "earliest": self.earliest,
                "latest": self.latest,
                "writers": {n: w.to_plain() for n, w in self.writers.items()},
                "small": {name: one.to_plain() for name, one in self.small.items()},
                "segments": self.segments,
                "deleted": self.deleted,
                "recent": list(self.recent),
                "parts": list(self.parts),
                "removed": list(self.removed),
                **({"inline": inline} if inline else {}),
                **({"attempts": list(self.attempts)} if self.attempts else {}),
            }
        )

    @classmethod
    def decode(cls, data: bytes, place: str, version: int) -> Snapshot:
        """The snapshot of a version.

        Args:
            data: Content of the file.
            place: Location of the file, for messages.
            version: The version in the file's name.

        Raises:
            CorruptData: data_loss; the file is truncated, or does not conform to the
                format.
            FormatRefused: permanent.
        """
        return cls(**decode_version(data, place, _SNAPSHOTS, version))


def _snapshot(number: int) -> Decoder:
    """A snapshot of a format."""
    form = SEGMENT_FORMATS[number]
    small = [whole()] * (4 if form == ARROW else 5)
    members = members_of(
        {
            "version": VERSION,
            "at": whole(),
            "schema": text,
            "earliest": wholes(),
            "latest": wholes(),
            "writers": mapping_of(text, decode_writer),
            "small": mapping_of(named(SEGMENTS[form]), row_of(*small)),
            "segments": whole(),
            "deleted": flag,
            "recent": names(INCARNATION),
            "parts": names(PART),
            "removed": names(SEGMENTS[form]),
        },
        {
            "inline": mapping_of(named(SEGMENTS[form]), encoded),
            "attempts": names(ATTEMPT_ID),
        }
        if number == INLINE
        else {},
    )

    def decode(value: Any) -> dict[str, Any]:
        found: dict[str, Any] = members(value)
        earliest, latest = found["earliest"], found["latest"]
        if not 0 < len(earliest) <= MOST_PARTITIONS or len(earliest) != len(latest):
            why = f"are of {len(earliest)} and {len(latest)} partitions"
            raise InvalidValue(why, "earliest and latest")
        if any(map(int.__gt__, earliest, latest)):
            msg = "is beyond latest"
            raise InvalidValue(msg, "earliest")
        small = {name: SmallSegment(*one) for name, one in found["small"].items()}
        return {**found, "small": small, "format": number}

    return decode


_SNAPSHOTS: Final = {number: _snapshot(number) for number in SEGMENT_FORMATS}
"""By the number of their format."""


def schema_text(schema: pa.Schema) -> str:
    """A schema as Arrow IPC, base64."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_of(text: str, place: str) -> pa.Schema:
    """The schema of `schema_text`.

    Args:
        text: Base64.
        place: Location of its file, for messages.

    Raises:
        CorruptData: data_loss; it is not a schema, or has unsupported types.
    """
    try:
        data = base64.b64decode(text, validate=True)
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        BatchValidator(schema)
    except (pa.ArrowException, OSError, ValueError, SchemaMismatch) as error:
        reason = " ".join(str(error).split())
        msg = f"{place}: the schema cannot be read: {reason}"
        raise CorruptData(msg, remedy=DAMAGED) from error
    return schema
