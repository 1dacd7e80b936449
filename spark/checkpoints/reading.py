"""Reads Spark's checkpoint of a query, without Spark.

The folder contains ``metadata`` (query id), ``offsets/N`` (planned batch),
``commits/N`` (committed batch), and for some sources and operators ``sources`` and
``state``, which are not read. Nothing is written.
"""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spark.checkpoints.begins import read_begin
from streamfactory.spi import Position, PositionRefused
from streamfactory.wiring.microbatch import BatchOffset

if TYPE_CHECKING:
    from streamfactory.spark.checkpoints.places import Place

OFFSETS_VERSION: Final = 2
COMMITS_VERSION: Final = 2

_NUMBER: Final = re.compile("0|[1-9][0-9]{0,18}")
_VERSION: Final = re.compile("v([1-9][0-9]{0,8})")
_NAMED: Final = re.compile("([A-Za-z0-9_.-]+):(.*)", re.DOTALL)
_NONE: Final = "-"
"""Spark's text for a source without offset."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MILLIS: Final = 253402300799999
"""End of the year 9999."""


@final
@dataclass(frozen=True, slots=True)
class SourceOffset:
    """End offset of one source of a batch."""

    name: str | None
    """None if neither Spark nor a pipeline names it; then the order counts."""
    offset: BatchOffset
    real_time: bool = False
    """Whether Spark's Kafka connector wrote it, as for pipelines in real time."""

    @property
    def position(self) -> Position:
        """The next offset to read of each partition."""
        return self.offset.at or Position()


@final
@dataclass(frozen=True, slots=True)
class Batch:
    """A planned batch."""

    number: int
    planned: datetime
    watermark: datetime | None
    """None if no event time was seen or declared."""
    sources: tuple[SourceOffset, ...]


@final
@dataclass(frozen=True, slots=True)
class QueryCheckpoint:
    """A snapshot of a query's checkpoint."""

    place: Place
    query_id: str | None
    planned: tuple[int, ...]
    """The batches whose plan is kept, rising; Spark removes old ones."""
    committed: tuple[int, ...]
    notes: tuple[str, ...]
    """Harmless irregularities."""
    names: tuple[str, ...] = ()
    """Names of the sources where Spark has none: the ids of a pipeline's."""
    of_pipeline: bool = False
    """Whether a pipeline has it, which Spark's Kafka connector may read."""

    @property
    def last(self) -> int | None:
        """The last committed batch."""
        return self.committed[-1] if self.committed else None

    @property
    def unfinished(self) -> int | None:
        """The planned batch that is not committed; Spark repeats it as planned."""
        if not self.planned or self.planned[-1] == self.last:
            return None
        return self.planned[-1]

    def batch(self, number: int) -> Batch:
        """The plan of one batch.

        Raises:
            PositionRefused: permanent; it is not kept, not whole, of a newer Spark, or
                of another source than ours.
        """
        if number not in self.planned:
            kept = (
                f"{self.planned[0]} to {self.planned[-1]}" if self.planned else "none"
            )
            msg = f"{self.place.text}: batch {number} is not kept; kept are: {kept}"
            raise PositionRefused(msg, remedy="name one of these")
        found = _read_batch(self.place, number, of_pipeline=self.of_pipeline)
        if any(one.real_time for one in found.sources):
            found = _with_begin(found, read_begin(self.place))
        if len(self.names) != len(found.sources):
            return found
        pairs = zip(found.sources, self.names, strict=True)
        named = (replace(one, name=one.name or name) for one, name in pairs)
        return replace(found, sources=tuple(named))

    def reached(self) -> Batch | None:
        """The last committed batch: rows before its offsets are processed."""
        return None if self.last is None else self.batch(self.last)

    def positions(self) -> tuple[Position, ...] | None:
        """Next position of each source; None before the first batch."""
        if self.unfinished is None:
            reached = self.reached()
            return reached and tuple(source.position for source in reached.sources)
        if self.unfinished == 0:
            return tuple(s.offset.begun for s in self.batch(0).sources)
        before = self.batch(self.unfinished - 1)
        return tuple(source.position for source in before.sources)

    def watermark(self) -> datetime | None:
        """The newest watermark: of the last commit, else of the plan."""
        if self.last is None:
            return None
        path = f"{self.place.text}/commits/{self.last}"
        lines = _read_log(self.place.child("commits"), str(self.last), COMMITS_VERSION)
        body = _object("\n".join(lines[1:]), path)
        return _watermark(body.get("nextBatchWatermarkMs", 0), path)

    def committed_at(self) -> datetime | None:
        """Time of the last commit; None if unknown."""
        if self.last is None:
            return None
        return self.place.child("commits").written(str(self.last))


