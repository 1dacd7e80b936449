"""Spark's driver, as it reads a stream batch by batch.

What outlives a driver is two logs. The offset log says where each batch ends, and is
written before the batch runs; the commit log says which batches are done. Batch 0
has no logged start. One trigger, in Spark's words:

1. ``initialOffset()``, where no batch was logged;
2. ``latestOffset(start)``: where the batch ends; the text of its start means no batch;
3. the end goes to the offset log;
4. ``commit(end of the batch before)``: advice, a batch late, and none for the last;
5. ``initialOffset()`` once more, for batch 0: in between the stream went on;
6. ``partitions(start, end)``: the tasks; asked again at a replay, by another driver;
7. the tasks run in other processes, some of them twice;
8. the sink keeps the batch, once;
9. the batch goes to the commit log.

A restarted driver begins at 6 where the last batch is not in the commit log, else at 2.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.conformance.expectations import Mismatch, expect, require
from streamfactory.conformance.patience import Patience
from streamfactory.conformance.spark import Crash, Hook, nothing, ship
from streamfactory.conformance.spark.source import SparkSource, ship_configured
from streamfactory.spi import BatchState, MessageBatch
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.conformance.bench import Bench, Row
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.microbatch import Range

Rows = dict[int, list["Row"]]
"""Offset and number of each row, by partition."""
_ATTEMPT: Final = 60.0
"""Seconds after which one of two attempts of a task is stuck."""


def read(
    configured: Configured, task: Range, hook: Hook = nothing
) -> list[MessageBatch]:
    """Run a task, as an executor does: with nothing but what was sent along."""
    batches: list[MessageBatch] = []
    with ExitStack() as stack:
        source = stack.enter_context(closing(Source(configured)))
        reader = source.reader(task.partition, incarnation=task.incarnation)
        stack.enter_context(closing(reader))
        at, patience = task.start, Patience()
        while at < task.end:
            batch = reader.fetch(at, end=task.end, max_rows=4, timeout=1.0)
            batches.append(batch)
            hook("fetch")
            before, at = at, batch.next_offset
            over = batch.state is BatchState.END_OF_PARTITION
            still = patience.over(1.0, progress=at > before)
            if at < task.end and (over or still):
                what = "ended" if over else "stands still"
                msg = f"a task of {task.partition} {what} at {at}, before {task.end}"
                raise Mismatch(msg)
        reader.verify()
    return batches


@final
@dataclass(slots=True)
class Logs:
    """What outlives a driver: text."""

    offsets: dict[int, str] = field(default_factory=dict)
    """Where each batch ends; written before it runs."""
    commits: set[int] = field(default_factory=set)
    """The batches that are done."""


@final
class Recorder:
    """A sink that outlives drivers: the first commit of a batch wins."""

    def __init__(self) -> None:
        self.batches: dict[int, Rows] = {}

    def commit(self, batch: int, rows: Rows) -> None:
        """Keep a batch; a replay has to have the same rows."""
        held = self.batches.setdefault(batch, rows)
        expect(rows, held, f"rows of batch {batch}, replayed")

    def numbers(self, partition: int) -> list[int]:
        """All that came of a partition, in order."""
        found: list[int] = []
        for batch in sorted(self.batches):
            found += [number for _, number in self.batches[batch].get(partition, ())]
        return found


@final
class Query:
    """A streaming query with all its drivers, one after the other.

    Args:
        bench: The stream.
        hook: The schedule.
        share: Each batch takes this part of what is waiting.
        pieces: Tasks a partition; a plan may be made with another number each time.
        twice: Run every task twice at once; both have to answer the same.
        options: Of the stream (``__`` for a dot).
    """

    def __init__(
        self,
        bench: Bench,
        hook: Hook = nothing,
        *,
        share: int = 2,
        pieces: int = 1,
        twice: bool = False,
        **options: str,
    ) -> None:
        self._bench = bench
        self._hook = hook
        self.configured = bench.configured(**{"startingOffsets": "earliest"} | options)
        self.share = share
        self.pieces = pieces
        self.twice = twice
        self.steps = 0
        """How many calls were made, over all drivers."""
        self.logs = Logs()
        self.sink = Recorder()

    def run(self, *, available_now: bool = False, triggers: int = 100) -> None:
        """Run until no message is left; after a crash another driver continues."""
        while True:
            with closing(SparkSource(self.configured)) as source:
                try:
                    if available_now:
                        source.prepare_for_available_now()
                        self._step("prepareForTriggerAvailableNow")
                    while self.trigger(source):
                        triggers -= 1
                        require(triggers, "batches come without end")
                except Crash as crash:
                    self._bench.note(f"the driver dies after {crash}, another begins")
                else:
                    return

    def trigger(self, source: SparkSource) -> bool:
        """One batch; False where there was nothing to do."""
        logs = self.logs
        batch = max(logs.offsets, default=0)
        if batch in logs.commits:
            batch += 1
        start = logs.offsets.get(batch - 1)
        if batch not in logs.offsets:
            since = self._start(source, start)
            end = source.latest_offset(since, self.share)
            self._step("latestOffset", end)
            if end == since:
                return False
            logs.offsets[batch] = end
            self._step(f"offset log {batch}")
            if start is not None:
                source.commit(start)
                self._step("commit")
        end = logs.offsets[batch]
        start = self._start(source, start)
        tasks = ship(source.partitions(start, end, self.pieces))
        self._step("partitions", tasks)
        rows = self.rows(tasks)
        self._step("tasks")
        self.sink.commit(batch, rows)
        self._step("sink")
        logs.commits.add(batch)
        self._step(f"commit log {batch}")
        return True

    def rows(self, tasks: Sequence[Range]) -> Rows:
        """Run tasks and put their answers together."""
        rows: Rows = {}
        for task in tasks:
            mine = self._twice(task) if self.twice else self.task(task)
            rows.setdefault(task.partition.id, []).extend(mine)
        return rows

    def task(self, task: Range) -> list[Row]:
        """Run one task: its batches cross a process too."""
        batches = read(ship_configured(self.configured), task, self._called)
        return self._bench.rows_of_batches(ship(batches))

    def check(self) -> None:
        """Rows out are rows in: each once, in the order of its partition."""
        for number, wanted in self._bench.written.items():
            got = self.sink.numbers(number)
            expect(got, wanted, f"rows of partition {number} out of the query")

    def _step(self, step: str, answer: Any = "") -> Any:
        self._bench.note(f"{step} {answer}".rstrip())
        self._called(step)
        return answer

    def _start(self, source: SparkSource, logged: str | None) -> str:
        if logged is not None:
            return logged
        found: str = self._step("initialOffset", source.initial_offset())
        return found

    def _called(self, step: str) -> None:
        self.steps += 1
        self._hook(step)

    def _twice(self, task: Range) -> list[Row]:
        with ThreadPoolExecutor(2) as threads:
            attempts = [threads.submit(self.task, task) for _ in range(2)]
            one, other = (attempt.result(_ATTEMPT) for attempt in attempts)
        expect(other, one, f"the two attempts of {task}")
        return one
