"""Epochs that wait for their commit, and the record of several while it is built."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.carried import CarriedRows
from streamfactory.arrowlog.disk.inline import inline_segments
from streamfactory.arrowlog.disk.records import Run, Segment, WriterState
from streamfactory.arrowlog.disk.sealed import SEALED_BYTES
from streamfactory.arrowlog.disk.staging import StagedFile
from streamfactory.arrowlog.values import Committed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.values import Epoch

_GROUPED_BYTES: Final = SEALED_BYTES // 4
"""Approximate maximum bytes of a record with several commits."""


Part = StagedFile | CarriedRows
"""Rows of an epoch."""


@dataclass(slots=True, eq=False)
class CommitRequest:
    """One epoch that waits for its commit."""

    epoch: Epoch
    parts: Sequence[Part]
    """Its rows, in their order."""
    position: str | None
    """Position of its source, as JSON text."""
    turn: threading.Event = field(default_factory=threading.Event)
    """Set when it is done, or leads."""
    leads: bool = False
    """Whether its thread commits what is waiting."""
    done: bool = False
    committed: Committed = field(default_factory=Committed)
    error: BaseException | None = None

    @classmethod
    def of(cls, epoch: Epoch) -> CommitRequest:
        position = None if epoch.position is None else epoch.position.to_json()
        attempts = epoch.attempts
        files: dict[str, list[StagedFile]] = {}
        for file in StagedFile.of(attempts):
            files.setdefault(file.attempt, []).append(file)
        parts: list[Part] = []
        for one in attempts:
            parts += files.get(one.attempt, ())
            parts += () if one.rows is None else (one.rows,)
        return cls(epoch, parts, position)

    @property
    def attempts(self) -> list[str]:
        """Those whose rows are carried, or were until they were written to files."""
        return [one.attempt for one in self.epoch.attempts if one.rows is not None]

    @property
    def files(self) -> list[StagedFile]:
        """The parts that are files."""
        return [part for part in self.parts if isinstance(part, StagedFile)]

    @property
    def carried(self) -> list[CarriedRows]:
        """The parts that are not files yet."""
        return [part for part in self.parts if isinstance(part, CarriedRows)]

    @property
    def weight(self) -> int:
        """Approximate bytes in a record."""
        files = self.files
        batches = sum(len(run[2]) for file in files for run in file.runs)
        runs = sum(len(file.runs) for file in files)
        rows = sum(2 * part.size for part in self.carried)
        return 8 * batches + 96 * runs + rows + len(self.position or "")

    def written(self, at: int) -> WriterState:
        """The state of the writer after the epoch."""
        epoch, summary = self.epoch, self.epoch.summary
        stored = (epoch.number, summary.rows, summary.sums, self.position)
        return WriterState(epoch.instance, at, *stored)

    def outcome(self) -> Committed:
        if self.error is not None:
            raise self.error
        return self.committed


@dataclass(slots=True)
class RecordDraft:
    """A record of several commits while it is built."""

    schema: pa.Schema
    settings: Settings
    latest: list[int]
    at: int
    """Append time of its rows."""
    earliest: dict[int, int] = field(default_factory=dict)
    writers: dict[str, WriterState] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    """Those whose carried rows it has."""
    appended: bool = False
    """Whether it has an epoch, perhaps without rows."""
    _rows: dict[int, list[pa.RecordBatch]] = field(default_factory=dict)
    """Rows of the next inline segment, by partition."""
    _bases: dict[int, int] = field(default_factory=dict)
    """Offset of the first of them, by partition."""

    def append(self, request: CommitRequest) -> dict[int, range]:
        """Append the rows of an epoch, and return their offsets by partition."""
        parts = request.parts
        touched = sorted({number for part in parts for number in part.partitions})
        before = {number: self.latest[number] for number in touched}
        for part in parts:
            if isinstance(part, CarriedRows):
                self._append_rows(part)
            else:
                self.close_rows()
                self.segments.append(_segment(part, self.latest, self.at))
        self.attempts += request.attempts
        self.appended = True
        spans = {n: range(base, self.latest[n]) for n, base in before.items()}
        return {number: span for number, span in spans.items() if span}

    def _append_rows(self, carried: CarriedRows) -> None:
        for partition, rows in carried.parts:
            self._bases.setdefault(partition, self.latest[partition])
            self._rows.setdefault(partition, []).append(rows.batch)
            self.latest[partition] += rows.num_rows

    def close_rows(self) -> None:
        """Make an inline segment of the carried rows; those that follow are apart."""
        if self._rows:
            found = inline_segments(self._rows, self.schema, self.settings)
            self.segments += [
                _segment(file, self._bases, self.at, content) for file, content in found
            ]
            self._rows, self._bases = {}, {}


def grouped(requests: Sequence[CommitRequest]) -> Iterator[list[CommitRequest]]:
    """Group requests by record, in order.

    A request that replaces all rows has a record of its own, and no record exceeds the
    maximum size.
    """
    group: list[CommitRequest] = []
    weight = 0
    for request in requests:
        alone = request.epoch.replace or (group and group[-1].epoch.replace)
        weight += request.weight
        if group and (alone or weight > _GROUPED_BYTES):
            yield group
            group, weight = [], request.weight
        group.append(request)
    if group:
        yield group


def _segment(
    file: StagedFile,
    latest: list[int] | dict[int, int],
    now: int,
    content: bytes | None = None,
) -> Segment:
    """Return a staged file with its offsets; advances ``latest``."""
    runs = []
    for partition, first_batch, batches, size in file.runs:
        base, rows = latest[partition], sum(batches)
        runs.append(
            Run(
                partition,
                base,
                rows,
                file.name,
                first_batch,
                tuple(batches),
                size,
                now,
                now,
            )
        )
        latest[partition] = base + rows
    full = file.full and content is None
    return Segment(file.name, file.size, 0, full, tuple(runs), content)
