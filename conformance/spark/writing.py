"""Spark's driver, as it writes a stream epoch by epoch.

An epoch is a batch: its tasks write in other processes, each sends a message, and the
driver commits the epoch with all of them, then notes it in its commit log. What can go
wrong goes wrong between two of these steps:

- a task fails and another attempt runs; the first one is not notified (the ``abort`` of
  an executor is empty), and it may still live: a zombie;
- two attempts commit, and the driver takes the message of one;
- the driver dies. The next one runs every epoch that is not in the commit log, though
  the sink may have it: with another number of tasks, and, above ``rand()``, with other
  rows. The first commit wins.
"""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Final, final

from streamfactory.conformance.cases.writing import seen
from streamfactory.conformance.expectations import require
from streamfactory.conformance.harness import WritesRows
from streamfactory.conformance.spark import Crash, Hook, nothing, ship
from streamfactory.conformance.spark.source import ship_configured
from streamfactory.spi import TransientError
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.conformance.bench import Bench
    from streamfactory.spi import CommitMessage, ProducerFactory
    from streamfactory.wiring.testing.faults import Faults
    from streamfactory.wiring.writing.committer import Committer
    from streamfactory.wiring.writing.writer import Writer

WRITER: Final = "conformance-query/sink"
_TASKS: Final = (3, 1, 2)
"""How many tasks an epoch has: at its first try, its second, ..."""
_ATTEMPTS: Final = 4


class TaskFailed(Exception):
    """An attempt of a task failed; the driver starts another."""


@final
class WriteQuery:
    """A streaming query that writes, with all its drivers, one after the other.

    Args:
        bench: The stream.
        hook: The schedule; besides `Crash` it may raise `TaskFailed`.
        faults: Put around the backend.
    """

    def __init__(
        self, bench: Bench, hook: Hook = nothing, faults: Faults | None = None
    ) -> None:
        self._bench = bench
        self._hook = hook
        self._faults = faults
        self._configured = bench.configured("write")
        self._numbers = itertools.count()
        with closing(self.sink()) as sink:
            self._idempotent = sink.claims.idempotent
        self.steps = 0
        self.commits: set[int] = set()
        """The commit log."""
        self.tries: dict[int, list[list[int]]] = {}
        """The rows of every try of every epoch, of which one has to win."""
        self.won: dict[int, int] = {}
        """Which did, where the sink said so."""

    def run(self, epochs: int = 3, restarts: int = 40) -> None:
        """Write epochs; after a crash another driver continues."""
        while True:
            with closing(self.sink()) as sink:
                try:
                    self._drive(sink, epochs)
                except (Crash, TransientError) as error:
                    restarts -= 1
                    require(restarts, f"the query does not come to an end: {error}")
                    self._note(f"the driver dies ({error}), another begins")
                else:
                    return

    def sink(self) -> Sink:
        """The sink as another process holds it. The caller closes it."""
        configured = ship_configured(self._configured)
        if self._faults is None:
            return Sink(configured, crashes=True)
        around: Callable[[ProducerFactory], ProducerFactory]
        around = self._faults.around_producers
        clock = self._faults.clock
        return Sink(configured, clock=clock, wrap=around, crashes=True)

    def epoch(self, epoch: int, committer: Committer) -> None:
        """Run the tasks of an epoch, and commit it."""
        tasks = self.content(epoch)
        messages = [self.task(epoch, task, rows) for task, rows in enumerate(tasks)]
        self.commit(epoch, committer, messages)

    def content(self, epoch: int) -> list[list[int]]:
        """Rows of the tasks of a new attempt: different ones, as with ``rand()``."""
        tries = self.tries.setdefault(epoch, [])
        count = _TASKS[len(tries) % len(_TASKS)]
        tasks = [list(itertools.islice(self._numbers, 4)) for _ in range(count)]
        tries.append([number for task in tasks for number in task])
        return tasks

    def task(self, epoch: int, task: int, rows: Sequence[int]) -> CommitMessage:
        """Run a task until an attempt of it comes through."""
        for attempt in range(_ATTEMPTS):
            try:
                return self.finish(self.attempt(epoch, task, rows))
            except TaskFailed:
                self._note(f"attempt {attempt} of task {task} failed")
        msg = f"task {task} failed {_ATTEMPTS} times"
        raise Crash(msg)

    def attempt(self, epoch: int, task: int, rows: Sequence[int]) -> Writer:
        """An attempt that has written its rows.

        It is not aborted before the case has ended.
        """
        sink = self._bench.closing(self.sink())
        batches = [
            self._bench.use(WritesRows).rows(part) for part in (rows[:2], rows[2:])
        ]
        schema = batches[0].schema
        writer = sink.writer(schema, writer_id=WRITER, epoch=epoch, task=task)
        self._bench.closing(writer)
        for batch in batches:
            writer.write(batch)
            self._step(f"write(epoch={epoch}, task={task}, rows={batch.num_rows})")
        return writer

    def finish(self, writer: Writer) -> CommitMessage:
        """Commit an attempt; its message crosses to the driver."""
        message = ship(writer.commit())
        context = writer.context
        self._step(f"task commit(epoch={context.epoch}, task={context.task})")
        return message

    def commit(
        self, epoch: int, committer: Committer, messages: Sequence[CommitMessage | None]
    ) -> bool:
        """Decide an epoch with the rows of its last try; whether this did."""
        made = committer.commit(epoch, messages)
        if made:
            again = self._idempotent and epoch in self.won
            require(not again, f"epoch {epoch} was there, and was committed again")
            self.won[epoch] = len(self.tries[epoch]) - 1
        self._step(f"epoch commit({epoch}) -> {'made' if made else 'was there'}")
        return made

    def check(self, *, at_least: bool = False) -> None:
        """One try of each epoch is visible, whole and once, and nothing else.

        Args:
            at_least: One try whole is enough.
        """
        counts = Counter(seen(self._bench))
        for epoch, tries in self.tries.items():
            won = [tries[self.won[epoch]]] if epoch in self.won else tries
            whole = [rows for rows in won if all(row in counts for row in rows)]
            if epoch in self.commits or epoch in self.won:
                require(whole, f"epoch {epoch} is not whole: seen are {sorted(counts)}")
            if at_least:
                continue
            for rows in whole[:1]:
                counts -= Counter(rows)
        if not at_least:
            left = sorted(counts.elements())
            require(not left, f"visible twice, or of tries that did not win: {left}")

    def _drive(self, sink: Sink, epochs: int) -> None:
        with closing(sink.committer(writer_id=WRITER)) as committer:
            for epoch in range(epochs):
                if epoch not in self.commits:
                    self.epoch(epoch, committer)
                    self.commits.add(epoch)
                    self._step(f"commit log {epoch}")

    def _note(self, step: str) -> None:
        self._bench.note(step)

    def _step(self, step: str) -> None:
        self._note(step)
        self.steps += 1
        self._hook(step)
