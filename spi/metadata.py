"""Partitions of a source with their bounds, and who answers for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from streamfactory.spi.errors import SchemaUnknown, Unsupported

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.spi.partitions import Partition
    from streamfactory.spi.positions import Position


class PartitionState(Enum):
    """Whether a partition can still get messages."""

    ACTIVE = "active"
    ENDED = "ended"
    """No message will ever be added; its messages can still be read."""
    VANISHED = "vanished"
    """It was known and the source no longer has it. Set by the framework (rule M4)."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The state of one partition at one moment (rule M1).

    Args:
        partition: Topic and id.
        earliest: First offset that can still be read; equal to ``latest`` for an empty
            partition. May be smaller, if nothing was lost from there on: a start before
            it is out of range.
        latest: Offset that the next message will get. None only if the source cannot
            determine it (a raw socket); a replayable source always can.
        state: Whether messages can still be appended to it.
        incarnation: Changes when the topic is recreated and offsets start again.
        written: If readers cannot read all that was written (an open transaction), the
            end of what they can read, exclusive; None means ``latest``.
        begin: Where a reader starts that is given no start, or ``earliest``. For a
            source that holds more than a new reader needs: the newest snapshot of a
            table, where older commits can still be read. None: at ``earliest`` or
            ``latest``, as usual.
    """

    partition: Partition
    earliest: int
    latest: int | None
    state: PartitionState = PartitionState.ACTIVE
    incarnation: str | None = None
    written: int | None = None
    begin: int | None = None

    @property
    def start(self) -> int:
        """Where a reader starts that has no position in this partition."""
        return self.earliest if self.begin is None else self.begin

    @property
    def waiting(self) -> int:
        """Offsets that were written, and that no reader can read yet."""
        if self.written is None or self.latest is None:
            return 0
        return max(0, self.written - self.latest)


class Extent(NamedTuple):
    """A run of offsets that can hold messages (see `fetch_extents`).

    Args:
        start: First offset, inclusive.
        end: First offset behind it; larger than ``start``.
    """

    start: int
    end: int


class MetadataProvider(ABC):
    """Returns metadata of a stream, without consuming anything (rule M5). Thread-safe.

    Created and called by the framework: readers, planners, checks, commands, pages. A
    call may come from any thread, also while others run; if the user is in the main
    thread, it is made in a thread of its own, so that Ctrl-C ends the wait for it.
    Calls are repeated after transient errors.

    Each call has its own deadline, at most ``connection.timeout.millis``, and never
    blocks a consumer of the same factory. If a stream can be read only once, a call may
    use the reader's connection, but never takes it over.
    """

    @abstractmethod
    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        """Return all partitions with their bounds, **in one call** (rule M1).

        Args:
            topics: The topic of ``topic.name``, or several topics if the backend lists
                topics (`fetch_topics`) and the user subscribed to them.
            known: Partitions that the caller already has. Backends that find
                partitions by probing may use it; others ignore it.

        Returns:
            One entry for each current partition of the topics. A known partition that
            is missing is treated as vanished.

        Raises:
            PartialMetadata: transient; some partition could not be queried. Never
                return a shorter list instead (rule M2).
            TopicNotFound: permanent.
        """

    def fetch_bounds(
        self, partitions: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        """Return the bounds of some partitions; override if some cost less than all.

        Called before the first and after the last fetch of a range, by the thread that
        reads it.
        """
        topics = sorted({partition.topic for partition in partitions})
        infos = self.fetch_partitions(topics, partitions)
        return [info for info in infos if info.partition in partitions]

    def fetch_incarnations(
        self, partitions: Collection[Partition]
    ) -> Mapping[Partition, str | None]:
        """Return the current incarnation of some partitions (rule R13).

        Override it if that costs less than their bounds. If results of consumers do not
        carry the incarnation (`Fetched.incarnation`), the framework calls this after
        each fetch that returned rows, before it hands these out, and before each
        commit: an incarnation that is the same afterwards is that of the rows. A
        partition that does not exist is missing from the result.

        Raises:
            TopicNotFound: permanent.
        """
        return {
            info.partition: info.incarnation for info in self.fetch_bounds(partitions)
        }

    def fetch_partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; override if that is cheaper."""
        return len(self.fetch_partitions([topic], ()))

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        """Return the first offset at or after a time, for many partitions in one call.

        All messages before that offset are earlier; the message at it may be invisible
        to readers (a transaction marker). Never beyond ``latest``. Override it to
        support starts by time; the default raises `Unsupported`.

        Args:
            timestamp_ms: Milliseconds since the epoch, UTC; inclusive.
            partitions: The partitions to look up.

        Returns:
            An entry for each partition: the offset, or None if no message is that late.
        """
        msg = "this stream cannot find offsets by time"
        raise Unsupported(msg)

    def fetch_extents(
        self, partition: Partition, start: int, end: int, most: int | None
    ) -> Sequence[Extent]:
        """Return the runs of offsets between two that can hold messages, in order.

        Override it if `ConsumerFactory.SPARSE_OFFSETS` is true: if most offsets hold
        no message, such as rows of a table that are numbered by commit. The
        framework counts messages, and cuts ranges, by extents. The same range gives
        the same extents while it is retained. An offset of an extent may hold no
        message (a deleted row). The default has no extents: offsets count messages.

        Args:
            partition: Which.
            start: First offset, inclusive; one that an answer or a bound named.
            end: Exclusive.
            most: The caller needs no more extents than hold so many offsets: the rest
                may be left out. None for all.

        Raises:
            DataLossError: data_loss; what the range held is no longer listed.
        """
        msg = "offsets of this stream count its messages"
        raise Unsupported(msg, partition=partition)

    def fetch_commits(self, partition: Partition, start: int, end: int) -> int | None:
        """Return the number of commits between two offsets.

        Override it if users of the source count commits, such as those of a table. Only
        asked where `ConsumerFactory.SPARSE_OFFSETS` is true.
        Commits that have no message count, as does one of which only a part lies in the
        range. The cost must not grow with the rows of the commits. The default has no
        commits.

        Args:
            partition: Which.
            start: First offset, inclusive; one that an answer or a bound named.
            end: Exclusive.

        Returns:
            None: the source has no commits, or none that users know of.

        Raises:
            DataLossError: data_loss; what the range held is no longer listed.
        """
        return None

    def fetch_written_at(self, partition: Partition, offset: int) -> int | None:
        """Return when the message at an offset was written, also if it cannot be read.

        Called for the first message of an open transaction, when a person looks at a
        partition or a log line is written. Override it if `PartitionInfo.written` is
        set. The default does not know.

        Returns:
            Milliseconds since the epoch, UTC; None if unknown.
        """
        return None

    def fetch_schema(self, topic: str) -> pa.Schema:
        """Return the schema of the rows that consumers return.

        Consumes nothing (rule M5).

        A backend that yields envelopes returns `envelope_schema()`. An empty stream has
        a schema too (rule M6).

        Raises:
            SchemaUnknown: config; the source has no schema; the user declares it with
                the option ``schema``. This is the default.
            StreamTimeout: transient; the schema is not known yet, because no writer has
                connected. Wait for one for at most 250 ms: the framework repeats the
                call until ``connection.timeout.millis``, or until it is closed.
        """
        msg = "the source has no schema"
        raise SchemaUnknown(msg)

    def fetch_topics(self) -> Sequence[str]:
        """Return the names of all topics; override to support ``subscribe``.

        Called with each search for new partitions of such a stream, and by commands.
        """
        msg = "this stream cannot list topics"
        raise Unsupported(msg)

    def publish_position(self, group: str, position: Position) -> None:
        """Publish a group's position to the source, for its own tools that show lag.

        It is never read back. Called after commits by `copy`, queries on Spark and
        pipelines with ``progress.group``, and by `replace_position`. Override it if the
        source has named groups (Kafka); the default raises `Unsupported`.

        Args:
            group: Name of the group.
            position: Next offset of each partition.
        """
        msg = "this stream has no groups that could store a position"
        raise Unsupported(msg)

    def fetch_groups(self) -> Sequence[str]:
        """Return the names of groups whose positions the source stores, sorted.

        For commands that show and set positions; readers never call it. Override it
        together with `fetch_positions` if the source has named groups (Kafka's).
        """
        msg = "this stream has no groups that could store a position"
        raise Unsupported(msg)

    def fetch_positions(self, groups: Collection[str]) -> Mapping[str, Position]:
        """Return the committed positions of groups, of any topics.

        For commands and pages that show and set positions; readers never call it.

        Args:
            groups: Their names.

        Returns:
            Next offset of each partition, by group; a group without positions may be
            missing.
        """
        msg = "this stream has no groups that could store a position"
        raise Unsupported(msg)

    def replace_position(self, group: str, before: Position, after: Position) -> bool:
        """Set the position of a group without members, if it is still ``before``.

        For commands and pages that set positions; readers never call it. The default
        compares with `fetch_positions` and calls `publish_position`: of two calls at
        once both may succeed. Override it if the source can do both in one step.

        Args:
            group: Name of the group.
            before: The expected next offset of each partition.
            after: The new one; partitions that are missing keep theirs.

        Returns:
            False if the group is at another position; then nothing was changed. Of two
            calls with one ``before``, at most one returns True.
        """
        found = self.fetch_positions([group]).get(group)
        if found is None or any(found.get(p) != at for p, at in before.items()):
            return False
        self.publish_position(group, after)
        return True

    def close(self) -> None:  # noqa: B027 - not abstract: it may have no resources
        """Release all resources. Called once.

        A call that was cancelled may still run in its thread.
        """
