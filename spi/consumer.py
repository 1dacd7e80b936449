"""The reading half of the contract: Pinot's interfaces for Arrow.

An author implements: rows at or after a start, in order and repeatable; correct bounds;
``close``. Clamping, deadlines, retries, policies, translation of errors, loss records
and counters are implemented once, by the framework's final ``Reader`` and ``Metadata``.

Process and thread rules. A factory is created in the process that uses it and pickles
by its configuration (rule R11). Consumers belong to one thread; only ``close`` and
``wake`` may be called from another. Providers and factories are thread-safe. Nothing is
opened in a factory's constructor: resources that its objects share are opened on first
use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from streamfactory.spi.claims import Claims
from streamfactory.spi.errors import Unsupported
from streamfactory.spi.positions import Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi.batch import Fetched, FetchLimits
    from streamfactory.spi.checkpoint import CheckpointStore
    from streamfactory.spi.config import StreamConfig
    from streamfactory.spi.metadata import MetadataProvider
    from streamfactory.spi.partitions import Partition


NO_STARTS: Final = Position()
"""Of a member that does not know where its partitions started."""


class PartitionLevelConsumer(ABC):
    """Reads one partition from any offset. Created by `ConsumerFactory`.

    One thread at a time calls it. After any exception from ``fetch_messages`` the
    framework closes this consumer and creates a new one for a retry: a consumer need
    not be usable after an error.
    """

    @abstractmethod
    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        """Return messages at or after ``start``.

        Called repeatedly, mostly with the ``next_offset`` of the previous result, but
        the framework may jump to any offset (a replay, a reset): seek if ``start`` is
        not the current offset. The framework has checked ``start`` against the bounds
        at the beginning and after each jump.

        Args:
            start: First offset to read, inclusive.
            end: End of the range, exclusive; None for no end. The framework cuts rows
                beyond it; a consumer may use it to save work.
            limits: How much to return, and how long the call may block.

        Returns:
            At least one message, if one is available within ``limits.timeout``, however
            long it is. An empty result otherwise; earlier if it is known that no
            message will arrive. An empty result may advance ``next_offset``. A source
            that broke off and cannot be resumed *returns* ``END_OF_PARTITION`` and
            `Failed`: an exception would be retried.

        Raises:
            OffsetOutOfRange: data_loss; the source no longer, or not yet, has
                ``start``. Raise it only if the source reports it: the framework checks
                the bounds in any case, and applies ``out.of.range`` (rule R7).
            IncarnationChanged: data_loss; the topic was recreated, and no result can
                carry the new incarnation. The framework applies ``out.of.range``.
            DataLossError: data_loss; with ``resume``, messages in the middle are lost,
                and ``out.of.range`` applies. An author never reads that option.
            StreamError: The matching subclass. Foreign exceptions are translated by
                `Backend.translate`.

        Not guaranteed: that the same consumer is called again, or that offsets only
        increase.
        """

    def wake(self) -> None:
        """Make a blocked ``fetch_messages`` return early. Called from another thread.

        Override it if blocking longer than 250 ms at a time is worthwhile: the
        framework then passes the whole timeout in one slice, and calls this before
        ``close``. It may be called before the fetch blocks, so the consumer must
        remember it; it may also be called when no fetch blocks. The fetch returns as
        usual, mostly empty, and loses nothing.
        """
        msg = f"{type(self).__name__} cannot be woken"
        raise Unsupported(msg)

    def close(self) -> None:  # noqa: B027 - not abstract: a consumer may have no resources
        """Release all resources. Called once, never during a fetch."""


class StreamLevelConsumer(ABC):
    """Reads a stream as one member of a consumer group that the source balances.

    Only for sources with their own groups (Kafka); for every other backend the
    framework implements groups with partition consumers and a `CheckpointStore`. One
    thread calls it. Users call the framework's ``GroupReader``, which guarantees: rows
    of one partition in order; each row to one member, except after restarts; a restart
    continues at the last ``commit``. Not guaranteed: an order among partitions, and
    that rows after the last ``commit`` are not read again.
    """

    @abstractmethod
    def fetch_messages(self, limits: FetchLimits) -> tuple[Partition, Fetched] | None:
        """Return the next messages of an assigned partition.

        None if none arrived in time.

        Never returns rows of a partition that was revoked from this member. The
        framework checks the result and cuts it to ``limits``, like that of a partition
        consumer.

        Raises:
            OffsetOutOfRange, IncarnationChanged: data_loss; the source does not have
                the offset at which this member continues, or that offset belongs to a
                topic that was deleted. The error has ``partition`` and ``offset``: the
                framework applies ``out.of.range`` (rule R7) and calls `seek`.
            StreamError: The matching subclass. Foreign exceptions are translated.
        """

    def starts(self) -> Position:
        """Return where each assigned partition started, with its incarnation.

        Called before and after each fetch: return the same object until an assignment
        changes it. The framework commits the start of a partition of which no message
        has arrived, so that a member that is stopped loses none that comes later, and
        compares the incarnations with those that it read before (rule R13). The default
        has no starts.
        """
        return NO_STARTS

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue an assigned partition at an offset, after a loss.

        Called by the fetching thread, before its next fetch, only if ``out.of.range``
        is ``earliest`` or ``latest``. The default raises `Unsupported`: the loss is an
        error then.

        Args:
            partition: One of the assignment.
            offset: The next one to read, inclusive.
        """
        msg = f"{type(self).__name__} cannot continue after a loss"
        raise Unsupported(msg, partition=partition, offset=offset)

    @abstractmethod
    def assignment(self) -> frozenset[Partition]:
        """Return the partitions that are assigned to this member."""

    def has_joined(self) -> bool:
        """Whether the group has answered which partitions this member has.

        Called while `assignment` is empty. Until it has, a loop over the member waits;
        then the other members have all partitions, and the loop ends. The default is
        True.
        """
        return True

    @abstractmethod
    def commit(self, position: Position) -> None:
        """Commit a position for assigned partitions. Nothing else commits one.

        Raises:
            CheckpointFailed: permanent; the previous checkpoint remains valid.
        """

    def committed(self) -> Position | None:
        """What the last `commit` committed; None means the whole position.

        Override it where partitions may be revoked during a commit: they are left out.
        """
        return None

    def close(self) -> None:  # noqa: B027 - not abstract: it may have no resources
        """Leave the group, without committing."""


