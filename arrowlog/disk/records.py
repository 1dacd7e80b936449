"""The records of the log on disk: what each commit adds to a topic.

`docs/log-format.md` specifies the same for readers in other languages. Whoever can
write the folder can write records: each one is decoded strictly, and refused as a whole
where a name, a type or a number is not of the format.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.arrowlog.checks import MOST_PARTITIONS
from streamfactory.arrowlog.decoding import (
    InvalidValue,
    digits,
    flag,
    list_of,
    mapping_of,
    members_of,
    named,
    optional,
    row_of,
    text,
    whole,
    wholes,
)
from streamfactory.arrowlog.disk.names import HIGHEST, INCARNATION, SEGMENT
from streamfactory.arrowlog.disk.storage import LONGEST_READ
from streamfactory.spi import (
    CorruptData,
    FormatRefused,
    LastCommit,
    MisuseError,
    Position,
    Summary,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from streamfactory.arrowlog.decoding import Decoder

FORMAT: Final = 1
"""Of everything that is written here."""
SEALED_BYTES: Final = LONGEST_READ
"""The longest record, and the longest snapshot."""
MOST_BATCHES: Final = 2**31 - 1
"""Of one segment; and rows of one batch."""
DAMAGED: Final = (
    "restore the file from a copy, and check who can write the folder: only trusted "
    "users should"
)
"""The remedy for files that are not of the format."""


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
    """When the first row was appended."""
    last_ms: int
    """When the last one was: rows of one epoch share the time."""

    @property
    def end(self) -> int:
        """Offset behind the last row."""
        return self.base + self.rows


class Segment(NamedTuple):
    """A file of rows."""

    name: str
    size: int
    """Bytes on the medium."""
    level: int
    """How often its rows were merged; a full one is never merged again."""
    full: bool
    runs: tuple[Run, ...]

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
        return {
            "name": self.name,
            "bytes": self.size,
            "level": self.level,
            "full": self.full,
            "runs": runs,
        }

    @classmethod
    def from_plain(cls, plain: Any) -> Segment:
        """The segment that JSON stands for.

        Raises:
            InvalidValue: The value is not of the format.
        """
        found = _SEGMENT(plain)
        file = found["name"]
        runs = []
        for number, row in enumerate(found["runs"]):
            partition, base, first, batches, size, first_ms, last_ms = row
            rows = sum(batches)
            if base + rows > HIGHEST or first + len(batches) > MOST_BATCHES:
                msg = "ends beyond the highest number"
                raise InvalidValue(msg, "runs", number)
            if first_ms > last_ms:
                msg = "ends before it begins"
                raise InvalidValue(msg, "runs", number)
            run = (partition, base, rows, file, first, tuple(batches), size)
            runs.append(Run(*run, first_ms, last_ms))
        return cls(file, found["bytes"], found["level"], found["full"], tuple(runs))


@dataclass(frozen=True, slots=True)
class WriterState:
    """What is remembered of one writer."""

    owner: str
    """The instance that has claimed it."""
    at: int
    """Milliseconds: its last commit or claim."""
    epoch: int | None = None
    rows: int = 0
    sums: Mapping[str, int] = field(default_factory=dict)
    position: str | None = None
    """Of its source, as JSON text."""

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
    """One step of a topic. All members but the first three may be empty."""

    id: str
    """A uuid: whoever lost the reply to its publication knows its own by it."""
    version: int
    at: int
    """Milliseconds since the epoch; never less than in the record before."""
    partitions: int | None = None
    """So many there are from here on."""
    schema: str | None = None
    """Arrow IPC, base64; in the first record."""
    writers: Mapping[str, WriterState] = field(default_factory=dict)
    """Replaces what was remembered of these."""
    forgotten: Sequence[str] = ()
    earliest: Mapping[int, int] = field(default_factory=dict)
    """By partition; moves before segments are appended."""
    segments: Sequence[Segment] = ()
    """Appended or, from a merge, in place of others of the same offsets."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Segments that no reader needs from here on, with their bytes."""
    void: Sequence[int] = ()
    """Versions before this one whose records a crash has torn."""
    deleted: bool = False
    """The topic has ended."""

    def encode(self) -> bytes:
        """A line of JSON and a line with its CRC-32."""
        plain: dict[str, Any] = {
            "format": FORMAT,
            "version": self.version,
            "id": self.id,
            "at": self.at,
            "partitions": self.partitions,
            "schema": self.schema,
            "writers": {name: w.to_plain() for name, w in self.writers.items()},
            "forgotten": list(self.forgotten),
            "earliest": {str(lane): at for lane, at in self.earliest.items()},
            "segments": [segment.to_plain() for segment in self.segments],
            "removed": dict(self.removed),
            "void": list(self.void),
            "deleted": self.deleted,
        }
        return seal({k: v for k, v in plain.items() if v or k in _ALWAYS})

    @classmethod
    def decode(cls, data: bytes, place: str, version: int) -> Record:
        """The record of a version.

        Args:
            data: Of the file.
            place: Of the file, for messages.
            version: That the file is named after.

        Raises:
            CorruptData: data_loss; the file is torn, or not of the format.
            FormatRefused: permanent.
        """
        found = decode_sealed(data, place, _RECORD)
        if found["version"] != version:
            msg = f"{place}: the record is of version {found['version']}"
            raise CorruptData(msg, remedy=DAMAGED)
        return cls(**found)


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
_SEGMENT: Final = members_of(
    {
        "name": named(SEGMENT),
        "bytes": whole(),
        "level": whole(),
        "full": flag,
        "runs": list_of(_RUN),
    }
)
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

