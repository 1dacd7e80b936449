"""The state of a topic after a number of records."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from streamfactory.arrowlog.disk.index import Index
from streamfactory.arrowlog.disk.names import ARROW, record_name
from streamfactory.arrowlog.disk.records import DAMAGED
from streamfactory.arrowlog.disk.snapshots import Snapshot, schema_text
from streamfactory.spi import CorruptData

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.arrowlog.disk.index import Part
    from streamfactory.arrowlog.disk.records import Record, Segment, WriterState

_IDS: Final = 512
"""Number of recent record ids, by which publishers recognise records after a lost
reply."""


class State:
    """A topic at one version. Not thread-safe.

    Args:
        incarnation: Of the topic.
        schema: Of its rows.
        segment_format: Of its segments.
    """

    def __init__(
        self, incarnation: str, schema: pa.Schema, segment_format: str = ARROW
    ) -> None:
        self.incarnation = incarnation
        self.schema = schema
        self.segment_format = segment_format
        self.version = -1
        self.snapshot = -1
        """Version of the snapshot from which it was loaded."""
        self.since = 0
        """Bytes of the later records."""
        self.at = 0
        self.earliest: list[int] = []
        self.latest: list[int] = []
        self.writers: dict[str, WriterState] = {}
        self.index = Index()
        self.small: dict[str, tuple[int, ...]] = {}
        """Segments that are not full: level, bytes, rows, append time; and the
        partition, of a format that does not mix them."""
        self.removed: dict[str, int] = {}
        """Unused files, which the writer of the next snapshot deletes."""
        self.carried: frozenset[str] = frozenset()
        """Those of them that the snapshot contains already."""
        self.segments = 0
        self.deleted = False
        self.void: list[int] = []
        """Truncated records directly after this version."""
        self.ids: deque[str] = deque(maxlen=_IDS)

    def apply(self, record: Record, size: int = 0) -> None:
        """Apply the next record.

        Args:
            record: Record of the next version.
            size: Its bytes.

        Raises:
            CorruptData: data_loss; the record does not continue this version. It was
                not applied.
        """
        self._check(record)
        self.void = []
        self.version, self.at = record.version, record.at
        self.since += size
        self.ids.append(record.id)
        self.deleted = self.deleted or record.deleted
        if record.partitions is not None:
            more = record.partitions - len(self.latest)
            self.earliest += [0] * more
            self.latest += [0] * more
        self.writers.update(record.writers)
        for writer in record.forgotten:
            self.writers.pop(writer, None)
        for lane, offset in record.earliest.items():
            self.earliest[lane] = max(self.earliest[lane], offset)
        for segment in record.segments:
            self._add(segment, record.at)
        for name, segment_size in record.removed.items():
            self._remove(name, segment_size)

    def _check(self, record: Record) -> None:
        """Refuse a record that does not continue this version."""
        if record.segment_format != self.segment_format:
            raise _unfit(record, "has another format than the topic")
        if list(record.void) != self.void:
            torn = min(set(self.void) ^ set(record.void) or {*record.void})
            state = "truncated" if torn in self.void else "complete, or missing"
            stands = record_name(record.version)
            msg = f"{record_name(torn)} is {state}, but {stands} records otherwise"
            raise CorruptData(msg)
        count = len(self.latest)
        if record.partitions is not None and record.partitions < count:
            raise _unfit(record, f"has {record.partitions} of {count} partitions")
        if record.at < self.at:
            raise _unfit(record, "has an earlier time than the previous record")
        count = record.partitions or count
        reached: dict[int, int] = {}
        for run in (run for segment in record.segments for run in segment.runs):
            lane = run.partition
            if lane >= count:
                raise _unfit(record, f"has rows of partition {lane} of {count}")
            latest = reached.get(lane, self._latest(lane))
            if run.base > latest:
                msg = f"has rows at offset {run.base}; partition {lane} ends at"
                raise _unfit(record, f"{msg} {latest}")
            reached[lane] = max(latest, run.end)
        for lane, offset in record.earliest.items():
            if lane >= count or offset > reached.get(lane, self._latest(lane)):
                raise _unfit(record, f"begins partition {lane} at offset {offset}")

    def _latest(self, lane: int) -> int:
        return self.latest[lane] if lane < len(self.latest) else 0

    def _add(self, segment: Segment, at: int) -> None:
        self.segments += 1
        if not segment.full:
            lane = () if self.segment_format == ARROW else (segment.runs[0].partition,)
            self.small[segment.name] = (
                segment.level,
                segment.size,
                segment.rows,
                at,
                *lane,
            )
        for run in segment.runs:
            self.index.add(run)
            self.latest[run.partition] = max(self.latest[run.partition], run.end)

    def _remove(self, name: str, size: int) -> None:
        if size:  # files that were never committed were not counted
            self.segments = max(0, self.segments - 1)
        self.small.pop(name, None)
        self.removed[name] = size

    def fresh(self) -> list[str]:
        """Return unused files that no snapshot contains yet."""
        return [name for name in self.removed if name not in self.carried]

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
            recent=list(self.ids),
            parts=parts,
            removed=self.fresh(),
            segment_format=self.segment_format,
        )

    @classmethod
    def from_snapshot(
        cls, incarnation: str, taken: Snapshot, schema: pa.Schema, parts: list[Part]
    ) -> State:
        """Create the state from a snapshot.

        Args:
            incarnation: Of the topic.
            taken: The snapshot.
            schema: That it has as text.
            parts: Those that it names.
        """
        state = cls(incarnation, schema, taken.segment_format)
        state.version = state.snapshot = taken.version
        state.at = taken.at
        state.earliest = taken.earliest
        state.latest = taken.latest
        state.writers = dict(taken.writers)
        state.small = {name: tuple(one) for name, one in taken.small.items()}
        state.segments = taken.segments
        state.deleted = taken.deleted
        state.ids.extend(taken.recent)
        state.removed = dict.fromkeys(taken.removed, 0)
        state.carried = frozenset(taken.removed)
        state.index = Index(parts)
        return state


def _unfit(record: Record, why: str) -> CorruptData:
    return CorruptData(f"{record_name(record.version)} {why}", remedy=DAMAGED)