class ConsumerFactory(ABC):
    """Creates the objects that read one stream. One per configuration.

    Args:
        config: The stream's configuration, validated. Keep it; read options from it
            when they are needed, so that secrets are resolved late.

    Resources that consumers and providers share (a connection that can exist only once)
    belong to the factory: opened on first use and closed by ``close``, which is always
    called. A consumer may be closed and recreated after an error without losing them.
    After a fork the child neither closes nor drops inherited resources (clients hang
    there): it keeps a reference to them and opens its own, if possible.

    The class must be importable: a class of a script's ``__main__`` is pickled by
    value, and tasks would not share its module's state.
    """

    CLAIMS: ClassVar[Claims] = Claims()
    """The strongest claims of any configuration."""

    SPARSE_OFFSETS: ClassVar[bool] = False
    """True: most offsets hold no message, and the providers of this factory override
    `MetadataProvider.fetch_extents`."""

    RENUMBERS: ClassVar[bool] = False
    """True: messages that a consumer acknowledged right before it was killed may be
    delivered again under new offsets. A spool then has them twice, which lowers the
    guarantee of a stream that claims `Claims.redelivers` to at-least-once."""

    SURVIVES_FORK: ClassVar[bool] = True
    """False if the client library cannot be used in a child that was forked after its
    first use in the parent (gRPC). Every call in such a child raises `Unsupported`."""

    def __init__(self, config: StreamConfig) -> None:
        self.config = config

    @abstractmethod
    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        """Create a consumer of one partition. A failure leaves nothing open (rule R10).

        Args:
            client_id: Identifies the caller in the source's logs.
            partition: One that the metadata provider returned.
            fields_to_read: Columns to read, if that saves work; the framework drops the
                others in any case. None means all.
        """

    @abstractmethod
    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        """Create a metadata provider for the whole stream."""

    def create_stream_level_consumer(
        self, client_id: str, group_id: str
    ) -> StreamLevelConsumer | None:
        """Create the source's own group member; None selects the framework's."""
        return None

    def acknowledge(self, position: Position) -> None:  # noqa: B027 - an ability
        """Acknowledge the messages before a position.

        They are stored durably elsewhere.

        Override it if the source keeps each message until it is acknowledged. The
        default does nothing. Also claim ``redelivers`` if unacknowledged messages are
        delivered again.

        Called by `copy`, groups, queries on Spark and the spool (rule R12): after the
        messages were committed durably, with the position of that commit; after a
        restart with the position that the last commit stored, as the process may have
        ended between commit and acknowledgement. Never called for a message that is
        not committed.

        Thread-safe: called from any thread, also while a consumer fetches. It may block
        for at most ``connection.timeout.millis``. A query on Spark calls it on the
        driver, where this factory has created no consumer.

        Args:
            position: Next offset of each partition, exclusive; all messages before it
                are covered. It may repeat an earlier position, or be before it, which
                has no effect. Other partitions are not affected. An offset of another
                incarnation than the current one is ignored.

        Raises:
            StreamError: The source is unreachable, or refused. The framework logs it
                and repeats the position with the next commit: nothing is lost.
        """

    def create_checkpoint_store(self) -> CheckpointStore | None:
        """Create a store that keeps the checkpoints of groups with the stream.

        Override it if the source can store them: groups then need no
        ``checkpoint.location``, which has precedence if set. Called when a member of a
        group opens; the framework closes the store before the factory. None if this
        configuration cannot store them.
        """
        return None

    def opening(self) -> bytes | None:
        """Return what this factory found when it opened the stream.

        Override it, and `pin`, if what is read depends on that moment: the names of a
        table's columns. Spark calls it on the driver, after the schema, and ships the
        result with each task. None: nothing depends on it.
        """
        return None

    def pin(self, opening: bytes) -> None:
        """Read the stream as it was when another factory opened it.

        Called before anything else, in another process, with what `opening` returned
        there for the same configuration.
        """
        msg = f"{type(self).__name__} cannot be pinned to an opening"
        raise Unsupported(msg)

    def claims(self) -> Claims:
        """Return the claims of this configuration; never stronger than ``CLAIMS``."""
        return self.CLAIMS

    def close(self) -> None:  # noqa: B027 - not abstract: it may have no resources
        """Release resources that the created objects share. Called last."""

    def __reduce__(self) -> tuple[type[ConsumerFactory], tuple[StreamConfig]]:
        return type(self), (self.config,)