_RECORD: Final = members_of(
    {"id": ID, "version": VERSION, "at": whole()},
    {
        "partitions": optional(whole(1, MOST_PARTITIONS)),
        "schema": optional(text),
        "writers": mapping_of(text, decode_writer),
        "forgotten": list_of(text),
        "earliest": mapping_of(digits(MOST_PARTITIONS - 1), whole()),
        "segments": list_of(Segment.from_plain),
        "removed": mapping_of(named(SEGMENT), whole()),
        "void": wholes(0, HIGHEST),
        "deleted": flag,
    },
)


def seal(plain: Mapping[str, Any]) -> bytes:
    """A line of JSON and a line with its CRC-32, in eight hexadecimal digits.

    Raises:
        MisuseError: misuse; it would be longer than what is read.
    """
    body = json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
    if len(body) > SEALED_BYTES - 10:
        msg = f"the record of this step would have {len(body)} bytes"
        remedy = f"write smaller epochs: a record has at most {SEALED_BYTES} bytes"
        raise MisuseError(msg, remedy=remedy)
    return b"%b\n%08x\n" % (body, zlib.crc32(body))


def is_intact(data: bytes) -> bool:
    """Whether the checksum of a sealed file matches: a crash may have cut it."""
    body, _, rest = data.partition(b"\n")
    return rest == b"%08x\n" % zlib.crc32(body)


def unseal(data: bytes, place: str) -> dict[str, Any]:
    """The JSON object of `seal`, without its member ``format``.

    Nothing else of it is checked.

    Raises:
        CorruptData: data_loss; the file is torn, or no object.
        FormatRefused: permanent; another format, or a later version of this one.
    """
    if not is_intact(data):
        msg = f"{place}: the file is torn, or was changed"
        raise CorruptData(msg, remedy=DAMAGED)
    body = data.partition(b"\n")[0]
    try:
        plain = json.loads(body)
    except (ValueError, RecursionError):
        plain = None
    if not isinstance(plain, dict):
        msg = f"{place}: the file is no JSON object"
        raise CorruptData(msg, remedy=DAMAGED)
    found = plain.pop("format", None)
    if type(found) is not int:
        msg = f"{place}: the file has no format number"
        raise CorruptData(msg, remedy=DAMAGED)
    if found != FORMAT:
        shown = found if abs(found) < 2**63 else "a number of more than 64 bits"
        msg = f"{place}: format {shown}, and this version reads {FORMAT}"
        raise FormatRefused(msg, remedy="read it with a later version")
    return plain


def decode_sealed(data: bytes, place: str, decoder: Decoder) -> Any:
    """What a sealed file stands for.

    Raises:
        CorruptData: data_loss; the file is torn, or not of the format.
        FormatRefused: permanent.
    """
    try:
        return decoder(unseal(data, place))
    except InvalidValue as error:
        msg = f"{place}: {error}"
        raise CorruptData(msg, remedy=DAMAGED) from None


def runs_of(segments: Iterable[Segment]) -> list[Run]:
    """All runs, by partition and offset."""
    return sorted(run for segment in segments for run in segment.runs)
