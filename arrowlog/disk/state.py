"""The state of a topic after a number of records: a value that each record replaces."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streamfactory.arrowlog.disk.index import Index
from streamfactory.arrowlog.disk.names import ARROW, record_name
from streamfactory.arrowlog.disk.records import (
    FORMAT,
    INLINE,
    SEGMENT_FORMATS,
    SmallSegment,
)
from streamfactory.arrowlog.disk.sealed import DAMAGED
from streamfactory.arrowlog.disk.snapshots import Snapshot, schema_text
from streamfactory.spi import CorruptData

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.index import Part
    from streamfactory.arrowlog.disk.records import Record, Run, Segment, WriterState

_SNAPSHOT_RECORDS: Final = 64
_SNAPSHOT_BYTES: Final = 512 << 10
"""A snapshot is due after so many records, or so many bytes of them."""
_IDS: Final = 512
"""Number of recent record ids, by which publishers recognise records after a lost
reply."""
_ATTEMPTS: Final = 1024
"""Number of recent attempts with carried rows: a second commit of them is refused."""


@dataclass(frozen=True, slots=True)
class State:
    """A topic at one version. Never changed: threads read it without a lock."""

    schema: pa.Schema
    format: int = FORMAT
    """Number of the format of its records."""
    version: int = -1
    snapshot: int = -1
    """Version of the snapshot from which it was loaded."""
    since: int = 0
    """Bytes of the later records, without inline segments."""
    at: int = 0
    earliest: Sequence[int] = ()
    latest: Sequence[int] = ()
    writers: Mapping[str, WriterState] = field(default_factory=dict)
    index: Index = field(default_factory=Index)
    small: Mapping[str, SmallSegment] = field(default_factory=dict)
    """Segments that are not full."""
    inline: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of the inline segments, which are not in files yet."""
    removed: Mapping[str, int] = field(default_factory=dict)
    """Unused files, which the writer of the next snapshot deletes."""
    carried: frozenset[str] = frozenset()
    """Those of them that the snapshot contains already."""
    segments: int = 0
    deleted: bool = False
    void: Sequence[int] = ()
    """Truncated records directly after this version."""
    ids: Sequence[str] = ()
    """Of the last records."""
    attempts: Sequence[str] = ()
    """The last ones whose carried rows were committed."""

    @property
    def segment_format(self) -> str:
        """Format of the segments that are files."""
        return SEGMENT_FORMATS[self.format]

    @property
    def is_snapshot_due(self) -> bool:
        """Whether there are many records since the last snapshot, or large ones."""
        records = self.version - self.snapshot
        return records >= _SNAPSHOT_RECORDS or self.since >= _SNAPSHOT_BYTES

    @property
    def following(self) -> int:
        """Version of the next record."""
        return self.version + 1 + len(self.void)

    @property
    def fresh(self) -> list[str]:
        """Unused files that no snapshot contains yet."""
        return [name for name in self.removed if name not in self.carried]

    @property
    def floor(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Earliest by partition."""
        return np.array(self.earliest, np.int64)

    def to_snapshot(self, parts: list[str]) -> Snapshot:
        """This version, with its index in ``parts``."""
        return Snapshot(
            version=self.version,
            at=self.at,
            schema=schema_text(self.schema),
            earliest=self.earliest,
            latest=self.latest,
            writers=self.writers,
            small=self.small,
            segments=self.segments,
            deleted=self.deleted,
            recent=self.ids,
            parts=parts,
            removed=self.fresh,
            inline=self.inline,
            attempts=self.attempts,
            format=self.format,
        )

    @classmethod
    def from_snapshot(
        cls, taken: Snapshot, schema: pa.Schema, parts: Sequence[Part]
    ) -> State:
        """Create the state from a snapshot.

        Args:
            taken: The snapshot.
            schema: That it has as text.
            parts: Those that it names.
        """
        return cls(
            schema,
            taken.format,
            version=taken.version,
            snapshot=taken.version,
            at=taken.at,
            earliest=taken.earliest,
            latest=taken.latest,
            writers=taken.writers,
            index=Index(parts),
            small=taken.small,
            inline=taken.inline,
            removed=dict.fromkeys(taken.removed, 0),
            carried=frozenset(taken.removed),
            segments=taken.segments,
            deleted=taken.deleted,
            ids=tuple(taken.recent),
            attempts=tuple(taken.attempts),
        )


def apply(state: State, record: Record, size: int = 0) -> State:
    """Return the state after the next record.

    Args:
        state: The version before.
        record: Record of the next version.
        size: Its bytes.

    Raises:
        CorruptData: data_loss; the record does not continue this version.
    """
    _check(state, record)
    runs = [run for segment in record.segments for run in segment.runs]
    return replace(
        state,
        format=record.format,
        version=record.version,
        at=record.at,
        since=state.since + max(0, size - record.inline_size),
        earliest=_moved(_widened(state.earliest, record), record.earliest),
        latest=_moved(_widened(state.latest, record), _ends(runs)),
        writers=_writers(state, record),
        index=state.index.with_runs(runs) if runs else state.index,
        small=_small(state, record),
        inline=_inline(state, record),
        removed=_removed(state, record),
        segments=_segments(state, record),
        deleted=state.deleted or record.deleted,
        void=(),
        ids=(*state.ids, record.id)[-_IDS:],
        attempts=(*state.attempts, *record.attempts)[-_ATTEMPTS:],
    )


def _widened(offsets: Sequence[int], record: Record) -> Sequence[int]:
    """Offsets of all partitions, with those that the record adds."""
    if record.partitions is None:
        return offsets
    return (*offsets, *(0,) * (record.partitions - len(offsets)))


def _moved(offsets: Sequence[int], later: Mapping[int, int]) -> Sequence[int]:
    """Offsets, moved forward in some partitions."""
    if not later:
        return offsets
    moved = list(offsets)
    for partition, offset in later.items():
        moved[partition] = max(moved[partition], offset)
    return moved


def _ends(runs: Sequence[Run]) -> Mapping[int, int]:
    """The highest end of the runs of each partition."""
    ends: dict[int, int] = {}
    for run in runs:
        ends[run.partition] = max(run.end, ends.get(run.partition, 0))
    return ends


def _segments(state: State, record: Record) -> int:
    # Files that were never committed have no bytes, and were not counted.
    gone = sum(1 for size in record.removed.values() if size)
    added = sum(1 for segment in record.segments if segment.content is None)
    return max(0, state.segments + added - gone)


def _writers(state: State, record: Record) -> Mapping[str, WriterState]:
    if not record.writers and not record.forgotten:
        return state.writers
    writers = {**state.writers, **record.writers}
    for name in record.forgotten:
        writers.pop(name, None)
    return writers


def _small(state: State, record: Record) -> Mapping[str, SmallSegment]:
    if not record.segments and not record.removed:
        return state.small
    added = {
        segment.name: _small_segment(state, segment, record.at)
        for segment in record.segments
        if not segment.full and segment.content is None
    }
    small = {**state.small, **added}
    for name in record.removed:
        small.pop(name, None)
    return small


def _inline(state: State, record: Record) -> Mapping[str, bytes]:
    added = {s.name: s.content for s in record.segments if s.content is not None}
    gone = state.inline.keys() & record.removed.keys()
    if not added and not gone:
        return state.inline
    kept = {name: c for name, c in state.inline.items() if name not in gone}
    return {**kept, **added}


def _removed(state: State, record: Record) -> Mapping[str, int]:
    """Files that are not needed any more; inline segments are none."""
    gone = {n: size for n, size in record.removed.items() if n not in state.inline}
    return {**state.removed, **gone} if gone else state.removed


def _small_segment(state: State, segment: Segment, at: int) -> SmallSegment:
    partition = None if state.segment_format == ARROW else segment.runs[0].partition
    return SmallSegment(segment.level, segment.size, segment.rows, at, partition)


def _check(state: State, record: Record) -> None:
    """Refuse a record that does not continue a version."""
    rises = (state.format, record.format) == (FORMAT, INLINE)
    if record.format != state.format and not rises:
        raise _unfit(record, "has another format than the topic")
    if list(record.void) != list(state.void):
        torn = min(set(state.void) ^ set(record.void) or {*record.void})
        found = "truncated" if torn in state.void else "complete, or missing"
        stands = record_name(record.version)
        msg = f"{record_name(torn)} is {found}, but {stands} records otherwise"
        raise CorruptData(msg)
    count = len(state.latest)
    if record.partitions is not None and record.partitions < count:
        raise _unfit(record, f"has {record.partitions} of {count} partitions")
    if record.at < state.at:
        raise _unfit(record, "has an earlier time than the previous record")
    _check_offsets(state, record, record.partitions or count)


def _check_offsets(state: State, record: Record, partitions: int) -> None:
    """Refuse gaps between offsets, and offsets beyond the latest."""
    reached: dict[int, int] = {}

    def latest(partition: int) -> int:
        known = state.latest[partition] if partition < len(state.latest) else 0
        return reached.get(partition, known)

    for run in (run for segment in record.segments for run in segment.runs):
        partition = run.partition
        if partition >= partitions:
            raise _unfit(record, f"has rows of partition {partition} of {partitions}")
        if run.base > latest(partition):
            msg = f"has rows at offset {run.base}; partition {partition} ends at"
            raise _unfit(record, f"{msg} {latest(partition)}")
        reached[partition] = max(latest(partition), run.end)
    for partition, offset in record.earliest.items():
        if partition >= partitions or offset > latest(partition):
            raise _unfit(record, f"begins partition {partition} at offset {offset}")


def _unfit(record: Record, why: str) -> CorruptData:
    return CorruptData(f"{record_name(record.version)} {why}", remedy=DAMAGED)
