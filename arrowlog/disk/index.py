"""The index of a topic: finds the run of an offset in logarithmic time.

Runs up to a snapshot are in parts, which are sorted Arrow files; later ones are in
memory. A run of a merge covers the same offsets as the runs that it replaces, and is in
a newer part: the newest part with an offset is valid, and replaced runs remain until
parts are merged.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.arrowlog.disk.records import Run
from streamfactory.spi.computing import pc

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

PART_SCHEMA: Final = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("base", pa.int64(), nullable=False),
        pa.field("rows", pa.int64(), nullable=False),
        pa.field("file", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("first_batch", pa.int32(), nullable=False),
        pa.field("batches", pa.list_(pa.int32()), nullable=False),
        pa.field("size", pa.int64(), nullable=False),
        pa.field("first_ms", pa.int64(), nullable=False),
        pa.field("last_ms", pa.int64(), nullable=False),
    ]
)


class Part:
    """Runs by partition and base: one Arrow file, mapped.

    Args:
        name: Name of the file.
        rows: Its only batch.
    """

    def __init__(self, name: str, rows: pa.RecordBatch) -> None:
        self.name = name
        self.rows = rows
        self.partition = _numbers(rows, "partition")
        self.base = _numbers(rows, "base")
        self.count = _numbers(rows, "rows")
        self.first_batch = _numbers(rows, "first_batch")
        self.size = _numbers(rows, "size")
        self.first_ms = _numbers(rows, "first_ms")
        self.last_ms = _numbers(rows, "last_ms")
        self.file = rows.column("file").indices.to_numpy(zero_copy_only=False)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @cached_property
    def end(self) -> Numbers:
        """End of each run; computed on first use, as it takes long for large parts."""
        return self.base + self.count

    def row_ranges(self, partitions: Numbers) -> tuple[Numbers, Numbers]:
        """First and one behind the last run of each partition."""
        # In the type of the column, which would be converted otherwise.
        partitions = partitions.astype(self.partition.dtype)
        return (
            np.searchsorted(self.partition, partitions, "left"),
            np.searchsorted(self.partition, partitions, "right"),
        )

    def covering(self, partitions: Numbers, offsets: Numbers) -> Numbers:
        """Return the run of each offset; -1 if there is none."""
        low, high = self.row_ranges(partitions)
        at = _bisect(self.base, low, high, offsets, right=True) - 1
        some = np.maximum(at, 0)
        there = (at >= low) & (self.base[some] + self.count[some] > offsets)
        return np.where(there, at, -1)

    def runs(self, rows: Numbers) -> list[Run]:
        """Some runs, in the order of ``rows``."""
        column = self.rows.column
        files = column("file").dictionary.take(pa.array(self.file[rows])).to_pylist()
        ends = column("batches").offsets.to_numpy()
        batches = column("batches").values.to_numpy()
        lists = (
            tuple(batches[begin:end].tolist())
            for begin, end in zip(
                ends[rows].tolist(), ends[rows + 1].tolist(), strict=True
            )
        )
        before = (self.partition, self.base, self.count)
        after = (self.size, self.first_ms, self.last_ms)
        columns = [
            *(one[rows].tolist() for one in before),
            files,
            self.first_batch[rows].tolist(),
            lists,
            *(one[rows].tolist() for one in after),
        ]
        return list(map(Run, *columns))

    def named(self, rows: Numbers) -> set[str]:
        """Names of the segments of some runs."""
        names = self.rows.column("file").dictionary
        return set(names.take(pa.array(np.unique(self.file[rows]))).to_pylist())

    def of(self, files: Iterable[str]) -> Numbers:
        """The runs of some segments."""
        names = self.rows.column("file").dictionary
        known = pc.is_in(names, pa.array(list(files), names.type))
        return np.flatnonzero(known.to_numpy(zero_copy_only=False)[self.file])

    def files(self) -> list[str]:
        """Names of all segments in it."""
        names: list[str] = self.rows.column("file").dictionary.to_pylist()
        return names


class _PartitionRuns:
    """The runs in memory of one partition."""

    __slots__ = ("bases", "runs")

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self.bases = [run.base for run in runs]
        self.runs = list(runs)

    def add(self, run: Run) -> None:
        """Add a run, replacing those of the same offsets."""
        low = bisect_left(self.bases, run.base)
        high = bisect_left(self.bases, run.end, low)
        self.bases[low:high] = [run.base]
        self.runs[low:high] = [run]


class Index:
    """All runs of a topic at one version. Never changed."""

    def __init__(self, parts: Sequence[Part] = ()) -> None:
        self.parts = parts
        self._recent: Mapping[int, _PartitionRuns] = {}
        self._files: frozenset[str] = frozenset()

    def with_runs(self, runs: Collection[Run]) -> Index:
        """Return the index with later runs; the latest run with an offset is valid."""
        changed: dict[int, _PartitionRuns] = {}
        for run in runs:
            recent = changed.get(run.partition)
            if recent is None:
                before = self._recent.get(run.partition)
                recent = _PartitionRuns(() if before is None else before.runs)
                changed[run.partition] = recent
            recent.add(run)
        index = Index(self.parts)
        index._recent = {**self._recent, **changed}
        index._files = self._files.union(run.file for run in runs)
        return index

    def find(self, partition: int, offset: int) -> Run | None:
        """The run that has an offset."""
        recent = self._recent.get(partition)
        if recent is not None:
            at = bisect_right(recent.bases, offset) - 1
            if at >= 0 and offset < recent.runs[at].end:
                return recent.runs[at]
        wanted = np.array([partition]), np.array([offset])
        for part in reversed(self.parts):
            found = part.covering(*wanted)
            if found[0] >= 0:
                return part.runs(found)[0]
        return None

    def has(self, file: str) -> bool:
        """Whether a segment was committed, as far as is recorded."""
        if file in self._files:
            return True
        return any(
            pc.index(part.rows.column("file").dictionary, file).as_py() >= 0
            for part in self.parts
        )

    def recent(self) -> list[Run]:
        """The runs in memory, by partition and offset."""
        return [
            run
            for partition in sorted(self._recent)
            for run in self._recent[partition].runs
        ]

    def runs(self, files: Iterable[str]) -> list[Run]:
        """All runs of some segments, by partition and offset."""
        wanted = set(files)
        found = {run for run in self.recent() if run.file in wanted}
        for part in self.parts:
            found.update(part.runs(part.of(wanted)))
        return sorted(found)

    def files(self) -> set[str]:
        """Return the names of all segments, including merged and deleted ones."""
        return set(self._files).union(*(part.files() for part in self.parts))

    def released(self, before: Numbers, after: Numbers) -> set[str]:
        """Return segments that are needed with one earliest, but not with another.

        Args:
            before: Earliest by partition.
            after: The same, or later.
        """
        found: set[str] = set()
        layers = self._layers()
        for number, layer in enumerate(layers):
            partitions, end = layer.partition, layer.end
            dying = np.flatnonzero(
                (end > before[partitions]) & (end <= after[partitions])
            )
            found |= layer.named(_shown(layers, number, dying))
        if found:
            for layer in layers:
                rows = layer.of(found)
                alive = layer.end[rows] > after[layer.partition[rows]]
                found -= layer.named(rows[alive])
        return found

    def held(self, earliest: Numbers) -> int:
        """Return the bytes in memory of all current runs, merged ones once."""
        layers, size = self._layers(), 0
        for number, layer in enumerate(layers):
            alive = np.flatnonzero(layer.end > earliest[layer.partition])
            size += int(layer.size[_shown(layers, number, alive)].sum())
        return size

    def _layers(self) -> list[Part]:
        """All runs, from old to new."""
        recent = self.recent()
        return [*self.parts, *([Part("", part_rows(recent))] if recent else [])]

    def first_at(
        self, partitions: Numbers, timestamp_ms: int
    ) -> list[list[tuple[int, Run | None]]]:
        """Where each partition's first row appended at or after a time may be.

        Answers:
            For each partition candidates: an offset, and where the time lies within a
            run of many times that run. The least of them is right.
        """
        found: list[list[tuple[int, Run | None]]] = [[] for _ in partitions]
        times = np.full(len(partitions), timestamp_ms)
        for part in self.parts:
            low, high = part.row_ranges(partitions)
            at = _bisect(part.last_ms, low, high, times, right=False)
            hits = np.flatnonzero(at < high)
            begins = at[hits]
            sure = part.first_ms[begins] >= timestamp_ms
            pairs = zip(
                hits[sure].tolist(), part.base[begins[sure]].tolist(), strict=True
            )
            for i, base in pairs:
                found[i].append((base, None))
            runs = part.runs(begins[~sure])
            for i, run in zip(hits[~sure].tolist(), runs, strict=True):
                found[i].append((run.base, run))
        for number, partition in enumerate(partitions):
            recent = self._recent.get(int(partition))
            if recent is None:
                continue
            at_ = bisect_left(recent.runs, timestamp_ms, key=lambda run: run.last_ms)
            if at_ < len(recent.runs):
                run_ = recent.runs[at_]
                exact = run_.first_ms >= timestamp_ms
                found[number].append((run_.base, None if exact else run_))
        return found

    def sizes(self, partition: int) -> list[tuple[int, int, int]]:
        """Base, end and bytes of what a partition holds, merged runs once."""
        found: list[tuple[int, int, int]] = []
        layers, one = self._layers(), np.array([partition])
        for number, layer in enumerate(layers):
            low, high = (int(edge[0]) for edge in layer.row_ranges(one))
            rows = _shown(layers, number, np.arange(low, high))
            columns = (layer.base[rows], layer.end[rows], layer.size[rows])
            found += zip(*(column.tolist() for column in columns), strict=True)
        return sorted(found)


def _shown(layers: Sequence[Part], number: int, rows: Numbers) -> Numbers:
    """Return the runs of a layer that no newer one replaces."""
    layer = layers[number]
    for newer in layers[number + 1 :]:
        hidden = newer.covering(layer.partition[rows], layer.base[rows]) >= 0
        rows = rows[~hidden]
    return rows


def part_rows(runs: Sequence[Run]) -> pa.RecordBatch:
    """Sorted runs, as a part has them."""
    columns = list(zip(*runs, strict=True)) or [()] * len(Run._fields)
    by_name = dict(zip(Run._fields, columns, strict=True))
    arrays = []
    for field in PART_SCHEMA:
        values = list(by_name[field.name])
        if field.name == "file":
            arrays.append(pa.array(values, pa.string()).dictionary_encode())
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=PART_SCHEMA)


def merge_parts(parts: Sequence[Part], earliest: Numbers) -> pa.RecordBatch:
    """Merge parts, from old to new, without replaced and deleted runs."""
    kept = []
    for number, part in enumerate(parts):
        alive = part.end > earliest[part.partition]
        for newer in parts[number + 1 :]:
            alive &= newer.covering(part.partition, part.base) < 0
        kept.append(part.rows.filter(pa.array(alive)))
    table = pa.Table.from_batches(kept).unify_dictionaries()
    table = table.sort_by([("partition", "ascending"), ("base", "ascending")])
    whole = table.combine_chunks()
    if whole.num_rows == 0:
        return part_rows([])
    # Names without runs are removed, too.
    files = whole.column("file").cast(pa.string()).combine_chunks().dictionary_encode()
    whole = whole.set_column(3, PART_SCHEMA.field("file"), files)
    return whole.cast(PART_SCHEMA).combine_chunks().to_batches()[0]


def dead_share(part: Part, earliest: Numbers) -> float:
    """Return the share of a part before earliest."""
    if not len(part):
        return 1.0
    return float(np.mean(part.end <= earliest[part.partition]))


def _numbers(rows: pa.RecordBatch, name: str) -> Numbers:
    found: Numbers = rows.column(name).to_numpy(zero_copy_only=False)
    return found


def _bisect(
    values: Numbers, low: Numbers, high: Numbers, wanted: Numbers, *, right: bool
) -> Numbers:
    """``bisect`` in many ranges of one array at once."""
    low, high = low.astype(np.int64), high.astype(np.int64)
    last = max(len(values) - 1, 0)
    while True:
        open_ = low < high
        if not open_.any():
            return low
        middle = (low + high) // 2
        found = values[np.minimum(middle, last)]
        before = (found <= wanted) if right else (found < wanted)
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
