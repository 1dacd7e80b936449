"""What reading, writing and looking cost through the framework, over a harness.

Figures of one machine at one time: for a comparison of runs, and with the author's own
client loop where the harness has one (``raw_read``), measured in alternation.
"""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.cases.writing import stage
from streamfactory.conformance.harness import ReadsRaw, WritesRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.conformance.bench import Bench
    from streamfactory.conformance.subject import Subject

MESSAGES: Final = 20_000
"""Messages that are read."""
_SMALL: Final = 200
"""Fetches of a message each."""
_ROUNDS: Final = 5
_EPOCHS: Final = 20
_EPOCH_ROWS: Final = 1_000
_PARTITIONS: Final = 50


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement."""

    name: str
    unit: str
    value: float
    """The median."""
    spread: float
    """Half of the distance between the first and the third quartile, by the median."""


def measure(subject: Subject, folder: Path) -> Iterator[Figure]:
    """Measure what the subject and its harness allow; a figure at a time."""
    subject.prepare()
    with closing(subject.open(folder)) as bench:
        if subject.backend.consumer_factory is not None:
            yield from _reading(bench)
            yield from _metadata(bench)
        if subject.backend.producer_factory is not None:
            yield from _writing(bench)


def _figure(name: str, unit: str, values: list[float]) -> Figure:
    middle = statistics.median(values)
    quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else [middle] * 3
    spread = (quartiles[2] - quartiles[0]) / 2 / middle if middle else 0.0
    return Figure(name, unit, middle, spread)


def _seconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def _reading(bench: Bench) -> Iterator[Figure]:
    number = bench.create(messages=MESSAGES)
    source = bench.source()
    reader = bench.closing(source.reader(bench.partition(number)))
    earliest = bench.infos()[number].earliest
    raw = bench.use(ReadsRaw).raw_read if bench.has(ReadsRaw) else None
    # What cannot be read again is read once.
    again = source.factory.claims().replayable
    sizes: list[float] = []

    def read() -> None:
        rows = size = 0
        for batch in bench.batches(reader, earliest):
            rows, size = rows + len(batch), size + batch.size
            if rows >= MESSAGES:
                break
        sizes.append(float(size))

    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(_ROUNDS if again else 1):
        ours.append(_seconds(read))
        if raw is not None and again:
            theirs.append(_seconds(lambda: raw(number)))
    yield _figure("read", "rows/s", [MESSAGES / took for took in ours])
    pairs = zip(sizes, ours, strict=True)
    yield _figure("read", "bytes/s", [size / took for size, took in pairs])
    if theirs:
        yield _figure("raw client", "rows/s", [MESSAGES / took for took in theirs])
        ratios = [own / raw for own, raw in zip(ours, theirs, strict=True)]
        yield _figure("read by raw client", "times", ratios)
    if again:
        starts = range(earliest, earliest + _SMALL)
        small = [
            1e6 * _seconds(lambda at=at: reader.fetch(at, max_rows=1))  # type: ignore[misc]
            for at in starts
        ]
        yield _figure("fetch of one row", "microseconds", small)


def _metadata(bench: Bench) -> Iterator[Figure]:
    for count in (1, _PARTITIONS):
        bench.create(partitions=count, messages=1)
        metadata = bench.source().metadata
        metadata.partitions()
        took = [1e3 * _seconds(metadata.partitions) for _ in range(_EPOCHS)]
        yield _figure(f"metadata of {count} partitions", "milliseconds", took)


def _writing(bench: Bench) -> Iterator[Figure]:
    if not bench.has(WritesRows):
        return
    bench.create()
    sink = bench.sink()
    rows = list(range(_EPOCH_ROWS))
    size = bench.use(WritesRows).rows(rows).nbytes
    committer = bench.closing(sink.committer(writer_id="benchmark"))
    staged: list[float] = []
    committed: list[float] = []
    for epoch in range(_EPOCHS):
        began = time.perf_counter()
        messages = stage(bench, sink, epoch, [rows], "benchmark")
        middle = time.perf_counter()
        committer.commit(epoch, messages)
        staged.append(middle - began)
        committed.append(time.perf_counter() - middle)
    whole = [a + b for a, b in zip(staged, committed, strict=True)]
    yield _figure("write", "rows/s", [_EPOCH_ROWS / took for took in whole])
    yield _figure("write", "bytes/s", [size / took for took in whole])
    yield _figure("commit", "milliseconds", [1e3 * took for took in committed])
