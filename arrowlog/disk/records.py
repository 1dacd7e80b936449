"""The words of the log on disk: what commit records and snapshots say.

`docs/log-format.md` is the manual of the same thing, for readers in other languages.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamfactory.spi import CorruptData, FormatRefused, LastCommit, Position, Summary

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FORMAT: Final = 1
"""Of everything that is written here."""


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
    def from_plain(cls, plain: Mapping[str, Any]) -> Segment:
        """Of JSON."""
        name = plain["name"]
        runs = tuple(
            Run(p, base, sum(batches), name, first, tuple(batches), size, begin, end)
            for p, base, first, batches, size, begin, end in plain["runs"]
        )
        return cls(name, plain["bytes"], plain["level"], plain["full"], runs)


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
    def decode(cls, data: bytes, name: str) -> Record:
        """Of what was published under ``name``.

        Raises:
            CorruptData: data_loss; it is torn, or was changed.
            FormatRefused: permanent.
        """
        plain = unseal(data, name)
        return cls(
            plain["id"],
            plain["version"],
            plain["at"],
            plain.get("partitions"),
            plain.get("schema"),
            {name: WriterState(**w) for name, w in plain.get("writers", {}).items()},
            plain.get("forgotten", ()),
            {int(lane): at for lane, at in plain.get("earliest", {}).items()},
            [Segment.from_plain(one) for one in plain.get("segments", ())],
            plain.get("removed", {}),
            plain.get("void", ()),
            plain.get("deleted", False),
        )


_ALWAYS: Final = frozenset({"format", "version", "id", "at"})


def record_name(version: int) -> str:
    """Where the record of a version lies."""
    return f"log/{version:020d}.json"


def seal(plain: Mapping[str, Any]) -> bytes:
    """A line of JSON and a line with its CRC-32, in eight hexadecimal digits."""
    body = json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
    return b"%b\n%08x\n" % (body, zlib.crc32(body))


def unseal(data: bytes, name: str) -> Any:
    """The JSON of `seal`, checked.

    Raises:
        CorruptData: data_loss.
        FormatRefused: permanent; another format, or a later version of this one.
    """
    body, _, rest = data.partition(b"\n")
    if rest != b"%08x\n" % zlib.crc32(body):
        msg = f"{name}: the file is torn, or was changed"
        raise CorruptData(msg)
    try:
        plain = json.loads(body)
    except ValueError:
        plain = None
    found = plain.get("format") if isinstance(plain, dict) else None
    if found != FORMAT:
        msg = f"{name}: format {found!r}, and this version reads {FORMAT}"
        raise FormatRefused(msg)
    return plain


def runs_of(segments: Iterable[Segment]) -> list[Run]:
    """All runs, by partition and offset."""
    return sorted(run for segment in segments for run in segment.runs)
