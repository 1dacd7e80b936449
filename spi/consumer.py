"""The reading half of the contract: Pinot's interfaces, for Arrow.

An author owes little: rows at or after a start, in order, the same again when asked
again; true bounds; ``close``. Clamping, deadlines, retries, policies, translation of
errors, loss records and counters are the framework's, made true once by its final
``Reader`` and ``Metadata``.

Process and thread rules. A factory is made where it is used and pickles by its
configuration (rule R11). Consumers belong to one thread; ``close`` and ``wake`` alone
may be called from any. Providers and factories are thread-safe. Nothing is opened in a
factory's constructor: what a factory shares between its objects it opens on first use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from streamfactory.spi.claims import Claims
from streamfactory.spi.errors import SchemaUnknown, Unsupported

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.spi.batch import Fetched, FetchLimits
    from streamfactory.spi.checkpoint import CheckpointStore
    from streamfactory.spi.config import StreamConfig
    from streamfactory.spi.positions import Partition, Position


class PartitionState(Enum):
    """What will become of a partition."""

    ACTIVE = "active"
    ENDED = "ended"
    """No message will ever be added; what it holds can still be read."""
    VANISHED = "vanished"
    """It was known and the source no longer has it. Set by the framework (rule M4)."""


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition as the source has it at one moment (rule M1)."""

    partition: Partition
    earliest: int
    """First offset still held; equal to ``latest`` where nothing is. May be smaller,
    where nothing was lost from there on: a reader before it is out of range."""
    latest: int | None
    """Offset that the next message will get. None only where the source cannot know
    it (a raw socket); a replayable source always knows."""
    state: PartitionState = PartitionState.ACTIVE
    incarnation: str | None = None
    """Changes when what the offsets count is gone and begun again."""
    written: int | None = None
    """Where a reader cannot read up to what was written (an open transaction), the
    offset behind that; None means ``latest``."""


class PartitionLevelConsumer(ABC):
    """Reads one partition from any offset. Made by `ConsumerFactory`.

    One thread at a time calls it. After any exception out of ``fetch_messages`` the
    framework closes this consumer and, where it tries again, makes a new one: an author
    keeps no state fit for use after an error.
    """

    @abstractmethod
    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        """Answer messages at or after ``start``.

        Called again and again, mostly with the ``next_offset`` of the previous answer,
        but the framework may jump to any offset (a replay, a reset): seek where
        ``start`` is not where you are. The framework has checked ``start`` against the
        bounds when it began and after each jump.

        Args:
            start: First offset wanted, inclusive.
            end: First offset not wanted, exclusive; None for no end. Rows beyond it
                are cut by the framework; knowing it may spare work.
            limits: How much, and how long it may block.

        Returns:
            At least one message, where there is one within ``limits.timeout``, however
            long it is. An empty answer otherwise; sooner where it is known that
            nothing will come. An empty answer may move ``next_offset`` on. A source
            that broke off and cannot be taken up again *answers* so, with
            ``END_OF_PARTITION`` and `Failed`: what is raised is tried again.

        Raises:
            OffsetOutOfRange: data_loss; the source no longer, or not yet, has
                ``start``. Only where the source says so by itself: the framework looks
                the bounds up either way, and applies ``out.of.range`` (rule R7).
            IncarnationChanged: data_loss; the topic was recreated, and no answer can
                name the new incarnation. The framework applies ``out.of.range``.
            DataLossError: data_loss; with ``resume``, messages in the middle are lost,
                and ``out.of.range`` applies. An author never reads that option.
            StreamError: As it fits. Foreign exceptions are translated by
                `Backend.translate`.

        Not promised to the author: that the same consumer is asked again, or that
        offsets only rise.
        """

    def wake(self) -> None:
        """Make a blocked ``fetch_messages`` return early. Called from another thread.

        Override it where blocking longer than 250 ms at a time pays: the framework then
        gives the whole timeout in one slice, and calls this before ``close``. It may
        come before the fetch blocks, so it is remembered; it may come for nothing. The
        fetch answers as ever, mostly empty, and loses nothing.
        """
        msg = f"{type(self).__name__} cannot be woken"
        raise Unsupported(msg)

    def close(self) -> None:  # noqa: B027 - a consumer may hold nothing
        """Give back all that was opened. Called once, never during a fetch."""


