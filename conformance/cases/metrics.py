"""M7, W3: what a backend makes the metrics of the framework count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.case import case
from streamfactory.conformance.cases.writing import write
from streamfactory.conformance.expectations import expect, require
from streamfactory.conformance.harness import WritesRows
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.metrics.snapshot import metrics

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench
    from streamfactory.wiring.reading.reader import Reader

MESSAGES: Final = 30
_ROWS: Final = ("offsets_rise_and_nothing_is_missing",)
_REPEATED: Final = "a_repeated_epoch_has_no_effect"
_WAIT: Final = 0.25
_READING: Final = ("rows", "messages", "batches", "losses", "bad.messages")
_WRITING: Final = (
    "write.rows",
    "write.drained.rows",
    "write.discarded.rows",
    "write.failures",
    "commit.epochs",
    "commit.repeated.epochs",
    "commit.mismatches",
    "commit.failures",
)


class _Counted:
    """The counters of a stream, from zero when this is made."""

    def __init__(self, names: tuple[str, ...], **labels: str) -> None:
        self._names = names
        self._labels = labels
        # A process that has read more partitions than have series of their own counts
        # further ones together.
        registry.clear()

    def moved(self) -> dict[str, float]:
        """By name; all of them."""
        shot = metrics()
        return {name: shot.value(name, **self._labels) or 0 for name in self._names}

    def value(self, name: str) -> Any:
        """One metric as it is; None where it has no value."""
        return metrics().value(name, **self._labels)


@case(
    "M7",
    hint="Fetched.size or unfiltered_count is not that of the answer",
    needs=(*_ROWS, "every_partition_is_answered"),
)
def reading_moves_the_metrics_by_what_was_read(bench: Bench) -> None:
    """A reader counts its rows, messages, batches and bytes, and nothing else."""
    bench.create(messages=MESSAGES)
    counted, reader, at = _reading(bench)
    names = tuple(f"read.{name}" for name in _READING)
    wanted = dict.fromkeys(names, 0.0)
    expect(counted.moved(), {**wanted, "read.bytes": 0}, "counts of a new reader")
    for batch in bench.batches(reader, at, timeout=_WAIT):
        wanted["read.rows"] += batch.num_rows
        wanted["read.batches"] += batch.num_rows > 0
        if wanted["read.rows"] >= MESSAGES:
            break
    moved = counted.moved()
    size, messages = moved.pop("read.bytes"), moved["read.messages"]
    # Markers of transactions are messages without rows.
    expect(moved, {**wanted, "read.messages": messages}, "counts of the reader")
    require(
        messages >= MESSAGES, f"{MESSAGES} rows were counted as {messages} messages"
    )
    require(size > 0, f"{MESSAGES} messages were counted as {size} bytes")


@case(
    "M7",
    hint="Fetched.latest is not the offset after the last message",
    needs=(*_ROWS, "a_start_is_inclusive", "bounds_are_true"),
)
def the_lag_reaches_zero_at_the_end(bench: Bench) -> None:
    """After the last message the lag is 0; if latest is unknown, there is no lag."""
    number = bench.create(messages=MESSAGES)
    before = bench.infos()[number].latest
    counted, reader, at = _reading(bench)
    expect(counted.value("read.lag.offsets"), None, "lag before the first fetch")
    rows, lag = 0, None
    for batch in bench.batches(reader, at, timeout=_WAIT, max_rows=10):
        rows, lag = rows + batch.num_rows, counted.value("read.lag.offsets")
        if rows >= MESSAGES and not lag:
            break
    if lag is None:
        return
    # What is not of the topic may move it, as other tables move the WAL of a database.
    after, found = bench.infos()[number].latest, counted.value("read.latest.offset")
    moved = before is not None and after is not None and before <= found <= after
    expect(found, found if moved else after, "the latest offset")
    expect(counted.value("read.lag.seconds"), 0, "the age of the lag")


@case(
    "W3",
    claims=("idempotent",),
    abilities=(WritesRows,),
    writing=True,
    hint="commit answers None, or another summary, for an epoch that is committed",
    needs=(_REPEATED,),
)
def commits_move_the_metrics_by_what_was_committed(bench: Bench) -> None:
    """An epoch counts once as a commit, again as a repeat, and never as a failure."""
    bench.create()
    sink = bench.sink()
    counted = _Counted(_WRITING, stream=sink.config.name)
    numbers = list(range(6))
    write(bench, sink, 0, [numbers])
    wanted = dict.fromkeys(_WRITING, 0) | {"write.rows": 6, "commit.epochs": 1}
    expect(counted.moved(), wanted, "counts of the first commit")
    bench.note("commit(epoch=0) again")
    write(bench, sink, 0, [numbers])
    wanted |= {"write.rows": 12, "write.drained.rows": 6, "commit.repeated.epochs": 1}
    expect(counted.moved(), wanted, "counts of the commit and its repeat")


def _reading(bench: Bench) -> tuple[_Counted, Reader, int]:
    """A reader of one partition, its metrics and where it begins."""
    number = bench.first()
    source = bench.source()
    partition = bench.partition(number)
    counted = _Counted(
        (*(f"read.{name}" for name in _READING), "read.bytes"),
        stream=source.config.name,
        topic=partition.topic,
        partition=str(partition.id),
    )
    reader = bench.closing(source.reader(partition))
    return counted, reader, bench.infos()[number].earliest
