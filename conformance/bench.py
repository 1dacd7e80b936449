"""The environment of one case of a backend: its harness, and access to its parts."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.conformance.expectations import (
    Excluded,
    HarnessFailed,
    Mismatch,
    require,
)
from streamfactory.conformance.harness import Harness, HasSinkProperties, Recreates
from streamfactory.conformance.patience import USUAL, Patience, Waits
from streamfactory.conformance.workbench import Workbench
from streamfactory.spi import (
    BatchState,
    ConsumerFactory,
    EpochVisibility,
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
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from streamfactory.conformance.workbench import Requirements
    from streamfactory.spi import Backend, Claims, MessageBatch
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.reading.reader import Reader

SLICE: Final = 0.25
"""Seconds that a fetch of the author's may take."""
BYTES: Final = 8 * 1024**2

_OF_READING: Final = ("replayable", "redelivers")
"""Claims of a stream's consumers, also for cases that write it."""

Row = tuple[int, int]
"""Offset and number."""


@final
class Bench(Workbench[Harness]):
    """The environment of a case.

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
        waits: Waits = USUAL,
    ) -> None:
        super().__init__(harness, seed)
        self.backend = backend
        self.waits = waits
        self._plugins = plugins
        self._overrides = overrides
        self._numbers = itertools.count()
        self.written: dict[int, list[int]] = {}
        """Numbers by partition, in order: the model."""

    def patience(self) -> Patience:
        """Ends a loop that makes no progress."""
        return Patience(self.waits.progress)

    def excluded(self, case: Requirements) -> None:
        """Raise `Excluded` where a case does not apply, by claims and abilities."""
        of_reading = [claim for claim in case.claims if claim in _OF_READING]
        of_writing = [claim for claim in case.claims if claim not in _OF_READING]
        if case.writing:
            self._require_claims("write", of_writing)
        if of_reading or not case.writing:
            self._require_claims("read", of_reading if case.writing else case.claims)
        super().excluded(case)

    def _require_claims(self, use: str, wanted: Iterable[str]) -> None:
        name = "producer_factory" if use == "write" else "consumer_factory"
        if getattr(self.backend, name) is None:
            msg = f"the type cannot be {'written' if use == 'write' else 'read'}"
            raise Excluded(msg)
        self.harness.create(1)
        used = self.configured(use)
        # The one that is used: with a spool, streams are read by another factory.
        claims = getattr(used.backend, name)(used.config).claims()
        for claim in wanted:
            if not is_claimed(claims, claim):
                msg = f"not claimed: {claim}"
                raise Excluded(msg)

    def missing(self, case: Requirements) -> list[str]:
        """Methods of ``spi`` that are not overridden, and those of the harness."""
        inherited = [m.__name__ for m in case.overrides if not self._overrides_it(m)]
        return [*inherited, *super().missing(case)]

    def _overrides_it(self, method: Callable[..., Any]) -> bool:
        """Whether the backend overrides a method of ``spi``."""
        if self.backend.consumer_factory is None:
            return False
        kinds: dict[str, Callable[[], Any]] = {
            ConsumerFactory.__name__: self.factory,
            MetadataProvider.__name__: self.provider,
            PartitionLevelConsumer.__name__: lambda: self.consumer(
                self.harness.partitions()[0]
            ),
        }
        owner = kinds[method.__qualname__.partition(".")[0]]()
        return getattr(type(owner), method.__name__) is not method

    def mask(self) -> Callable[[str], str]:
        """Takes the secrets of the configuration out of a text."""
        return self.configured().config.mask

    # --- the medium ---------------------------------------------------------------

    def create(self, partitions: int = 1, messages: int = 0) -> int:
        """Create the stream, with this number of messages in each partition.

        Returns:
            The id of some partition.
        """
        self.note(f"create(partitions={partitions})")
        self.harness.create(partitions)
        self.written = {number: [] for number in self.harness.partitions()}
        if len(self.written) != (1 if self.traits.single_partition else partitions):
            msg = f"create({partitions}) was followed by partitions() {[*self.written]}"
            raise HarnessFailed(msg)
        for number in self.written:
            if messages:
                self.write(number, messages)
        return self.first()

    def write(self, partition: int, messages: int) -> list[int]:
        """Append messages by the harness; returns their numbers."""
        numbers = list(itertools.islice(self._numbers, messages))
        self.note(f"write(partition={partition}, messages={messages})")
        self.harness.write(partition, numbers)
        self.written[partition].extend(numbers)
        return numbers

    def recreate(self, number: int, messages: int) -> None:
        """Delete the stream, create it again, and append messages to a partition."""
        self.note("recreate()")
        self.use(Recreates).recreate()
        self.written[number] = []
        self.write(number, messages)

    def first(self) -> int:
        """The id of some partition."""
        return next(iter(self.written))

    # --- the backend ----------------------------------------------------------------

    def configured(self, use: str = "read", **options: str | None) -> Configured:
        """The configuration, with options of the case (``__`` for a dot).

        An option that is None is left out.
        """
        extra = {key.replace("__", "."): value for key, value in options.items()}
        given = self.harness.properties()
        if use == "write" and self.has(HasSinkProperties):
            given = self.use(HasSinkProperties).sink_properties()
        every = {**given, **self._overrides, **extra}
        properties = {key: value for key, value in every.items() if value is not None}
        definition = from_mapping(properties, "conformance")
        return load(definition, use, plugins=self._plugins)

    def source(self, **options: str) -> Source:
        """The stream through the framework."""
        return self.closing(Source(self.configured(**options)))

    def reader(self, number: int, **options: str) -> Reader:
        """A partition through the framework."""
        return self.closing(self.source(**options).reader(self.partition(number)))

    def sink(self, **options: str) -> Sink:
        """The stream for writing, through the framework."""
        return self.closing(Sink(self.configured("write", **options), crashes=True))

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

    def bounds(
        self, number: int, provider: MetadataProvider | None = None
    ) -> tuple[int, int]:
        """Earliest and latest offset of a partition, where latest is known."""
        info = self.infos(provider)[number]
        require(info.latest is not None, f"latest of partition {number} is None")
        assert info.latest is not None
        return info.earliest, info.latest

    # --- reading --------------------------------------------------------------------

    def answers(
        self,
        consumer: PartitionLevelConsumer,
        at: int,
        end: int | None = None,
        max_rows: int = 65_536,
        max_bytes: int = BYTES,
    ) -> Iterator[tuple[int, Fetched]]:
        """Results of the author's consumer, each with its start.

        They end with the partition, and where there is no progress.
        """
        patience = self.patience()
        while True:
            limits = FetchLimits(max_rows, max_bytes, SLICE)
            fetched = consumer.fetch_messages(at, end, limits)
            yield at, fetched
            if fetched.state is BatchState.END_OF_PARTITION:
                return
            before, at = at, fetched.next_offset
            require(at >= before, f"next_offset went back, from {before} to {at}")
            if patience.over(SLICE, progress=at > before or fetched.rows is not None):
                return

    def fetch_all(
        self,
        number: int,
        start: int | None = None,
        end: int | None = None,
        *,
        consumer: PartitionLevelConsumer | None = None,
        max_rows: int = 65_536,
        max_bytes: int = BYTES,
    ) -> list[Row]:
        """Read a range with the author's consumer, as the framework does.

        ``start`` is the earliest offset, and ``end`` the latest, where not given.
        """
        if start is None:
            start = self.infos()[number].earliest
        self.note(f"author.fetch(partition={number}, start={start}, end={end})")
        consumer = consumer or self.consumer(number)
        stop = end if end is not None else self.infos()[number].latest
        # If latest is unknown, the range ends when everything written has been read.
        wanted = len(self.written[number])
        rows: list[Row] = []
        at = start
        if not wanted if stop is None else at >= stop:
            return rows
        for before, fetched in self.answers(consumer, at, end, max_rows, max_bytes):
            rows += self.rows_of(fetched, before)
            at = fetched.next_offset
            whole = len(rows) >= wanted if stop is None else at >= stop
            if whole or fetched.state is BatchState.END_OF_PARTITION:
                break
        else:
            msg = f"reading makes no progress at {at}, before {stop}"
            raise Mismatch(msg)
        return [row for row in rows if end is None or row[0] < end]

    def batches(
        self,
        reader: Reader,
        at: int,
        end: int | None = None,
        *,
        timeout: float = 1.0,
        max_rows: int = 65_536,
        max_bytes: int = BYTES,
    ) -> Iterator[MessageBatch]:
        """Batches of a reader.

        No progress before a given end is a failure. Without one the batches end then.
        """
        patience = self.patience()
        while end is None or at < end:
            batch = reader.fetch(
                at, end=end, timeout=timeout, max_rows=max_rows, max_bytes=max_bytes
            )
            yield batch
            before, at = at, batch.next_offset
            if patience.over(timeout, progress=at > before):
                require(end is None, f"reading makes no progress at {at}, before {end}")
                return

    def read_all(self, source: Source, number: int, start: int, end: int) -> list[Row]:
        """Read a range through `Reader`."""
        self.note(f"reader.fetch(partition={number}, start={start}, end={end})")
        reader = self.closing(source.reader(self.partition(number)))
        return self.rows_of_batches(self.batches(reader, start, end))

    def rows_of_batches(self, batches: Iterable[MessageBatch]) -> list[Row]:
        """Offset and number of each row."""
        rows: list[Row] = []
        for batch in batches:
            offsets = offsets_of(batch.offsets, batch.first_offset, batch.num_rows)
            rows += zip(offsets, self.harness.numbers(batch.rows), strict=True)
        return rows

    def answer(
        self, reader: Reader, start: int, timeout: float = 1.0, **limits: Any
    ) -> MessageBatch:
        """Fetch until there are rows: one empty batch does not mean an empty range."""
        patience = self.patience()
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
        return [offset for offset, _ in self.fetch_all(number)]

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
        for _ in range(self.waits.attempts):
            before()
            started = time.monotonic()
            answer = function()
            took = time.monotonic() - started
            if took <= limit:
                return answer
        msg = f"{what} took {took:.2f} s, allowed were {limit:.2f} s"
        raise Mismatch(msg)

    def close(self) -> None:
        """Close all that was opened, and the harness."""
        try:
            super().close()
        finally:
            self.harness.close()


def offsets_of(offsets: Any, first: int | None, count: int) -> Sequence[int]:
    """Offsets as numbers; None means consecutive from ``first``."""
    if offsets is not None:
        return [int(offset) for offset in offsets.to_pylist()]
    return range(first or 0, (first or 0) + count)


def is_claimed(claims: Claims, name: str) -> bool:
    """Whether something is claimed, see `Case.claims`."""
    wanted, _, value = name.partition("=")
    claimed = getattr(claims, wanted)
    if isinstance(claimed, EpochVisibility):
        return claimed.value == value if value else claimed is not EpochVisibility.NONE
    return bool(claimed)