class MetadataProvider(ABC):
    """Answers what a stream has, without consuming anything (rule M5). Thread-safe.

    Each call has a deadline of its own, at most ``connection.timeout.millis``, and
    never keeps a consumer of the same factory waiting. Where a stream can be read once
    only, a look-up may use the reader's own connection, but never takes it away.
    """

    @abstractmethod
    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        """Answer all partitions with their bounds, **in one call** (rule M1).

        Args:
            topics: Topics wanted: the one of ``topic.name``, unless the backend lists
                topics (`fetch_topics`) and the user subscribed to several.
            known: Partitions that the caller has met before. An author who finds
                partitions by probing may use it; others ignore it.

        Returns:
            One entry for each partition that the topics have now. A known one that is
            left out is taken for vanished.

        Raises:
            PartialMetadata: transient; some partition could not be asked. Never
                answer a shorter list instead (rule M2).
            TopicNotFound: permanent.
        """

    def fetch_bounds(
        self, partitions: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        """The same for some partitions; override where a few cost less than all.

        The framework asks it before the first and after the last fetch of a range.
        """
        topics = sorted({partition.topic for partition in partitions})
        infos = self.fetch_partitions(topics, partitions)
        return [info for info in infos if info.partition in partitions]

    def fetch_partition_count(self, topic: str) -> int:
        """How many partitions a topic has; override where that is cheaper."""
        return len(self.fetch_partitions([topic], ()))

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[Partition]
    ) -> Mapping[Partition, int | None]:
        """First offset at or after a time, for many partitions in one call.

        Every message before it is earlier; the message at it may be one that no reader
        gets to see (a marker). Never beyond ``latest``. Override it to have the
        ability. The default has not.

        Args:
            timestamp_ms: Milliseconds since the epoch, UTC; inclusive.
            partitions: Those wanted.

        Returns:
            An entry for each: the offset, or None where no message is that late.
        """
        msg = "this stream cannot find offsets by time"
        raise Unsupported(msg)

    def fetch_schema(self, topic: str) -> pa.Schema:
        """The schema of the rows that consumers answer. Consumes nothing (rule M5).

        A backend that answers envelopes returns `envelope_schema()`. An empty stream
        has its schema too (rule M6).

        Raises:
            SchemaUnknown: config; the source will never have one; a user declares it
                with the option ``schema``. This is the default.
            StreamTimeout: transient; not yet: no writer has come.
        """
        msg = "the source has no schema"
        raise SchemaUnknown(msg)

    def fetch_topics(self) -> Sequence[str]:
        """Names of all topics; override to allow ``subscribe`` and its kin."""
        msg = "this stream cannot list topics"
        raise Unsupported(msg)

    def publish_position(self, group: str, position: Position) -> None:
        """Tell the source how far somebody has read, for its own tools that show lag.

        Nothing is ever read back from there. Override it to have the ability: the
        source has named groups (Kafka's). The default has not.

        Args:
            group: Name of the group that is told.
            position: Next offset of each partition.
        """
        msg = "this stream has no groups that could store a position"
        raise Unsupported(msg)

    def close(self) -> None:  # noqa: B027 - a provider may hold nothing
        """Give back all that was opened."""


class StreamLevelConsumer(ABC):
    """Reads a whole stream as one member of a group, where the source balances.

    Only for sources with groups of their own (Kafka's); for every other backend the
    framework has one over partition consumers and a `CheckpointStore`. One thread
    calls it. Users hold the framework's ``GroupReader``, which promises: rows of one
    partition in order; each row to one member, unless restarted; a restart goes on at
    the last ``commit``. Not promised: an order among partitions, and that rows after
    the last ``commit`` do not come again.
    """

    @abstractmethod
    def fetch_messages(self, limits: FetchLimits) -> tuple[Partition, Fetched] | None:
        """The next messages of some assigned partition; None when none came in time.

        Never answers rows of a partition that was taken from this member. An answer is
        checked, cut to ``limits`` and shaped as one of a partition's consumer is.

        Raises:
            OffsetOutOfRange: data_loss; the source has not the offset at which this
                member is to continue. The error names ``partition`` and ``offset``:
                the framework applies ``out.of.range`` (rule R7) and calls `seek`.
            StreamError: As it fits. Foreign exceptions are translated.
        """

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue an assigned partition at an offset, after a loss.

        Called by the thread that fetches, before its next fetch, only where
        ``out.of.range`` is ``earliest`` or ``latest``. The default cannot: the loss is
        an error then.

        Args:
            partition: One of the assignment.
            offset: The next one to read, inclusive.
        """
        msg = f"{type(self).__name__} cannot continue after a loss"
        raise Unsupported(msg, partition=partition, offset=offset)

    @abstractmethod
    def assignment(self) -> frozenset[Partition]:
        """The partitions that are this member's now."""

    @abstractmethod
    def commit(self, position: Position) -> None:
        """Save a position, for partitions of the assignment. Nothing else saves one.

        Raises:
            CheckpointFailed: permanent; the previous one still holds.
        """

    def close(self) -> None:  # noqa: B027 - a member may hold nothing
        """Leave the group, without committing."""