def is_query_checkpoint(place: Place) -> bool:
    """Whether a folder looks like a query's checkpoint."""
    return bool({"metadata", "offsets", "commits"} & set(place.names() or ()))


def read_query(place: Place, *, of_pipeline: bool = False) -> QueryCheckpoint:
    """Read a query's checkpoint, also while Spark writes to it.

    Args:
        place: Its folder.
        of_pipeline: Whether it is a pipeline's.

    Raises:
        PositionRefused: permanent; there is none, or it is incomplete.
    """
    if place.names() is None:
        msg = f"the folder {place.text} does not exist"
        raise PositionRefused(msg, remedy="check the path")
    if not is_query_checkpoint(place):
        msg = (
            f"{place.text} is not a checkpoint: it has no metadata, offsets or commits"
        )
        raise PositionRefused(msg, remedy="name the folder that Spark writes to")
    notes: list[str] = []
    # Commits first: every listed commit then has its plan.
    committed = _numbers(place.child("commits"), notes)
    planned = _numbers(place.child("offsets"), notes)
    if committed and (not planned or planned[-1] < committed[-1]):
        msg = (
            f"{place.text}: batch {committed[-1]} is done, and its offsets are missing"
        )
        raise PositionRefused(msg)
    query_id = _query_id(place)
    if query_id is None:
        notes.append("there is no query id: Spark will give the query another one")
    return QueryCheckpoint(
        place, query_id, planned, committed, tuple(notes), of_pipeline=of_pipeline
    )


def _numbers(folder: Place, notes: list[str]) -> tuple[int, ...]:
    found = []
    for name in folder.names() or ():
        if _NUMBER.fullmatch(name):
            found.append(int(name))
        elif name.endswith(".compact"):
            msg = f"{folder.text}/{name} is a compacted log, which this does not read"
            raise PositionRefused(msg, remedy="upgrade streamfactory")
        elif not name.startswith("."):  # a dot begins checksums and half-written files
            notes.append(f"{folder.text}/{name} is no batch, and not read")
    return tuple(sorted(found))


def _query_id(place: Place) -> str | None:
    content = _checked(place, "metadata")
    if content is None:
        return None
    path = f"{place.text}/metadata"
    found = _object(_text(content, path), path).get("id")
    if not isinstance(found, str) or not found:
        msg = f"{path} has no id of a query"
        raise PositionRefused(msg)
    return found


def _read_batch(place: Place, number: int, *, of_pipeline: bool) -> Batch:
    folder, path = place.child("offsets"), f"{place.text}/offsets/{number}"
    lines = _read_log(folder, str(number), OFFSETS_VERSION)
    if len(lines) < 3:
        msg = f"{path} is cut off: it names no source"
        raise PositionRefused(msg)
    body = _object(lines[1], path)
    planned = _time(body.get("batchTimestampMs"), path)
    watermark = _watermark(body.get("batchWatermarkMs", 0), path)
    sources = tuple(
        _source(line, index, named=lines[0] != "v1", path=path, of_pipeline=of_pipeline)
        for index, line in enumerate(lines[2:])
    )
    return Batch(number, planned, watermark, sources)


def _source(
    line: str, index: int, *, named: bool, path: str, of_pipeline: bool
) -> SourceOffset:
    name = None
    if named:
        match = _NAMED.fullmatch(line)
        if match is None:
            msg = f"{path}: source {index} has no name"
            raise PositionRefused(msg)
        name, line = match[1], match[2]
    shown = f"source {index if name is None else name!r}"
    if line == _NONE:
        msg = f"{path}: the position of {shown} is recorded, and empty"
        raise PositionRefused(msg)
    try:
        return SourceOffset(name, BatchOffset.parse(line))
    except PositionRefused as error:
        if of_pipeline and (position := kafka_position(line)) is not None:
            return SourceOffset(name, BatchOffset(position), real_time=True)
        if _foreign(line):
            msg = f"{path}: {shown} is not a source of streamfactory: {line[:80]}"
            remedy = "checkpoints of other sources are read by their own tools"
            raise PositionRefused(msg, remedy=remedy) from error
        msg = f"{path}: {shown}: {error.what}"
        raise PositionRefused(msg, remedy=error.remedy) from error


