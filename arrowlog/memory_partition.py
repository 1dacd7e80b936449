"""One partition of the log in memory: batches, their offsets and times."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.spi import SoundRows


@dataclass(frozen=True, slots=True)
class Chunk:
    """One appended batch, with its first offset and time."""

    base: int
    rows: pa.RecordBatch
    appended_ms: int
    """Running maximum of the time: the clock may go back, bisection requires order."""
    size: int

    @property
    def end(self) -> int:
        """The offset after its last row."""
        return self.base + int(self.rows.num_rows)

    def part(
        self, start: int, max_rows: int, max_bytes: int
    ) -> tuple[pa.RecordBatch, int]:
        """Its rows from an offset on, up to the limits; at least one. Their bytes."""
        whole: int = self.rows.num_rows
        skip = start - self.base
        count = min(whole - skip, max_rows)
        if self.size > max_bytes:
            count = min(count, max(1, max_bytes * whole // self.size))
        if count == whole:
            return self.rows, self.size
        return self.rows.slice(skip, count), self.size * count // whole


@dataclass(slots=True)
class MemoryPartition:
    """The batches of one partition. Not thread-safe: the log has a lock."""

    earliest: int = 0
    latest: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)
    """Of the chunks: what bisection needs."""

    def append(self, rows: SoundRows, now_ms: int) -> None:
        """Append a batch; ``now_ms`` is its time."""
        if self.chunks:
            now_ms = max(now_ms, self.chunks[-1].appended_ms)
        self.chunks.append(Chunk(self.latest, rows.batch, now_ms, rows.nbytes))
        self.bases.append(self.latest)
        self.latest += rows.num_rows

    def offset_at(self, timestamp_ms: float) -> int | None:
        """The first offset appended at or after a time."""
        index = bisect_left(self.chunks, timestamp_ms, key=lambda c: c.appended_ms)
        if index == len(self.chunks):
            return None
        return max(self.chunks[index].base, self.earliest)

    def truncate(self, before: int) -> None:
        """Remove the rows before an offset; it may be beyond the last one."""
        self.earliest = max(self.earliest, min(before, self.latest))
        expired = bisect_right(self.bases, self.earliest) - 1
        if self.earliest == self.latest:
            expired = len(self.chunks)
        if expired > 0:
            del self.chunks[:expired], self.bases[:expired]