class ConsumerFactory(ABC):
    """Makes everything that reads one stream. One per configuration.

    Args:
        config: The stream's configuration, validated. Keep it; read options from it
            when they are needed, so that secrets are resolved late.

    What a consumer and a provider share (a connection that cannot be had twice) lives
    here, opened on first use and closed by ``close``, which is promised: a consumer may
    be closed and made anew after an error without losing it. After a fork the child
    neither closes nor drops what it inherited (clients hang there): it keeps
    it referenced and opens its own, where that is possible.

    The class is importable by its module: what is defined in a script's ``__main__`` is
    pickled by value, and tasks would begin without what a process shares.
    """

    CLAIMS: ClassVar[Claims] = Claims()
    """The most that any configuration can claim."""

    SURVIVES_FORK: ClassVar[bool] = True
    """False: the client library cannot be used in a child that was forked after its
    first use in the parent (gRPC). Every call there raises `Unsupported` at once."""

    def __init__(self, config: StreamConfig) -> None:
        self.config = config

    @abstractmethod
    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        """Make a consumer for one partition. A failure leaves nothing open (rule R10).

        Args:
            client_id: Names the caller in the source's logs.
            partition: One that the metadata provider answered.
            fields_to_read: Columns wanted, where that spares work; the framework
                drops others either way. None means all.
        """

    @abstractmethod
    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        """Make a provider for the whole stream."""

    def create_stream_level_consumer(
        self, client_id: str, group_id: str
    ) -> StreamLevelConsumer | None:
        """Make the source's own group member; None takes the framework's."""
        return None

    def acknowledge(self, position: Position) -> None:  # noqa: B027 - an ability
        """Release the messages before a position: they are stored safely elsewhere.

        Override it to have the ability, where the source keeps each message until its
        receipt is acknowledged. The default does nothing. Claim ``redelivers`` too,
        where messages that were not acknowledged are delivered again.

        Called by `copy`, groups, queries on Spark and the spool (rule R12): after the
        messages were committed durably, with the position of that commit; after a
        restart with the position that the last commit stored, as the process may have
        ended between commit and acknowledgement. Never called for a message that is
        not committed.

        Thread-safe: called from any thread, also while a consumer fetches. It may block
        for at most ``connection.timeout.millis``. A query on Spark calls it on the
        driver, where this factory has made no consumer.

        Args:
            position: Next offset of each partition, exclusive; all messages before it
                are covered. It may repeat an earlier one, or be before it, which
                takes nothing back. Partitions that are not in it are not concerned. An
                offset that counts in another incarnation than the source has now is
                ignored.

        Raises:
            StreamError: The source could not be reached, or refused. Logged by the
                framework, which repeats the position with the next commit: nothing
                is lost by it.
        """

    def create_checkpoint_store(self) -> CheckpointStore | None:
        """Make a store that keeps the checkpoints of groups beside the stream.

        Override it where the source can keep them: groups then need no
        ``checkpoint.location``, which wins where it is given. Called when a member of
        a group opens; the framework closes the store before the factory. None: this
        configuration cannot.
        """
        return None

    def claims(self) -> Claims:
        """The claims under this configuration; never more than ``CLAIMS``."""
        return self.CLAIMS

    def close(self) -> None:  # noqa: B027 - a factory may share nothing
        """Give back what the objects made here share. Called last."""

    def __reduce__(self) -> tuple[type[ConsumerFactory], tuple[StreamConfig]]:
        return type(self), (self.config,)
