"""The records of the log on disk: each is one change of a topic.

`docs/log-format.md` specifies them for readers in other languages. Records are
untrusted, as every program that can write the folder can write them: they are decoded
strictly, and refused if a name, a type or a number does not conform to the format.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.arrowlog.checks import MOST_PARTITIONS
from streamfactory.arrowlog.decoding import (
    InvalidValue,
    digits,
    encoded,
    flag,
    list_of,
    mapping_of,
    members_of,
    named,
    names,
    optional,
    row_of,
    text,
    whole,
    wholes,
)
from streamfactory.arrowlog.disk.names import (
    ARROW,
    ATTEMPT_ID,
    HIGHEST,
    INCARNATION,
    PARQUET,
    SEGMENTS,
)
from streamfactory.arrowlog.disk.sealed import decode_version, seal
from streamfactory.spi import LastCommit, Position, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.arrowlog.decoding import Decoder

FORMATS: Final = {ARROW: 1, PARQUET: 2}
"""Numbers of the format of records and snapshots of a new topic, by the format of its
segments. Programs that cannot read Parquet segments refuse the whole topic by it."""
INLINE: Final = 3
"""Number of the format of a topic of Arrow segments from the first record on that has
a segment within it. Programs that cannot read it refuse the topic from there on."""
SEGMENT_FORMATS: Final = {1: ARROW, 2: PARQUET, INLINE: ARROW}
"""Formats of segments, by the number of the format of records."""
FORMAT: Final = 1
"""Number of the format of other sealed files."""
MOST_BATCHES: Final = 2**31 - 1
"""Of one segment; and rows of one batch."""


class Run(NamedTuple):
    """Consecutive rows of one partition, in consecutive batches of one segment."""

    partition: int
    base: int
    """Offset of the first row."""
    rows: int
    file: str
    first_batch: int
    batches: tuple[int, ...]
    """Rows of each batch."""
    size: int
    """Bytes in memory."""
    first_ms: int
    """Append time of the first row."""
    last_ms: int
    """Append time of the last row: rows of one epoch share it."""

    @property
    def end(self) -> int:
        """Offset after the last row."""
        return self.base + self.rows


class Segment(NamedTuple):
    """A file of rows, or its content within a record."""

    name: str
    size: int
    """Bytes on the medium."""
    level: int
    """Number of merges of its rows; a full segment is never merged again."""
    full: bool
    runs: tuple[Run, ...]
    content: bytes | None = None
    """All bytes of an inline segment, which is no file."""

    @property
    def rows(self) -> int:
        """Rows, of all partitions."""
        return sum(run.rows for run in self.runs)

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        runs = [
            [
                r.partition,
                r.base,
                r.first_batch,
                r.batches,
                r.size,
                r.first_ms,
                r.last_ms,
            ]
            for r in self.runs
        ]
        plain = {
            "name": self.name,
            "bytes": self.size,
            "level": self.level,
            "full": self.full,
            "runs": runs,
        }
        if self.content is not None:
            plain["content"] = to_base64(self.content)
        return plain


def to_base64(content: bytes) -> str:
    """Bytes as JSON has them."""
    return binascii.b2a_base64(content, newline=False).decode("ascii")


class SmallSegment(NamedTuple):
    """A segment that is not full: it takes part in merges."""

    level: int
    size: int
    """Bytes on the medium."""
    rows: int
    at: int
    """Append time of its record."""
    partition: int | None = None
    """In a format that does not mix partitions."""

    def to_plain(self) -> list[int]:
        """As JSON has it."""
        return [number for number in self if number is not None]


@dataclass(frozen=True, slots=True)
class WriterState:
    """The stored state of one writer."""

    owner: str
    """The instance that has claimed it."""
    at: int
    """Milliseconds: its last commit or claim."""
    epoch: int | None = None
    rows: int = 0
    sums: Mapping[str, int] = field(default_factory=dict)
    position: str | None = None
    """Position of its source, as JSON text."""

    def last(self) -> LastCommit | None:
        """As the contract has it."""
        if self.epoch is None:
            return None
        position = None if self.position is None else Position.from_json(self.position)
        return LastCommit(self.epoch, position, Summary(self.rows, dict(self.sums)))

    def to_plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "owner": self.owner,
            "at": self.at,
            "epoch": self.epoch,
            "rows": self.rows,
            "sums": dict(self.sums),
            "position": self.position,
        }


@dataclass(frozen=True, slots=True)
class Record:
    """One change of a topic. All fields but the first three may be empty."""

    id: str
    """A uuid, by which a publisher recognises its record after a lost reply."""
    version: int
    at: int
    """Milliseconds since the epoch; never less than in the previous record."""
    partitions: int | None = None
    """The number of partitions from here on."""
    schema: str | None = None
    """Arrow IPC, base64; in the first record."""
    writers: Mapping[str, WriterState] = field(default_factory=dict)
    """Replaces the stored state of these writers."""
    forgotten: Sequence[str] = ()
    earliest: Mapping[int, int] = field(default_factory=dict)
    """By partition; applied before segments are appended."""
    segments: Sequence[Segment] = ()
    """Appended, or, by a merge, replacing others of the same offsets."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Segments that are removed from here on, with their bytes."""
    attempts: Sequence[str] = ()
    """Those whose carried rows it commits: they cannot be committed again."""
    void: Sequence[int] = ()
    """Earlier versions whose records a crash has truncated."""
    deleted: bool = False
    """Whether the topic is deleted."""
    format: int = FORMAT
    """Number of its format, which has the format of the topic's segments."""

    @property
    def inline_size(self) -> int:
        """Bytes of its inline segments, as JSON has them."""
        contents = (one.content for one in self.segments)
        return sum(4 * len(one) // 3 for one in contents if one is not None)

    def encode(self) -> bytes:
        """A line of JSON and a line with its CRC-32."""
        plain: dict[str, Any] = {
            "format": self.format,
            "version": self.version,
            "id": self.id,
            "at": self.at,
            "partitions": self.partitions,
            "schema": self.schema,
            "writers": {name: w.to_plain() for name, w in self.writers.items()},
            "forgotten": list(self.forgotten),
            "earliest": {str(partition): at for partition, at in self.earliest.items()},
            "segments": [segment.to_plain() for segment in self.segments],
            "removed": dict(self.removed),
            "attempts": list(self.attempts),
            "void": list(self.void),
            "deleted": self.deleted,
        }
        return seal({k: v for k, v in plain.items() if v or k in _ALWAYS})

    @classmethod
    def decode(cls, data: bytes, place: str, version: int) -> Record:
        """The record of a version.

        Args:
            data: Content of the file.
            place: Location of the file, for messages.
            version: The version in the file's name.

        Raises:
            CorruptData: data_loss; the file is truncated, or does not conform to the
                format.
            FormatRefused: permanent.
        """
        return cls(**decode_version(data, place, _RECORDS, version))


_ALWAYS: Final = frozenset({"format", "version", "id", "at"})

_RUN: Final = row_of(
    whole(0, MOST_PARTITIONS - 1),
    whole(),
    whole(0, MOST_BATCHES),
    wholes(1, MOST_BATCHES, fewest=1),
    whole(),
    whole(),
    whole(),
)


def _segments(number: int) -> Decoder:
    """A segment in a record of a format."""
    form = SEGMENT_FORMATS[number]
    members = members_of(
        {
            "name": named(SEGMENTS[form]),
            "bytes": whole(),
            "level": whole(),
            "full": flag,
            "runs": list_of(_RUN),
        },
        {"content": encoded} if number == INLINE else {},
    )

    def decode(plain: Any) -> Segment:
        found = members(plain)
        file, rows = found["name"], found["runs"]
        if form == PARQUET:
            check_single(rows, lambda row: row[2])
        runs = tuple(_run(file, number, row) for number, row in enumerate(rows))
        size, content = found["bytes"], found.get("content")
        if content is not None and len(content) != size:
            msg = f"has {len(content)} bytes, expected {size}"
            raise InvalidValue(msg, "content")
        return Segment(file, size, found["level"], found["full"], runs, content)

    return decode


def check_single(runs: Sequence[Any], first_batch: Callable[[Any], int]) -> None:
    """Refuse a segment that does not have the rows of a single run.

    Raises:
        InvalidValue: It has several runs, or one that is not the whole file.
    """
    if len(runs) != 1 or first_batch(runs[0]):
        msg = f"are {len(runs)}, expected one that begins with batch 0"
        raise InvalidValue(msg, "runs")


def _run(file: str, number: int, row: Sequence[Any]) -> Run:
    partition, base, first, batches, size, first_ms, last_ms = row
    rows = sum(batches)
    if base + rows > HIGHEST or first + len(batches) > MOST_BATCHES:
        msg = "ends beyond the maximum"
        raise InvalidValue(msg, "runs", number)
    if first_ms > last_ms:
        msg = "ends before it begins"
        raise InvalidValue(msg, "runs", number)
    found = (partition, base, rows, file, first, tuple(batches), size)
    return Run(*found, first_ms, last_ms)


_WRITER: Final = members_of(
    {"owner": text, "at": whole()},
    {
        "epoch": optional(whole()),
        "rows": whole(),
        # Digests of 128 bits.
        "sums": mapping_of(text, whole(-(2**128), 2**128)),
        "position": optional(text),
    },
)


def decode_writer(value: Any) -> WriterState:
    """The state of a writer, of JSON.

    Raises:
        InvalidValue: The value is not of the format.
    """
    return WriterState(**_WRITER(value))


VERSION: Final = whole(0, HIGHEST)
ID: Final = named(INCARNATION)
"""A uuid, as everything that is unique here."""


def _record(number: int) -> Decoder:
    """A record of a format."""
    segment = SEGMENTS[SEGMENT_FORMATS[number]]
    members = members_of(
        {"id": ID, "version": VERSION, "at": whole()},
        {
            "partitions": optional(whole(1, MOST_PARTITIONS)),
            "schema": optional(text),
            "writers": mapping_of(text, decode_writer),
            "forgotten": list_of(text),
            "earliest": mapping_of(digits(MOST_PARTITIONS - 1), whole()),
            "segments": list_of(_segments(number)),
            "removed": mapping_of(named(segment), whole()),
            "void": wholes(0, HIGHEST),
            "deleted": flag,
            **({"attempts": names(ATTEMPT_ID)} if number == INLINE else {}),
        },
    )
    return lambda plain: {**members(plain), "format": number}


_RECORDS: Final = {number: _record(number) for number in SEGMENT_FORMATS}
"""By the number of their format."""
