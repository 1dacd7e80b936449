"""What goes through a socket, and how long that takes."""

from __future__ import annotations

import itertools
import os
import time
from typing import TYPE_CHECKING

import pyarrow as pa
from benchmarks.measuring.rows import batches

if TYPE_CHECKING:
    from collections.abc import Iterator

VOLUME = "BENCHMARK_MEGABYTES"
"""The environment variable with the megabytes of one run: children inherit it."""
MEGABYTES = 200
"""By default."""
DISTINCT = 64_000_000
"""Bytes of distinct batches, which are cycled: sources come from main memory."""
TRIPS = 2_000


class Watch:
    """Seconds from when it was made, by the clock and of the processor."""

    def __init__(self) -> None:
        self._started, self._busy = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Both."""
        return time.perf_counter() - self._started, time.process_time() - self._busy


def distinct(rows: int) -> list[pa.RecordBatch]:
    """Batches of so many rows, more than caches hold."""
    return batches(rows, DISTINCT)


def enough(found: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches in a cycle, up to the volume of a run."""
    volume = int(os.environ.get(VOLUME, MEGABYTES)) * 1_000_000
    size, each = 0, found[0].serialize().size
    for batch in itertools.cycle(found):
        yield batch
        size += each
        if size >= volume:
            return


def batch_of_one() -> pa.RecordBatch:
    """A row of the same schema."""
    columns = {
        "offset": pa.array([1]),
        "ts": pa.array([1], pa.timestamp("us")),
        "key": pa.array(["k" * 18]),
        "qty": pa.array([1], pa.int32()),
        "price": pa.array([1.0]),
        "note": pa.array(["note 1"]),
    }
    return pa.RecordBatch.from_pydict(columns)
