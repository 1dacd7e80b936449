"""Authors whose every move is written down by a test, and a decoder of words."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from streamfactory.spi import (
    Backend,
    BadMessage,
    Claims,
    ConsumerFactory,
    DecodeContext,
    Decoded,
    Decoder,
    Fetched,
    FetchLimits,
    MessageDecoder,
    MetadataProvider,
    Option,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    SchemaUnknown,
    Yields,
    envelope_schema,
    hookimpl,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.stream import Stream, open_stream

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from streamfactory.spi import StreamError
    from streamfactory.wiring.core.clock import Clock

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
TOPIC = "script"
PARTITION_0 = Partition(TOPIC, 0)

Step = Fetched | BaseException | Callable[[int, int | None, FetchLimits], Fetched]


def ids(*numbers: int) -> pa.RecordBatch:
    """Rows of `SCHEMA`."""
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def rows(start: int, count: int, **details: Any) -> Fetched:
    """An answer of consecutive rows."""
    numbers = range(start, start + count)
    return Fetched(ids(*numbers), start + count, **details)


def sparse(*offsets: int, **details: Any) -> Fetched:
    """An answer with gaps, or with several rows of one message."""
    next_offset = details.pop("next_offset", offsets[-1] + 1)
    return Fetched(
        ids(*offsets), next_offset, offsets=pa.array(offsets, pa.int64()), **details
    )


def envelopes(
    *values: bytes | None,
    start: int = 0,
    headers: Sequence[tuple[str, bytes]] | None = None,
) -> Fetched:
    """An answer of undecoded messages with the keys k0, k1, ..."""
    count = len(values)
    columns = {
        "key": [f"k{start + n}".encode() for n in range(count)],
        "value": list(values),
        "topic": [TOPIC] * count,
        "partition": [0] * count,
        "offset": range(start, start + count),
        "timestamp": [(start + n) * 1000 for n in range(count)],
        "timestampType": [0] * count,
        "headers": [None if headers is None else list(headers)] * count,
    }
    arrays = [pa.array(columns[f.name], f.type) for f in envelope_schema()]
    batch = pa.RecordBatch.from_arrays(arrays, schema=envelope_schema())
    return Fetched(batch, start + count)


class Author:
    """A stream type called ``script``: tests say what it answers, and see its calls.

    A step is an answer, an exception, or a function of the call. Without steps left
    it blocks for as long as it may, and answers nothing.
    """

    def __init__(
        self,
        *steps: Step,
        schema: pa.Schema | None = SCHEMA,
        latest: int | None = 1000,
        wakes: bool = False,
        translate: Callable[[BaseException], StreamError | None] | None = None,
    ) -> None:
        self.steps: deque[Step] = deque(steps)
        self.always: Callable[[int, int | None, FetchLimits], Fetched] | None = None
        """Answers when no step is left; without it there is nothing."""
        self.schema = schema
        self.schemas: dict[str, pa.Schema] = {}
        """By topic, where they differ."""
        self.infos: list[PartitionInfo] = [PartitionInfo(PARTITION_0, 0, latest)]
        self.claims = Claims(replayable=latest is not None)
        self.refusals: deque[Exception] = deque()
        """What the next questions for metadata raise."""
        self.times: dict[Partition, int | None] = {}
        self.topics: list[str] = [TOPIC]
        self.consumer_class = _WakeableConsumer if wakes else _Consumer
        self.translate = translate
        self.yields = Yields.EITHER
        self.creating: Callable[[Partition], None] = lambda _: None
        # what was seen
        self.calls: list[tuple[Partition, int, int | None, FetchLimits]] = []
        self.looked_up = 0
        self.times_asked: list[int] = []
        self.made: list[_Consumer] = []
        self.blocked = threading.Event()

    @property
    def starts(self) -> list[int]:
        """Where fetches began."""
        return [start for _, start, _, _ in self.calls]

    @property
    def open_consumers(self) -> int:
        """Consumers that were made and not closed."""
        return sum(consumer.closed == 0 for consumer in self.made)

    def bounds(
        self, earliest: int, latest: int | None, incarnation: Any = None
    ) -> None:
        """Set the bounds of the only partition."""
        info = PartitionInfo(PARTITION_0, earliest, latest, incarnation=incarnation)
        self.infos = [info]

    def step(self, start: int, end: int | None, limits: FetchLimits) -> Fetched:
        if not self.steps:
            always = self.always
            return (
                Fetched(None, start) if always is None else always(start, end, limits)
            )
        step = self.steps.popleft()
        if isinstance(step, BaseException):
            raise step
        return step if isinstance(step, Fetched) else step(start, end, limits)

    def source(
        self,
        *,
        plugins: Sequence[object] = (),
        fields: Sequence[str] | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> Source:
        """The stream opened for reading; dots in option names are written ``__``."""
        manager = self.manager(*plugins)
        definition = from_mapping(self.properties(**options))
        configured = configure(definition, manager, use="read")
        return Source(configured, fields=fields, clock=clock)

    def open(
        self, *, plugins: Sequence[object] = (), options: Any = None, **how: Any
    ) -> Stream:
        """The same through `open_stream`."""
        properties = self.properties(**(options or {}))
        return open_stream(properties, plugins=self.manager(*plugins), **how)

    def manager(self, *plugins: object) -> PluginManager:
        manager = PluginManager()
        for plugin in (_Plugin(self), *plugins):
            manager.register(plugin)
        return manager

    def properties(self, **options: Any) -> dict[str, str]:
        given = {
            "streamType": "script",
            "stream.script.topic.name": TOPIC,
            "retry.initial.millis": "1",
            "retry.max.millis": "2",
            "stream.script.fetch.timeout.millis": "50",
        }
        given |= {key.replace("__", "."): value for key, value in options.items()}
        chosen = {"subscribe", "subscribePattern", "assign"} & given.keys()
        if chosen:
            del given["stream.script.topic.name"]
        return given


class _Consumer(PartitionLevelConsumer):
    def __init__(self, author: Author, partition: Partition) -> None:
        author.creating(partition)
        self.author = author
        self.partition = partition
        self.closed = 0
        author.made.append(self)

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        author = self.author
        author.calls.append((self.partition, start, end, limits))
        if not author.steps and author.always is None:
            author.blocked.set()
            self.block(limits.timeout)
        return author.step(start, end, limits)

    def block(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.closed += 1


class _WakeableConsumer(_Consumer):
    def __init__(self, author: Author, partition: Partition) -> None:
        super().__init__(author, partition)
        self._woken = threading.Event()

    def block(self, seconds: float) -> None:
        self._woken.wait(seconds)

    def wake(self) -> None:
        self._woken.set()


class _Metadata(MetadataProvider):
    def __init__(self, author: Author) -> None:
        self._author = author

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        self._author.looked_up += 1
        if self._author.refusals:
            raise self._author.refusals.popleft()
        return [info for info in self._author.infos if info.partition.topic in topics]

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        if self._author.refusals:
            raise self._author.refusals.popleft()
        self._author.times_asked.append(timestamp_ms)
        return dict(self._author.times)

    def fetch_schema(self, topic: str) -> pa.Schema:
        schema = self._author.schemas.get(topic, self._author.schema)
        if schema is None:
            msg = "a script has no schema"
            raise SchemaUnknown(msg)
        return schema

    def fetch_topics(self) -> Sequence[str]:
        return self._author.topics


class _Plugin:
    def __init__(self, author: Author) -> None:
        class Factory(ConsumerFactory):
            CLAIMS: ClassVar = author.claims

            def create_partition_level_consumer(
                self,
                client_id: str,
                partition: Partition,
                fields_to_read: Sequence[str] | None = None,
            ) -> PartitionLevelConsumer:
                return author.consumer_class(author, partition)

            def create_metadata_provider(self, client_id: str) -> MetadataProvider:
                return _Metadata(author)

            def claims(self) -> Claims:
                return author.claims

        self._backend = Backend(
            name="script",
            doc="A script.",
            spi_level=1,
            consumer_factory=Factory,
            yields=author.yields,
            translate=author.translate,
            options=(Option("password", "A secret.", secret=True),),
        )

    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return self._backend


class Words(MessageDecoder):
    """``a,b`` becomes two rows, an empty message none, one with ``!`` is bad."""

    opened: ClassVar[int] = 0

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        Words.opened += 1

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("word", pa.string(), nullable=False)])

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        words, source, errors = [], [], []
        for index, value in enumerate(values.to_pylist()):
            if b"!" in value:
                errors.append(BadMessage(index, "malformed", f"message {index} shouts"))
                continue
            for word in filter(None, value.decode().split(",")):
                words.append(word)
                source.append(index)
        batch = pa.record_batch([pa.array(words, pa.string())], schema=self.schema())
        return Decoded(batch, pa.array(source, pa.int32()), errors)

    def close(self) -> None:
        Words.opened -= 1


class Dictionary:
    """The plug-in of a decoder."""

    def __init__(
        self, decoder: type[MessageDecoder] = Words, name: str = "words"
    ) -> None:
        self._descriptor = Decoder(
            name=name, doc="Words.", spi_level=1, decoder=decoder
        )

    @hookimpl
    def streamfactory_decoder(self) -> Decoder:
        return self._descriptor


def decoding(
    answer: Callable[[pa.Array], Decoded], schema: pa.Schema | None = None
) -> Dictionary:
    """A decoder, called ``words`` too, that answers whatever a test wants."""

    class Odd(Words):
        def schema(self) -> pa.Schema:
            return super().schema() if schema is None else schema

        def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
            return answer(values)

    return Dictionary(Odd)
