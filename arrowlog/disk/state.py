"""What a topic is after a number of records."""

from __future__ import annotations

import base64
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.arrowlog.disk.index import Index, Part
from streamfactory.arrowlog.disk.records import (
    FORMAT,
    Record,
    Segment,
    WriterState,
    record_name,
    seal,
    unseal,
)
from streamfactory.spi import CorruptData

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_IDS: Final = 512
"""Records that are known again by whoever lost the reply to publishing them."""


class State:
    """A topic at one version. Guarded by whoever holds it.

    Args:
        incarnation: Of the topic.
        schema: Of its rows.
    """

    def __init__(self, incarnation: str, schema: pa.Schema) -> None:
        self.incarnation = incarnation
        self.schema = schema
        self.version = -1
        self.snapshot = -1
        """Version of the snapshot that it was read from."""
        self.since = 0
        """Bytes of the records since."""
        self.at = 0
        self.earliest: list[int] = []
        self.latest: list[int] = []
        self.writers: dict[str, WriterState] = {}
        self.index = Index()
        self.small: dict[str, tuple[int, int, int, int]] = {}
        """Segments that are not full: level, bytes, rows, when they were appended."""
        self.removed: dict[str, int] = {}
        """Files that nobody needs: deleted by whoever writes the next snapshot."""
        self.carried: frozenset[str] = frozenset()
        """Those of them that the snapshot named already."""
        self.segments = 0
        self.deleted = False
        self.void: list[int] = []
        """Torn records right behind this version."""
        self.ids: deque[str] = deque(maxlen=_IDS)

    def apply(self, record: Record, size: int = 0) -> None:
        """Take the next step.

        Args:
            record: Of the next version.
            size: Its bytes.

        Raises:
            CorruptData: data_loss; it stands on a record that is torn, or stood on
                one that is not.
        """
        if list(record.void) != self.void:
            torn = min(set(self.void) ^ set(record.void))
            said = "torn" if torn in self.void else "whole, or missing"
            stands = record_name(record.version)
            msg = f"{record_name(torn)} is {said}, and {stands} says otherwise"
            raise CorruptData(msg)
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

    def _add(self, segment: Segment, at: int) -> None:
        self.segments += 1
        if not segment.full:
            self.small[segment.name] = (segment.level, segment.size, segment.rows, at)
        for run in segment.runs:
            self.index.add(run)
            self.latest[run.partition] = max(self.latest[run.partition], run.end)

    def _remove(self, name: str, size: int) -> None:
        if size:  # what was staged and never committed was not counted
            self.segments -= 1
        self.small.pop(name, None)
        self.removed[name] = size

    def fresh(self) -> list[str]:
        """Files that nobody needs, and that no snapshot has named yet."""
        return [name for name in self.removed if name not in self.carried]

    def floor(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Earliest by partition."""
        return np.array(self.earliest, np.int64)

    def to_snapshot(self, parts: list[str]) -> bytes:
        """As a snapshot says it."""
        return seal(
            {
                "format": FORMAT,
                "version": self.version,
                "at": self.at,
                "schema": schema_text(self.schema),
                "earliest": self.earliest,
                "latest": self.latest,
                "writers": {n: w.to_plain() for n, w in self.writers.items()},
                "small": {name: list(one) for name, one in self.small.items()},
                "segments": self.segments,
                "deleted": self.deleted,
                "recent": list(self.ids),
                "parts": parts,
                "removed": self.fresh(),
            }
        )

    @classmethod
    def from_snapshot(
        cls, incarnation: str, data: bytes, name: str, load: Callable[[str], Part]
    ) -> State:
        """Of what was published under ``name``.

        Raises:
            CorruptData: data_loss.
            FormatRefused: permanent.
        """
        plain: Mapping[str, Any] = unseal(data, name)
        state = cls(incarnation, schema_of(plain["schema"]))
        state.version = state.snapshot = plain["version"]
        state.at = plain["at"]
        state.earliest = plain["earliest"]
        state.latest = plain["latest"]
        state.writers = {n: WriterState(**w) for n, w in plain["writers"].items()}
        state.small = {name: tuple(one) for name, one in plain["small"].items()}
        state.segments = plain["segments"]
        state.deleted = plain["deleted"]
        state.ids.extend(plain["recent"])
        state.removed = dict.fromkeys(plain["removed"], 0)
        state.carried = frozenset(plain["removed"])
        state.index = Index([load(part) for part in plain["parts"]])
        return state


def schema_text(schema: pa.Schema) -> str:
    """A schema as Arrow IPC, base64."""
    return base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")


def schema_of(text: str) -> pa.Schema:
    """The schema of `schema_text`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
