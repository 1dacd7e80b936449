"""Backends that are wrong about a server that hangs, refuses or goes away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from tests.zoo.registry import register
from tests.zoo.remote import (
    RemoteAdmin,
    RemoteCommitter,
    RemoteConsumer,
    RemoteConsumers,
    RemoteHarness,
    RemoteMetadata,
    RemoteProducers,
    RemoteWriter,
    remote_backend,
    server_of,
)

from streamfactory.arrowlog.writing import LogCommitter, LogWriter
from streamfactory.spi import (
    ConnectionFailed,
    NotAuthorized,
    StreamTimeout,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    import pyarrow as pa

    from streamfactory.spi import (
        CommitMessage,
        Fetched,
        FetchLimits,
        LastCommit,
        Outgoing,
        Partition,
        PartitionInfo,
        Position,
        StreamWriter,
        WriteContext,
    )


def _caught_by(case: str, **others: Any) -> Callable[[type[Any]], type[Any]]:
    """Register a broken half, or administration, of `remote`."""

    def put(broken: type[Any]) -> type[Any]:
        half = (
            "consumer_factory"
            if issubclass(broken, RemoteConsumers)
            else "producer_factory"
            if issubclass(broken, RemoteProducers)
            else "topic_admin"
        )
        backend = remote_backend(**{half: broken, **others})
        name, doc = broken.__name__, str(broken.__doc__)
        register(name, doc, case, backend, RemoteHarness)
        return broken

    return put


# --- a server that does not answer ------------------------------------------------


class _Waiting(RemoteMetadata):
    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        server_of(self.config).answering.wait()
        return super().fetch_partitions(topics, known)


@_caught_by("a_server_that_does_not_answer_is_a_timeout")
class WaitsForAnAnswerWithoutALimit(RemoteConsumers):
    """A request waits for its answer for ever."""

    ABOUT = _Waiting


class _Skipping(RemoteConsumer):
    LOST: ClassVar[set[Partition]] = set()

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        lost = self.partition in self.LOST
        self.LOST.discard(self.partition)
        try:
            return super().fetch_messages(start + 10 * lost, end, limits)
        except StreamTimeout:
            self.LOST.add(self.partition)
            raise


@_caught_by("reading_continues_after_a_server_hung")
class SkipsWhatTimedOut(RemoteConsumers):
    """Messages that a request asked for which timed out count as read."""

    REMOTE = _Skipping


class _Late(RemoteCommitter):
    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        try:
            return super().commit(epoch, messages, source_position)
        except StreamTimeout:
            nameless = LogCommitter(self._factory, None)
            pending = server_of(self.config).late
            pending.append(lambda: nameless.commit(epoch, messages, source_position))
            raise


@_caught_by("a_commit_without_an_answer_writes_once")
class CommitsWithoutAConditionWhenItIsLate(RemoteProducers):
    """A commit that timed out is executed later, whatever was committed meanwhile."""

    COMMITTER = _Late


# --- rights -----------------------------------------------------------------------


class _Away(RemoteMetadata):
    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        try:
            return super().fetch_partitions(topics, known)
        except NotAuthorized as error:
            raise ConnectionFailed(error.what) from error


@_caught_by("a_user_without_rights_is_not_authorized")
class ReportsMissingRightsAsOutages(RemoteConsumers):
    """A request without the right is a failed connection."""

    ABOUT = _Away


class _Claiming(RemoteConsumer):
    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        server_of(self.config).send(self.config, "write")
        return super().fetch_messages(start, end, limits)


@_caught_by("a_user_who_may_only_read_reads")
class NeedsTheRightToWriteForReading(RemoteConsumers):
    """Each fetch stores something in the server."""

    REMOTE = _Claiming


class _Unchecked(RemoteWriter):
    def write(self, outgoing: Outgoing) -> None:
        LogWriter.write(self, outgoing)


class _Swallowing(RemoteCommitter):
    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        try:
            return super().commit(epoch, messages, source_position)
        except NotAuthorized:
            return None

    def last(self) -> LastCommit | None:
        try:
            return super().last()
        except NotAuthorized:
            return None


@_caught_by("a_user_who_may_only_read_writes_nothing")
class CountsRefusedCommitsAsSuccessful(RemoteProducers):
    """A commit without the right to write counts as successful."""

    REMOTE = _Unchecked
    COMMITTER = _Swallowing


@_caught_by("a_user_who_may_read_and_write_writes")
class NeedsTheRightToAdministerForWriting(RemoteProducers):
    """A writer asks for settings of the server that only administrators see."""

    def create_writer(self, context: WriteContext) -> StreamWriter:
        server_of(self.config).send(self.config, "administer")
        return super().create_writer(context)


@_caught_by("a_user_who_may_only_read_administers_nothing")
class IgnoresRefusedDeletions(RemoteAdmin):
    """A deletion without the right to it counts as successful."""

    def delete(self, topic: str) -> None:
        try:
            super().delete(topic)
        except NotAuthorized:
            return


# --- interruptions ----------------------------------------------------------------


@_caught_by("a_creation_that_loses_its_server_can_be_repeated")
class CreatesTopicsInTwoRequests(RemoteAdmin):
    """A topic is created with one partition, and grown by another request."""

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        super().create(topic, schema, 1)
        if partitions is not None and partitions > 1:
            self.grow(topic, partitions)


_HIDDEN: set[str] = set()


class _Hiding(RemoteMetadata):
    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        if _HIDDEN & {*topics}:
            msg = f"there is no topic {topics[0]!r}"
            raise TopicNotFound(msg)
        return super().fetch_partitions(topics, known)


class _HidingConsumers(RemoteConsumers):
    ABOUT = _Hiding


@_caught_by(
    "a_deletion_that_loses_its_server_can_be_repeated",
    consumer_factory=_HidingConsumers,
)
class DeletesTopicsInTwoRequests(RemoteAdmin):
    """A topic is hidden, and its messages are deleted by another request."""

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        if topic in _HIDDEN:
            self.send()
            _HIDDEN.discard(topic)
        else:
            super().create(topic, schema, partitions)

    def delete(self, topic: str) -> None:
        self.send()
        if topic in _HIDDEN:
            msg = f"there is no topic {topic!r}"
            raise TopicNotFound(msg)
        self.store().open(topic)
        _HIDDEN.add(topic)
        super().delete(topic)
        _HIDDEN.discard(topic)


# --- what is staged ---------------------------------------------------------------


class _Forgetting(RemoteCommitter):
    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        """Nothing is removed."""


@_caught_by("decided_epochs_leave_nothing_staged")
class KeepsWhatIsAborted(RemoteProducers):
    """The abort of an epoch leaves its rows in the server."""

    COMMITTER = _Forgetting


class _Lasting(RemoteWriter):
    EXPIRES = False


@_caught_by("abandoned_attempts_are_removed")
class StagesForEver(RemoteProducers):
    """What a writer that was killed has staged is never removed."""

    REMOTE = _Lasting


# --- the greatest offsets ---------------------------------------------------------


class _Rounding(RemoteConsumer):
    def shift(self, offset: int, base: int) -> int:
        return int(float(offset) + float(base))


@_caught_by("the_greatest_offsets_are_read")
class RoundsOffsets(RemoteConsumers):
    """Offsets are computed as floating numbers."""

    REMOTE = _Rounding


class _Overflowing(RemoteConsumer):
    def refuse(self) -> None:
        msg = "int too big to convert"
        raise OverflowError(msg)


@_caught_by("a_message_beyond_all_offsets_is_refused")
class ComputesOffsetsThatOverflow(RemoteConsumers):
    """The offset of a message that has none is computed, and overflows."""

    REMOTE = _Overflowing


class _Endless(RemoteCommitter):
    def check_space(self, messages: Sequence[CommitMessage]) -> None:
        """Nothing is checked."""


@_caught_by("a_write_beyond_the_greatest_offset_is_refused")
class WritesBehindTheGreatestOffset(RemoteProducers):
    """A write does not look whether there are offsets for its rows."""

    COMMITTER = _Endless
