"""Random walks over a stream, against a model of it (rules R1 to R3, R7, M1, M3).

A walk writes, reads, splits, truncates, grows, begins again and reopens, in any order
that the abilities of the harness allow. Where it goes wrong, Hypothesis looks for the
shortest walk that goes wrong too, and the seed that found it finds it again.

Hypothesis is imported here and nowhere else in the kit.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Final

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from streamfactory.conformance.expectations import Mismatch, expect, require
from streamfactory.conformance.harness import Grows, Recreates, Truncates
from streamfactory.spi import (
    DataLossError,
    OffsetOutOfRange,
    Partition,
    TopicNotFound,
)
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.conformance.bench import Bench, Row
    from streamfactory.spi import PartitionInfo
    from streamfactory.wiring.reading.reader import Reader

WALKS: Final = 40
"""Walks of one case, each with a separate stream."""
STEPS: Final = 25

LONGEST: Final = 20.0
"""Seconds after which a walk ends: of a slow backend it has fewer steps, so that the
kit ends in minutes."""
SHRINKING: Final = 60.0
"""Seconds in which a shorter walk is looked for, at most."""
TRIES: Final = 400
"""Walks that may be tried for it: what is found depends on no clock, as a rule."""

PICKS: Final = st.integers(0, 2**16)
"""Chooses one of the available items; small numbers choose early ones."""


class PartitionModel:
    """The model of a partition: its messages, and which of them an offset leads to.

    A *place* is an offset of which it is known how many messages come before it. Every
    message read has two, its own offset and the one behind it; the bounds are places.
    """

    def __init__(self) -> None:
        self.written: list[int] = []
        self.held = 0
        self.places: dict[int, int] = {}

    def learn(self, offset: int, before: int, what: str) -> None:
        """An offset leads to one message for ever, and offsets keep their order."""
        expect(
            self.places.setdefault(offset, before), before, f"messages before {what}"
        )
        for other, count in self.places.items():
            require(
                (other <= offset) == (count <= before) or count == before,
                f"{what} is offset {offset}, and offset {other} is another message's",
            )

    def between(self, start: int, end: int) -> list[int]:
        """The messages that a range holds."""
        return self.written[self.places[start] : self.places[end]]

    def readable(self) -> list[int]:
        """Places that nothing was taken from, in order."""
        return sorted(offset for offset, n in self.places.items() if n >= self.held)

    def gone(self) -> list[int]:
        """Places whose message retention took."""
        return sorted(offset for offset, n in self.places.items() if n < self.held)


class Findings:
    """What went wrong, by the shortest walk so far; and how long to go on walking."""

    def __init__(self) -> None:
        self._until = time.monotonic() + LONGEST
        self._tries = 0
        self.script: list[str] | None = None
        self.error: Exception | None = None

    @property
    def over(self) -> bool:
        """Whether it is enough: the steps of further walks do nothing."""
        return self._tries > TRIES or time.monotonic() > self._until

    def begin(self) -> None:
        """Another walk begins."""
        self._tries += self.script is not None

    @contextlib.contextmanager
    def kept(self, script: list[str]) -> Iterator[None]:
        """Keep a failure; of equally long walks the last one is the simplest."""
        try:
            yield
        except Exception as error:
            if self.script is None:
                self._until = time.monotonic() + SHRINKING
            if self.script is None or len(script) <= len(self.script):
                self.script, self.error = [*script], error
            raise


def watched(step: Callable[..., None]) -> Callable[..., None]:
    """A step whose failure is kept, and which does nothing once it is enough."""

    @functools.wraps(step)
    def run(self: Walk, **given: int) -> None:
        if not self.findings.over:
            with self.findings.kept(self.bench.script):
                step(self, **given)

    return run


class Walk(RuleBasedStateMachine):
    """One walk. A subclass has the bench."""

    bench: Bench
    findings: Findings

    def __init__(self) -> None:
        super().__init__()
        self.findings.begin()
        self.bench.script.clear()  # of the walk before
        # A failure here or in `teardown` is kept as well: Hypothesis says of one that
        # does not happen again no more than "inconsistent data generation".
        with self.findings.kept(self.bench.script):
            self.bench.create()
        self.partitions = {self.bench.first(): PartitionModel()}
        self.source: Source | None = None
        self.readers: dict[int, Reader] = {}

    def holds_something(self) -> bool:
        """Whether there is a range to read."""
        return any(
            len(partition.readable()) > 1 for partition in self.partitions.values()
        )

    # --- what happens to the stream -------------------------------------------------

    @initialize(messages=st.integers(1, 20))
    @watched
    def begin(self, messages: int) -> None:
        """Write messages first: most steps need some."""
        number = self.bench.first()
        self.partitions[number].written += self.bench.write(number, messages)

    @rule(pick=PICKS, messages=st.integers(1, 20))
    @watched
    def write(self, pick: int, messages: int) -> None:
        """Somebody writes."""
        number = self._partition(pick)
        self.partitions[number].written += self.bench.write(number, messages)

    @precondition(lambda self: self.bench.has(Truncates))
    @rule(pick=PICKS, share=st.integers(1, 4))
    @watched
    def truncate(self, pick: int, share: int) -> None:
        """Retention takes a part, or all, of what is held."""
        number = self._partition(pick)
        partition = self.partitions[number]
        messages = (len(partition.written) - partition.held) // share
        if messages:
            self.bench.note(f"truncate(partition={number}, messages={messages})")
            self.bench.use(Truncates).truncate(number, messages)
            partition.held += messages

    @precondition(lambda self: self.bench.has(Grows) and len(self.partitions) < 4)
    @rule()
    @watched
    def grow(self) -> None:
        """A partition is added."""
        self.bench.note(f"grow({len(self.partitions) + 1})")
        self.bench.use(Grows).grow(len(self.partitions) + 1)
        for number in self.bench.harness.partitions():
            self.partitions.setdefault(number, PartitionModel())
            self.bench.written.setdefault(number, [])

    @precondition(lambda self: self.bench.has(Recreates))
    @rule(pick=PICKS, messages=st.integers(0, 20))
    @watched
    def recreate(self, pick: int, messages: int) -> None:
        """Recreate the stream; readers of the old one have to report it."""
        number, partitions = self._partition(pick), self.partitions
        self.bench.note("recreate()")
        self.bench.use(Recreates).recreate()
        self.partitions = {number: PartitionModel() for number in partitions}
        reader, places = self.readers.get(number), partitions[number].readable()
        if reader is not None and places and reader.incarnation is not None:
            self.bench.note(f"reader.fetch(partition={number}, start={places[0]})")
            with contextlib.suppress(DataLossError, TopicNotFound):
                self._read_the_old(reader, places[0])
        self._close()
        if messages:
            self.partitions[number].written += self.bench.write(number, messages)

    def _read_the_old(self, reader: Reader, start: int) -> None:
        """Continue to read the old stream until the recreation is reported."""
        deadline = time.monotonic() + self.bench.traits.recreation_timeout
        while True:
            batch = reader.fetch(start, timeout=0.05)
            silent = batch.num_rows == 0 and time.monotonic() < deadline
            require(
                silent, f"an offset of the old stream returned {batch.num_rows} rows"
            )

    @precondition(lambda self: self.source is not None)
    @rule()
    @watched
    def reopen(self) -> None:
        """The reading process ends; another one begins."""
        self.bench.note("source.close()")
        self._close()

    # --- what is read ---------------------------------------------------------------

    @precondition(holds_something)
    @rule(pick=PICKS, at=PICKS, to=PICKS, most=st.sampled_from([1, 3, 65_536]))
    @watched
    def fetch(self, pick: int, at: int, to: int, most: int) -> None:
        """Any range, by a reader that has been anywhere, has its messages."""
        number, start, end = self._range(pick, at, to)
        self._read(number, start, end, most)

    @precondition(holds_something)
    @rule(pick=PICKS, at=PICKS, to=PICKS, cut=PICKS)
    @watched
    def split(self, pick: int, at: int, to: int, cut: int) -> None:
        """Both parts of a range, the later one first, are the range."""
        number, start, end = self._range(pick, at, to)
        middle = start + cut % (end - start + 1)
        later = self._read(number, middle, end)
        earlier = self._read(number, start, middle)
        expect(earlier + later, self._read(number, start, end), f"split at {middle}")

    @precondition(
        lambda self: any(partition.gone() for partition in self.partitions.values())
    )
    @rule(pick=PICKS, at=PICKS)
    @watched
    def fetch_what_is_gone(self, pick: int, at: int) -> None:
        """A start that retention took is refused."""
        with_gaps = [
            number for number, partition in self.partitions.items() if partition.gone()
        ]
        number = with_gaps[pick % len(with_gaps)]
        gone = self.partitions[number].gone()
        start = gone[at % len(gone)]
        if start >= self._infos()[number].earliest:
            return  # in the gap before the oldest that is held
        self.bench.note(f"reader.fetch(partition={number}, start={start})")
        reader = self._reader(number)
        try:
            batch = reader.fetch(start, timeout=0.05)
        except OffsetOutOfRange:
            return
        require(
            False,
            f"offset {start} is no longer held, and returned {batch.num_rows} rows",
        )

    @invariant()
    @watched
    def bounds_are_places(self) -> None:
        """Earliest leads to the oldest message held, latest behind the newest."""
        infos = self._infos()
        expect(sorted(infos), sorted(self.partitions), "partitions")
        for number, partition in self.partitions.items():
            info = infos[number]
            assert info.latest is not None
            partition.learn(info.latest, len(partition.written), f"latest of {number}")
            if partition.held < len(partition.written):
                partition.learn(info.earliest, partition.held, f"earliest of {number}")

    def teardown(self) -> None:
        """Close what the walk opened."""
        with self.findings.kept(self.bench.script):
            self._close()

    # --- helpers --------------------------------------------------------------------

    def _partition(self, pick: int) -> int:
        return sorted(self.partitions)[pick % len(self.partitions)]

    def _range(self, pick: int, at: int, to: int) -> tuple[int, int, int]:
        """A partition, and a range of it that is not empty."""
        full = sorted(
            n
            for n, partition in self.partitions.items()
            if len(partition.readable()) > 1
        )
        number = full[pick % len(full)]
        places = self.partitions[number].readable()
        first = at % (len(places) - 1)
        rest = places[first + 1 :]
        return number, places[first], rest[to % len(rest)]

    def _read(self, number: int, start: int, end: int, most: int = 65_536) -> list[Row]:
        self.bench.note(
            f"reader.fetch(partition={number}, start={start}, end={end}, "
            f"max_rows={most})"
        )
        rows = self._rows(number, start, end, most)
        partition = self.partitions[number]
        outside = [offset for offset, _ in rows if not start <= offset < end]
        expect(outside, [], f"offsets outside of {start} to {end}")
        if start in partition.places and end in partition.places:
            wanted = partition.between(start, end)
            expect([n for _, n in rows], wanted, f"messages from {start} to {end}")
        for offset, message in rows:
            require(
                message in partition.written, f"message {message} was never written"
            )
            before = partition.written.index(message)
            partition.learn(offset, before, f"message {message}")
            partition.learn(offset + 1, before + 1, f"what follows message {message}")
        return rows

    def _rows(self, number: int, start: int, end: int, most: int) -> list[Row]:
        batches = self.bench.batches(
            self._reader(number), start, end, timeout=0.5, max_rows=most
        )
        return self.bench.rows_of_batches(batches)

    def _reader(self, number: int) -> Reader:
        if number not in self.readers:
            partition = Partition(self._opened().config.topic, number)
            self.readers[number] = self._opened().reader(partition)
        return self.readers[number]

    def _infos(self) -> dict[int, PartitionInfo]:
        infos = self._opened().metadata.partitions()
        return {info.partition.id: info for info in infos}

    def _opened(self) -> Source:
        if self.source is None:
            self.source = Source(self.bench.configured())
        return self.source

    def _close(self) -> None:
        for reader in self.readers.values():
            reader.close()
        self.readers = {}
        if self.source is not None:
            self.source.close()
            self.source = None


def walk(bench: Bench, *, walks: int = WALKS, steps: int = STEPS) -> None:
    """Walk at random; the bench's seed says where chance begins.

    Raises:
        Mismatch: A walk went wrong; the bench's script is the shortest one found.
    """
    findings = Findings()
    Bound = type("Bound", (Walk,), {"bench": bench, "findings": findings})  # noqa: N806
    run: Callable[..., None] = run_state_machine_as_test
    try:
        run(
            seed(bench.seed)(Bound),
            settings=settings(
                max_examples=walks,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                derandomize=False,
                print_blob=False,
                verbosity=Verbosity.quiet,  # the case's script says it
                report_multiple_bugs=False,
                phases=(Phase.generate, Phase.shrink),
                suppress_health_check=list(HealthCheck),
            ),
        )
    except Exception as error:
        found, script = findings.error, findings.script
        if found is None and findings.over and isinstance(error, Flaky):
            return  # time ran out amid a walk that went well so far
        if found is None or script is None:
            raise
        bench.script[:] = script
        happened = str(found) if isinstance(found, Mismatch) else repr(found)
        if isinstance(error, Flaky) and not findings.over:
            happened = f"by chance (the same walk goes well at times): {happened}"
        msg = f"{happened}; `--seed {bench.seed}` finds it again"
        raise Mismatch(msg) from found