def _with_begin(batch: Batch, begin: Position) -> Batch:
    """The batch with what offsets of Spark's Kafka connector lack."""
    begun = begin if batch.number == 0 else Position()
    sources = []
    for one in batch.sources:
        at = Position(one.position, begin.incarnations)
        sources.append(replace(one, offset=BatchOffset(at, begun)))
    return replace(batch, sources=tuple(sources))


def kafka_position(text: str) -> Position | None:
    """The position in an offset of Spark's Kafka connector; None if it is none."""
    try:
        plain = json.loads(text)
        if not isinstance(plain, dict) or not plain:
            return None
        return Position.from_json(json.dumps({"version": 1, "offsets": plain}))
    except (ValueError, RecursionError, PositionRefused):
        return None


def _foreign(line: str) -> bool:
    """Whether it is valid JSON of another source, not a corrupt offset of ours."""
    try:
        plain = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return not isinstance(plain, dict) or not {"version", "at"} & set(plain)


def _read_log(folder: Place, name: str, newest: int) -> list[str]:
    """The lines of a file of Spark's logs; the first is a version that this reads."""
    path = f"{folder.text}/{name}"
    content = _checked(folder, name)
    if content is None:
        msg = f"{path} is gone: the query goes on meanwhile, or somebody cleans up"
        raise PositionRefused(msg, remedy="look again")
    if not content:
        msg = f"{path} is recorded, and empty"
        raise PositionRefused(msg)
    lines = _text(content, path).rstrip("\n").split("\n")
    match = _VERSION.fullmatch(lines[0])
    if match is None:
        msg = f"{path} is no log of Spark: it begins with {lines[0][:40]!r}"
        raise PositionRefused(msg)
    if int(match[1]) > newest:
        msg = f"{path} has version {match[1]}, this reads {newest}"
        raise PositionRefused(msg, remedy="upgrade streamfactory")
    return lines


def _text(content: bytes, path: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        msg = f"{path} is not text"
        raise PositionRefused(msg) from error


def _object(text: str, path: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is cut off, or not of Spark: {text[:40]!r} is not JSON"
        raise PositionRefused(msg) from error
    if not isinstance(body, dict):
        msg = f"{path} is not of Spark: {text[:40]!r} is no object"
        raise PositionRefused(msg)
    return body


def _time(value: Any, path: str) -> datetime:
    if type(value) is not int or not 0 <= value <= _LAST_MILLIS:
        msg = f"{path} has no time in milliseconds, but {str(value)[:40]}"
        raise PositionRefused(msg)
    return _EPOCH + timedelta(milliseconds=value)


def _watermark(value: Any, path: str) -> datetime | None:
    """The watermark; None if not started: 0, or negative for times before 1970."""
    if type(value) is int and value <= 0:
        return None
    return _time(value, path)


# --- checksums -------------------------------------------------------------------

_CRC_HEAD: Final = b"crc\0"


def _checked(folder: Place, name: str) -> bytes | None:
    """Content of a file, verified by the checksum file that Hadoop writes."""
    content = folder.read(name)
    if content is None:
        return None
    sums = folder.read(f".{name}.crc")
    if content and sums is not None and not _sums_hold(content, sums):
        msg = f"{folder.text}/{name} is not what Spark wrote: its checksum differs"
        remedy = "Spark refuses it too: restore the file from a copy"
        raise PositionRefused(msg, remedy=remedy)
    return content


def _sums_hold(content: bytes, sums: bytes) -> bool:
    """Whether the CRC-32 of each chunk matches.

    As in Hadoop, an invalid file matches.
    """
    size = int.from_bytes(sums[4:8], "big")
    if sums[:4] != _CRC_HEAD or len(sums) < 8 or not size:
        return True
    chunks = [content[at : at + size] for at in range(0, len(content), size)]
    expected = b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)
    return sums[8:] == expected
