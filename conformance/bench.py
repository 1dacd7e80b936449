"""The environment of one case: a harness, the backend, and a record of the steps."""

from __future__ import annotations

import itertools
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

from streamfactory.conformance.expectations import HarnessFailed, Mismatch, require
from streamfactory.conformance.guarding import GuardedHarness
from streamfactory.conformance.patience import Patience
from streamfactory.spi import (
    BatchState,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
)
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.spi import Backend, MessageBatch
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.reading.reader import Reader

_SLICE: Final = 0.25
_ATTEMPTS: Final = 5
"""Attempts of a call that has to return in time, because a busy machine may be late."""


class Closeable(Protocol):
    """Anything that can be closed."""

    def close(self) -> None:
        """Close it."""


C = TypeVar("C", bound=Closeable)
"""A type of object that is closed after the case."""

Row = tuple[int, int]
"""Offset and number."""


@final
class Bench:
    """The environment of a case. Closes everything that it opened.

    Args:
        backend: Under test.
        harness: The author's access to the medium.
        plugins: Where the backend is found.
        overrides: Options that override those of the harness.
        seed: Seed of the random choices of a case.
    """

    def __init__(
        self,
        backend: Backend,
        harness: Any,
        plugins: PluginManager,
        overrides: Mapping[str, str],
        seed: int = 0,
    ) -> None:
        self.backend = backend
        self.harness: Any = GuardedHarness(harness)
        self.seed = seed
        self._plugins = plugins
        self._overrides = overrides
        self._numbers = itertools.count()
        self._stack = ExitStack()
        self.script: list[str] = []
        """The steps so far, as a short script: shown when the case fails."""
        self.written: dict[int, list[int]] = {}
        """Numbers by partition, in order: the model."""

    # --- the medium ---------------------------------------------------------------

    def create(self, partitions: int = 1, messages: int = 0) -> None:
        """Create the stream, with this number of messages in each partition."""
        self.note(f"create(partitions={partitions})")
        self.harness.create(partitions)
        self.written = {number: [] for number in self.harness.partitions()}
        is_single = getattr(self.harness, "single_partition", False)
        if len(self.written) != (1 if is_single else partitions):
            msg = f"create({partitions}) was followed by partitions() {[*self.written]}"
            raise HarnessFailed(msg)
        for number in self.written:
            if messages:
                self.write(number, messages)

    def write(self, partition: int, messages: int) -> list[int]:
        """Append messages by the harness; returns their numbers."""
        numbers = list(itertools.islice(self._numbers, messages))
        self.note(f"write(partition={partition}, messages={messages})")
        self.harness.write(partition, numbers)
        self.written[partition].extend(numbers)
        return numbers

    def first(self) -> int:
        """The id of some partition."""
        return next(iter(self.written))

    # --- the backend ----------------------------------------------------------------

    def configured(self, use: str = "read", **options: str) -> Configured:
        """The configuration, with options of the case (``__`` for a dot)."""
        extra = {key.replace("__", "."): value for key, value in options.items()}
        given = self.harness.properties()
        if use == "write" and hasattr(self.harness, "sink_properties"):
            given = self.harness.sink_properties()
        properties = {**given, **self._overrides, **extra}
        definition = from_mapping(properties, "conformance")
        return load(definition, use, plugins=self._plugins)

    def source(self, **options: str) -> Source:
        """The stream through the framework."""
        return self.closing(Source(self.configured(**options)))

    def sink(self, **options: str) -> Sink:
        """The stream for writing, through the framework."""
        return self.closing(Sink(self.configured("write", **options)))

    def factory(self) -> ConsumerFactory:
        """The author's factory, without the framework."""
        made = self.configured()
        assert made.backend.consumer_factory is not None
        return self.closing(made.backend.consumer_factory(made.config))

    def provider(self, factory: ConsumerFactory | None = None) -> MetadataProvider:
        """The author's metadata provider."""
        factory = factory or self.factory()
        return self.closing(factory.create_metadata_provider("conformance"))

    def consumer(
        self, number: int, factory: ConsumerFactory | None = None
    ) -> PartitionLevelConsumer:
        """The author's consumer of a partition."""
        factory = factory or self.factory()
        partition = self.partition(number)
        made = factory.create_partition_level_consumer("conformance", partition)
        return self.closing(made)

    def closing(self, thing: C) -> C:
        """Close something after the case; a second close is fine."""
        self._stack.callback(thing.close)
        return thing

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self.configured().config.topic

    def partition(self, number: int) -> Partition:
        """A partition by its id."""
        return Partition(self.topic, number)

    def infos(
        self, provider: MetadataProvider | None = None
    ) -> dict[int, PartitionInfo]:
        """The result of the author's provider, by id."""
        provider = provider or self.provider()
        answer = provider.fetch_partitions([self.topic], ())
        return {info.partition.id: info for info in answer}

    # --- direct reading -------------------------------------------------------------

    def fetch_all(
        self,
        number: int,
        start: int,
        end: int | None = None,
        *,
        consumer: PartitionLevelConsumer | None = None,
        max_rows: int = 65_536,
    ) -> list[Row]:
        """Read a range with the author's consumer, as the framework does."""
        self.note(f"author.fetch(partition={number}, start={start}, end={end})")
        consumer = consumer or self.consumer(number)
        stop = end if end is not None else self.infos()[number].latest
        rows: list[Row] = []
        patience = Patience()
        at = start
        # If latest is unknown, the range ends when everything written has been read.
        wanted = len(self.written[number])
        while (len(rows) < wanted) if stop is None else (at < stop):
            fetched = consumer.fetch_messages(
                at, end, FetchLimits(max_rows, 8 * 1024**2, _SLICE)
            )
            found = self.rows_of(fetched, at)
            rows += found
            if fetched.state is BatchState.END_OF_PARTITION:
                break
            require(
                fetched.next_offset >= at,
                f"next_offset went back, from {at} to {fetched.next_offset}",
            )
            before, at = at, fetched.next_offset
            if patience.over(_SLICE, progress=at > before or bool(found)):
                msg = f"reading makes no progress at {at}, before {stop}"
                raise Mismatch(msg)
        return [row for row in rows if end is None or row[0] < end]

    def read_all(self, source: Source, number: int, start: int, end: int) -> list[Row]:
        """Read a range through `Reader`."""
        self.note(f"reader.fetch(partition={number}, start={start}, end={end})")
        reader = self.closing(source.reader(self.partition(number)))
        rows: list[Row] = []
        at, patience = start, Patience()
        while at < end:
            batch = reader.fetch(at, end=end, timeout=1.0)
            numbers = self.harness.numbers(batch.rows)
            offsets = offsets_of(batch.offsets, batch.first_offset, batch.num_rows)
            rows += zip(offsets, numbers, strict=True)
            before, at = at, batch.next_offset
            if patience.over(1.0, progress=at > before):
                msg = f"reading makes no progress at {at}, before {end}"
                raise Mismatch(msg)
        return rows

    def answer(
        self, reader: Reader, start: int, timeout: float = 1.0, **limits: int
    ) -> MessageBatch:
        """Fetch until there are rows: one empty batch does not mean an empty range."""
        patience = Patience()
        while True:
            batch = reader.fetch(start, timeout=timeout, **limits)
            if batch.num_rows or patience.over(timeout):
                return batch

    def rows_of(self, fetched: Fetched, start: int) -> list[Row]:
        """Offset and number of each row of an author's result."""
        if fetched.rows is None or not fetched.rows.num_rows:
            return []
        offsets = fetched.offsets
        if offsets is None and "offset" in fetched.rows.schema.names:
            offsets = fetched.rows.column("offset")
        known = offsets_of(offsets, start, fetched.rows.num_rows)
        numbers = self.harness.numbers(fetched.rows)
        require(
            len(numbers) == len(known),
            f"{len(known)} offsets came with {len(numbers)} rows",
        )
        return list(zip(known, numbers, strict=True))

    def offsets(self, number: int) -> list[int]:
        """The offsets of all messages of a partition, by the author's consumer."""
        earliest = self.infos()[number].earliest
        return [offset for offset, _ in self.fetch_all(number, earliest)]

    def within(
        self,
        seconds: float,
        what: str,
        function: Callable[[], Any],
        before: Callable[[], object] = lambda: None,
    ) -> Any:
        """Call a function that has to return in time; repeat the call if it was late.

        A busy machine is late now and then; a slow backend always is.

        Args:
            seconds: Maximum duration.
            what: Describes the call, for the report.
            function: May be called more than once.
            before: Called before each attempt, without a time limit.
        """
        limit, took = seconds * 1.2 + 0.1, 0.0
        for _ in range(_ATTEMPTS):
            before()
            started = time.monotonic()
            answer = function()
            took = time.monotonic() - started
            if took <= limit:
                return answer
        msg = f"{what} took {took:.2f} s, allowed were {limit:.2f} s"
        raise Mismatch(msg)

    def note(self, step: str) -> None:
        """Add a line to the script."""
        self.script.append(step)

    def close(self) -> None:
        """Close all that was opened, and the harness."""
        try:
            self._stack.close()
        finally:
            self.harness.close()


def offsets_of(offsets: Any, first: int | None, count: int) -> Sequence[int]:
    """Offsets as numbers; None means consecutive from ``first``."""
    if offsets is not None:
        return [int(offset) for offset in offsets.to_pylist()]
    return range(first or 0, (first or 0) + count)
