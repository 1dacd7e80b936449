"""The final `Metadata`: implements the [f] rules of M over any metadata provider."""

from __future__ import annotations

import threading
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    ClosedError,
    ConfigError,
    ContractBroken,
    Extent,
    MetadataProvider,
    PartialMetadata,
    Partition,
    PartitionInfo,
    PartitionState,
    PartitionVanished,
    Position,
    PositionRefused,
    SchemaUnknown,
    StreamError,
    StreamTimeout,
)
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.reading.selection import Selection
from streamfactory.wiring.reading.waiting import WaitingOffsets, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.spi import ConsumerFactory, StreamConfig
    from streamfactory.wiring.core.guard import Guard, T

_PAUSE: Final = 0.05
"""Least seconds between two calls for a schema that is not known yet."""


@final
class Metadata:
    """Metadata of a stream. Thread-safe; opens its provider on first use.

    Args:
        config: The stream's configuration.
        factory: Creates the provider.
        guard: Translates and retries, within ``connection.timeout.millis``.
        client_id: Identifies the caller in the source's logs.
        cancelled: Cancels every call when set; by default, closing this does.
    """

    def __init__(
        self,
        config: StreamConfig,
        factory: ConsumerFactory,
        guard: Guard,
        client_id: str,
        cancelled: threading.Event | None = None,
    ) -> None:
        self._config = config
        self._selection = Selection(config)
        self._factory = factory
        self._guard = guard
        self._client_id = client_id
        self._timeout = config["connection.timeout.millis"] / 1000
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._cancelled = cancelled
        self._provider: MetadataProvider | None = None
        self._known: dict[Partition, PartitionInfo] = {}
        self._waiting = WaitingOffsets(config.name)
        registry.track(self, self._waiting)
        self._replayable = factory.claims().replayable
        self.sparse = factory.SPARSE_OFFSETS
        """Whether most offsets hold no message."""

    def topics(self) -> list[str]:
        """Return the topics of this stream: named, subscribed, or matching the pattern.

        Raises:
            Unsupported: misuse; several topics of a backend that cannot list them.
            TopicNotFound: permanent; a subscribed topic does not exist, and did not
                before.
        """
        with self._lock:
            known = {partition.topic for partition in self._known}
        return self._selection.topics(self.list_topics, known)

    def list_topics(self) -> list[str]:
        """Return all topics of the source.

        Raises:
            Unsupported: misuse; this backend cannot list topics.
        """
        return sorted(self._ask("list topics", lambda p: p.fetch_topics()))

    def covers(self, topic: str) -> bool:
        """Whether a topic belongs, or could belong, to this stream."""
        return self._selection.covers(topic)

    def check_position(
        self, position: Collection[Partition], what: str = "the position"
    ) -> None:
        """Refuse a position of another stream.

        Args:
            position: The partitions of the position.
            what: Name of the position, for the error.

        Raises:
            PositionRefused: permanent; a topic is not of this stream (see `covers`).
        """
        topics = {partition.topic for partition in position}
        foreign = {topic for topic in topics if not self.covers(topic)}
        for partition in position:
            if partition.topic in foreign:
                msg = f"{what} has partition {partition}, which is not of this stream"
                raise PositionRefused(msg, stream=self._config.name)

    def partitions(self, known: Iterable[Partition] = ()) -> list[PartitionInfo]:
        """Return all partitions with their bounds, by one call to the source.

        A known partition that no longer exists is returned as ``vanished`` (rule M4).

        Args:
            known: Partitions that the caller already has, from a position for
                example.

        Raises:
            PartialMetadata: transient; the result was incomplete (rule M2).
            ContractBroken: plugin; the result is inconsistent.
        """
        with self._lock:
            before = self._known
        new = {p: PartitionInfo(p, 0, None) for p in known if p not in before}
        met = new | before
        known_topics = {partition.topic for partition in met}
        topics = self._selection.topics(self.list_topics, known_topics)
        names = frozenset(met)
        expected = [partition for partition in names if partition.topic in topics]
        infos = self._ask(
            "fetch partitions",
            lambda p: self._checked(p.fetch_partitions(topics, names), expected),
        )
        chosen = self._selection.partitions(infos, names)
        gone = [
            replace(info, state=PartitionState.VANISHED)
            for p, info in met.items()
            if p not in chosen
        ]
        with self._lock:
            self._known = {**met, **chosen}
        now = self._guard.clock.now()
        self._waiting.observe([*chosen.values()], now, self.waiting_since)
        return sorted([*chosen.values(), *gone], key=attrgetter("partition"))

    def waiting_since(self, info: PartitionInfo) -> str | None:
        """Return when the first message was written that cannot be read yet.

        None if unknown: it is shown with something else, so an error is no reason to
        show nothing.
        """
        latest = info.latest
        if not info.waiting or latest is None:
            return None
        try:
            found = self._ask(
                "fetch the time of a message",
                lambda p: p.fetch_written_at(info.partition, latest),
            )
        except StreamError as error:
            log.info("partition %s: %s", info.partition, error)
            return None
        return time_text(found)

    def info(
        self, partition: Partition, closed: threading.Event | None = None
    ) -> PartitionInfo:
        """Return the current bounds of one partition.

        Args:
            partition: The partition.
            closed: Cancels the call when set; by default, closing this does.

        Raises:
            PartitionVanished: data_loss; the partition does not exist, or no longer.
        """
        wanted = frozenset((partition,))
        infos = self._ask(
            "fetch bounds",
            lambda p: self._checked(p.fetch_bounds(wanted), ()),
            closed,
        )
        return self._existing(infos, partition)

    def incarnations(
        self,
        partitions: Collection[Partition],
        closed: threading.Event | None = None,
    ) -> Mapping[Partition, str | None]:
        """Return the current incarnation of each partition, by one call (rule R13).

        Args:
            partitions: Which.
            closed: Cancels the call when set; by default, closing this does.

        Raises:
            PartitionVanished: data_loss; one does not exist, or no longer.
        """
        found = self._ask(
            "fetch incarnations", lambda p: p.fetch_incarnations(partitions), closed
        )
        return {one: self._existing(found, one) for one in partitions}

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        """Return the first offset at or after a time; None if no message is that late.

        Raises:
            Unsupported: misuse; this backend cannot find offsets by time.
            PartialMetadata: transient; the result lacks a partition.
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
        """Publish a group's position, for the source's own tools.

        Raises:
            Unsupported: misuse; this backend has no groups.
        """
        self._ask("commit a position", lambda p: p.publish_position(group, position))

    def group_positions(self, groups: Collection[str] = ()) -> dict[str, Position]:
        """Return the positions of the source's own groups in this stream, by name.

        Args:
            groups: Names of groups; by default all that the source lists.

        Returns:
            The groups that have a position in a topic of this stream.

        Raises:
            Unsupported: misuse; the source has no groups.
        """
        names = groups or self._ask("list groups", lambda p: p.fetch_groups())
        found = self._ask("fetch positions", lambda p: p.fetch_positions(names))
        mine = {
            name: position.only({p for p in position if self.covers(p.topic)})
            for name, position in found.items()
        }
        return {name: mine[name] for name in sorted(mine) if mine[name]}

    def replace_position(self, group: str, before: Position, after: Position) -> bool:
        """Set the position of a group of the source; False if it is not ``before``.

        A retry after an unknown outcome may find its own change, and return False.

        Raises:
            Unsupported: misuse; this backend has no groups.
        """
        changed = after.only({p for p, at in after.items() if before.get(p) != at})
        if not changed:
            return True
        return self._ask(
            "set a position", lambda p: p.replace_position(group, before, changed)
        )

    def schema(self) -> pa.Schema:
        """Return the schema of the consumers' rows.

        The source's, else the declared one.

        Raises:
            SchemaUnknown: config; there is none.
            ConfigError: config; topics of one stream differ.
        """
        try:
            topics = self.topics()
            schemas = self._ask(
                "fetch the schema",
                lambda p: [self._await_schema(p, topic) for topic in topics],
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

    def extents(
        self, partition: Partition, start: int, end: int, most: int | None = None
    ) -> list[Extent]:
        """The runs of offsets between two that can hold messages.

        One run, of all of them, where the backend's offsets count its messages.

        Args:
            partition: The partition.
            start: First offset, inclusive.
            end: Exclusive.
            most: Return at least so many offsets, if available; further runs may be
                left out. None: all.

        Raises:
            DataLossError: data_loss; what the range held is no longer listed.
            ContractBroken: plugin; the answer contradicts itself.
        """
        if start >= end:
            return []
        if not self.sparse:
            return [Extent(start, end)]
        found = self._ask(
            "fetch extents",
            lambda p: list(p.fetch_extents(partition, start, end, most)),
        )
        edges = [edge for extent in found for edge in extent]
        if edges != sorted(edges) or (
            edges and not start <= edges[0] <= edges[-1] <= end
        ):
            msg = f"extents of {start} to {end} overlap, or lie outside of it"
            raise ContractBroken(msg, stream=self._config.name, partition=partition)
        return found

    def count(self, partition: Partition, start: int, end: int) -> int:
        """Messages between two offsets, or a little more where some are gaps."""
        return sum(e.end - e.start for e in self.extents(partition, start, end))

    def lag(self, position: Position) -> dict[Partition, int | None]:
        """Messages from the position to the latest (rule M7); None where unknown."""
        return {
            info.partition: self.behind(info, position.get(info.partition, info.start))
            for info in self.partitions()
            if info.state is not PartitionState.VANISHED
        }

    def behind(self, info: PartitionInfo, offset: int) -> int | None:
        """Messages of a partition from an offset to its latest; None where unknown."""
        if info.latest is None:
            return None
        # Of sparse offsets only what is held can be counted.
        start = max(offset, info.earliest) if self.sparse else offset
        return max(0, self.count(info.partition, start, info.latest))

    def commits(self, info: PartitionInfo, offset: int) -> int | None:
        """Commits of a partition from an offset to its latest; None where unknown.

        Unknown also where the source has no commits.
        """
        latest = info.latest
        if latest is None or not self.sparse:
            return None
        start = min(latest, max(offset, info.earliest))
        return self._ask(
            "count commits", lambda p: p.fetch_commits(info.partition, start, latest)
        )

    def close(self) -> None:
        """Close the provider; may be called twice."""
        self._closed.set()
        with self._lock:
            provider, self._provider = self._provider, None
        if provider is not None:
            with self._guard.border():
                provider.close()

    def _ask(
        self,
        operation: str,
        question: Callable[[MetadataProvider], T],
        closed: threading.Event | None = None,
    ) -> T:
        def call() -> T:
            return question(self._open())

        closed = self._cancelled or closed or self._closed
        return self._guard.call(operation, call, closed=closed, timeout=self._timeout)

    def _await_schema(self, provider: MetadataProvider, topic: str) -> pa.Schema:
        """Fetch the schema; repeated while no writer has connected.

        Raises:
            StreamTimeout: transient; none has within ``connection.timeout.millis``.
            ClosedError: misuse; closed or cancelled during the call.
        """
        clock = self._guard.clock
        deadline = clock.now() + self._timeout
        warned = False
        while True:
            self._check_open()
            begun = clock.now()
            try:
                return provider.fetch_schema(topic)
            except StreamTimeout as error:
                now = clock.now()
                if now >= deadline:
                    raise
                if not warned:
                    what = "stream %r: %s: waiting for up to %.0f s"
                    log.warning(what, self._config.name, error.what, deadline - now)
                    warned = True
                # A provider may return early: do not spin.
                clock.wait(self._closed, min(begun + _PAUSE, deadline) - now)

    def _check_open(self) -> None:
        cancelled = self._cancelled is not None and self._cancelled.is_set()
        if cancelled or self._closed.is_set():
            msg = "the metadata is closed"
            raise ClosedError(msg)

    def _open(self) -> MetadataProvider:
        with self._lock:
            self._check_open()
            if self._provider is None:
                self._provider = self._factory.create_metadata_provider(self._client_id)
            return self._provider

    def _checked(
        self, answer: Sequence[PartitionInfo], known: Collection[Partition]
    ) -> dict[Partition, PartitionInfo]:
        infos: dict[Partition, PartitionInfo] = {}
        for info in answer:
            if info.partition in infos:
                raise self._broken(info, "M1: the partition was returned twice")
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
            msg = f"no partition was returned, but {len(known)} were known"
            raise PartialMetadata(msg, stream=self._config.name)
        return infos

    def _existing(self, found: Mapping[Partition, T], partition: Partition) -> T:
        if partition not in found:
            msg = "the partition does not exist, or no longer"
            raise PartitionVanished(msg, stream=self._config.name, partition=partition)
        return found[partition]

    def _broken(self, info: PartitionInfo, what: str) -> ContractBroken:
        return ContractBroken(
            f"rule {what}", stream=self._config.name, partition=info.partition
        )
