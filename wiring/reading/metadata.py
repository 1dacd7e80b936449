"""The final `Metadata`: makes the [f] rules of M true once, over any provider."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, final

from streamfactory.spi import (
    ClosedError,
    ConfigError,
    ContractBroken,
    MetadataProvider,
    PartialMetadata,
    Partition,
    PartitionInfo,
    PartitionState,
    PartitionVanished,
    Position,
    PositionRefused,
    SchemaUnknown,
    TopicNotFound,
)
from streamfactory.wiring.options.patterns import matching_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.spi import ConsumerFactory, StreamConfig
    from streamfactory.wiring.core.guard import Guard, T


@final
class Metadata:
    """What a stream has. Thread-safe; opens its provider on first use.

    Args:
        config: The stream's configuration.
        factory: Makes the provider.
        guard: Translates and retries, within ``connection.timeout.millis``.
        client_id: Names the caller in the source's logs.
    """

    def __init__(
        self,
        config: StreamConfig,
        factory: ConsumerFactory,
        guard: Guard,
        client_id: str,
    ) -> None:
        self._config = config
        self._factory = factory
        self._guard = guard
        self._client_id = client_id
        self._timeout = config["connection.timeout.millis"] / 1000
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._provider: MetadataProvider | None = None
        self._known: dict[Partition, PartitionInfo] = {}
        self._replayable = factory.claims().replayable

    def topics(self) -> list[str]:
        """The topics of this stream: named, subscribed to, or matching the pattern.

        Raises:
            Unsupported: misuse; several topics of a backend that cannot list them.
            TopicNotFound: permanent; a subscribed topic is not there, nor was it.
        """
        with self._lock:
            known = {partition.topic for partition in self._known}
        return self._topics(known)

    def list_topics(self) -> list[str]:
        """All topics that the source has.

        Raises:
            Unsupported: misuse; this backend cannot list topics.
        """
        return sorted(self._ask("list topics", lambda p: p.fetch_topics()))

    def covers(self, topic: str) -> bool:
        """Whether a topic of this name is, was, or could be one of this stream."""
        config = self._config
        if "topic.name" in config:
            return topic == config.topic
        for word in ("assign", "subscribe"):
            if word in config:
                return topic in config[word]
        return bool(matching_topics(config["subscribePattern"], [topic]))

    def check_position(
        self, position: Iterable[Partition], what: str = "the position"
    ) -> None:
        """Refuse a position of another stream.

        Args:
            position: Its partitions.
            what: Names it in the error.

        Raises:
            PositionRefused: permanent; a topic is not of this stream (see `covers`).
        """
        for partition in position:
            if not self.covers(partition.topic):
                msg = f"{what} is of {partition}, which is not of this stream"
                raise PositionRefused(msg, stream=self._config.name)

    def partitions(self, known: Iterable[Partition] = ()) -> list[PartitionInfo]:
        """All partitions with their bounds, by one call to the source.

        A partition that was known and is gone comes back as ``vanished`` (rule M4).

        Args:
            known: Partitions that the caller knows from before, of a position.

        Raises:
            PartialMetadata: transient; the answer was not whole (rule M2).
            ContractBroken: plugin; the answer contradicts itself.
        """
        with self._lock:
            met = {p: PartitionInfo(p, 0, None) for p in known} | self._known
        topics = self._topics({partition.topic for partition in met})
        names = frozenset(met)
        expected = [partition for partition in names if partition.topic in topics]
        infos = self._ask(
            "ask for partitions",
            lambda p: self._checked(p.fetch_partitions(topics, names), expected),
        )
        chosen = self._assigned(infos, names)
        gone = [
            replace(info, state=PartitionState.VANISHED)
            for p, info in met.items()
            if p not in chosen
        ]
        with self._lock:
            self._known = met | chosen
        return sorted([*chosen.values(), *gone], key=lambda info: info.partition)

    def info(
        self, partition: Partition, closed: threading.Event | None = None
    ) -> PartitionInfo:
        """One partition, asked for now.

        Args:
            partition: Which.
            closed: Ends the asking when it is set; by default, closing this does.

        Raises:
            PartitionVanished: data_loss; it is not, or no longer, there.
        """
        wanted = frozenset((partition,))
        infos = self._ask(
            "ask for bounds",
            lambda p: self._checked(p.fetch_bounds(wanted), ()),
            closed,
        )
        if partition not in infos:
            msg = "the partition is not, or no longer, there"
            raise PartitionVanished(msg, stream=self._config.name, partition=partition)
        return infos[partition]

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        """First offset at or after a time; None where nothing is so late.

        Raises:
            Unsupported: misuse; this backend cannot find offsets by time.
            PartialMetadata: transient; the answer lacks a partition.
        """

        def question(provider: MetadataProvider) -> Mapping[Partition, int | None]:
            found = provider.fetch_offsets_at(timestamp_ms, partitions)
            missing = sorted(set(partitions) - set(found))
            if missing:
                count = f"{len(missing)} of {len(partitions)} partitions"
                msg = f"no offset by time for {count}"
                raise PartialMetadata(msg, partition=missing[0])
            return {partition: found[partition] for partition in partitions}

        return self._ask("find offsets by time", question)

    def publish_position(self, group: str, position: Position) -> None:
        """Tell the source's own tools how far somebody has read.

        Raises:
            Unsupported: misuse; this backend has no groups that could be told.
        """
        self._ask("tell a position", lambda p: p.publish_position(group, position))

    def schema(self) -> pa.Schema:
        """The schema of what consumers answer: the source's, else the declared one.

        Raises:
            SchemaUnknown: config; there is neither.
            ConfigError: config; topics of one stream differ.
        """
        try:
            topics = self.topics()
            schemas = self._ask(
                "ask for the schema", lambda p: [p.fetch_schema(t) for t in topics]
            )
        except SchemaUnknown:
            if "schema" not in self._config:
                raise
            from streamfactory.spi.ddl import parse_ddl

            return parse_ddl(self._config["schema"])
        if not schemas:
            msg = "no topic matches, so there is no schema"
            raise SchemaUnknown(msg, stream=self._config.name)
        if any(not schema.equals(schemas[0]) for schema in schemas):
            msg = "the topics of this stream have different schemas"
            raise ConfigError(msg, stream=self._config.name)
        return schemas[0].remove_metadata()

    def lag(self, position: Position) -> dict[Partition, int | None]:
        """Latest less next (rule M7); None where the latest is unknown."""
        return {
            info.partition: (
                None
                if info.latest is None
                else max(0, info.latest - position.get(info.partition, info.earliest))
            )
            for info in self.partitions()
            if info.state is not PartitionState.VANISHED
        }

    def close(self) -> None:
        """Close the provider; twice is fine."""
        self._closed.set()
        with self._lock:
            provider, self._provider = self._provider, None
        if provider is not None:
            with self._guard.border():
                provider.close()

    def _topics(self, known: Collection[str]) -> list[str]:
        config = self._config
        if "topic.name" in config:
            return [config.topic]
        there = self.list_topics()
        if "subscribePattern" in config:
            return matching_topics(config["subscribePattern"], there)
        wanted = config["assign"] if "assign" in config else config["subscribe"]
        # One that was there and is gone has vanished, and stops no other.
        missing = sorted(set(wanted) - set(there) - set(known))
        if missing:
            msg = f"topic {missing[0]!r} does not exist"
            raise TopicNotFound(msg, stream=config.name)
        return sorted(set(wanted) & set(there))

    def _ask(
        self,
        operation: str,
        question: Callable[[MetadataProvider], T],
        closed: threading.Event | None = None,
    ) -> T:
        def call() -> T:
            return question(self._open())

        return self._guard.call(
            operation, call, closed=closed or self._closed, timeout=self._timeout
        )

    def _open(self) -> MetadataProvider:
        with self._lock:
            if self._closed.is_set():
                msg = "the metadata was closed"
                raise ClosedError(msg)
            if self._provider is None:
                self._provider = self._factory.create_metadata_provider(self._client_id)
            return self._provider

    def _checked(
        self, answer: Sequence[PartitionInfo], known: Collection[Partition]
    ) -> dict[Partition, PartitionInfo]:
        infos: dict[Partition, PartitionInfo] = {}
        for info in answer:
            if info.partition in infos:
                raise self._broken(info, "M1: the partition is answered twice")
            if info.latest is None:
                if self._replayable:
                    msg = "the latest offset is missing from a replayable source"
                    raise PartialMetadata(
                        msg, stream=self._config.name, partition=info.partition
                    )
            elif info.earliest > info.latest:
                what = f"M3: earliest {info.earliest} is beyond latest {info.latest}"
                raise self._broken(info, what)
            if info.earliest < 0:
                raise self._broken(info, f"M3: earliest is {info.earliest}")
            infos[info.partition] = info
        if known and not infos:
            msg = f"no partition was answered, where {len(known)} were known"
            raise PartialMetadata(msg, stream=self._config.name)
        return infos

    def _broken(self, info: PartitionInfo, what: str) -> ContractBroken:
        return ContractBroken(
            f"rule {what}", stream=self._config.name, partition=info.partition
        )

    def _assigned(
        self, infos: dict[Partition, PartitionInfo], known: Collection[Partition]
    ) -> dict[Partition, PartitionInfo]:
        if "assign" not in self._config:
            return infos
        assigned = {
            Partition(topic, int(number))
            for topic, numbers in self._config["assign"].items()
            for number in numbers
        }
        missing = sorted(assigned - set(infos) - set(known))
        if missing:
            msg = f"assigned partition {missing[0]} does not exist"
            raise TopicNotFound(msg, stream=self._config.name)
        return {p: info for p, info in infos.items() if p in assigned}
