"""Stream-level consumer: a member of a consumer group, balanced by Kafka.

Partitions are assigned and revoked during the client's calls. Offsets are committed
only by `commit`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from streamfactory.backends.kafka.clients import Watch, brokers, refused
from streamfactory.backends.kafka.columns import CHUNK, next_chunk
from streamfactory.backends.kafka.committed import committed_places
from streamfactory.backends.kafka.errors import failure, is_passing, retried
from streamfactory.backends.kafka.group_rows import ConsumedRowsByPartition
from streamfactory.backends.kafka.group_settings import (
    assigns_alone,
    cooperates,
    member_settings,
    subscription,
)
from streamfactory.backends.kafka.group_starts import PlannedStarts, StartPlanner
from streamfactory.backends.kafka.metadata import KafkaMetadata
from streamfactory.backends.kafka.native_groups import (
    MemberQueue,
    NativeRowsByPartition,
)
from streamfactory.backends.kafka.native_library import library_for
from streamfactory.backends.kafka.options import READING
from streamfactory.spi import (
    BatchState,
    CheckpointFailed,
    Fetched,
    FetchLimits,
    IncarnationChanged,
    OffsetOutOfRange,
    Partition,
    Position,
    StreamError,
    StreamLevelConsumer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.backends.kafka.group_rows import (
        GroupRows,
        PartitionRows,
        Reported,
    )
    from streamfactory.spi import StreamConfig

log = logging.getLogger("streamfactory")

_SLICE: Final = 0.2
_JOINING: Final = 0.1
"""Seconds of one wait without partitions, where assignments are in another queue."""
_LINGER: Final = 0.01
_LOST: Final = frozenset(
    {
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError._LOG_TRUNCATION,
        KafkaError.OFFSET_OUT_OF_RANGE,
    }
)
"""Errors for an offset that does not exist."""
_SETTLE: Final = 0.1


class KafkaGroupMember(StreamLevelConsumer):
    """One member. The client joins the group at the first fetch.

    Args:
        config: The stream's configuration.
        client_id: Client id in the brokers' logs.
        group_id: The group.

    Raises:
        ConfigError: config; the options name a start that groups do not support, or
            require the compiled part, which cannot be used.
    """

    def __init__(self, config: StreamConfig, client_id: str, group_id: str) -> None:
        self._config = config
        self._client_id = client_id
        self._group = group_id
        self._topics = subscription(config)
        self._metadata = KafkaMetadata(config, client_id)
        self._planner = StartPlanner(config, self._metadata)
        self._timeout = config["connection.timeout.millis"] / 1000
        self._headers = config.wants_headers
        self._watch = Watch()
        self._library = library_for(config, READING)
        self._client: Consumer | None = None
        self._queue: MemberQueue | None = None
        self._answered = False
        """Whether the group has assigned partitions to this member, or none."""
        self._mine: set[Partition] = set()
        self._taken: set[Partition] = set()
        """Partitions that were revoked since the last commit began."""
        self._committed = Position()
        """By the last commit."""
        self._next: dict[Partition, int] = {}
        self._starts = Position()
        self._recreated: dict[Partition, IncarnationChanged] = {}
        """Partitions that are not read until `seek`."""
        self._begun: dict[Partition, int] = {}
        """See `begun_partitions`: every commit repeats it."""
        self._ready: deque[tuple[Partition, Fetched]] = deque()
        self._errors: dict[Partition | None, StreamError] = {}
        """To be raised after the rows before them; one of each partition."""
        self._unassigned: StreamError | None = None
        """Why partitions were not assigned; the client does it without their starts."""

    def fetch_messages(self, limits: FetchLimits) -> tuple[Partition, Fetched] | None:
        client = self._joined()
        until = time.monotonic() + limits.timeout
        while not self._ready:
            self._raise_error()  # after the rows before it
            left = max(0.0, until - time.monotonic())
            self._gather(client, limits, min(left, self._slice))
            if self._ready:
                break
            self._raise_error()
            self._check_network()
            if not left:
                break
        return self._ready.popleft() if self._ready else None

    def assignment(self) -> frozenset[Partition]:
        return frozenset(self._mine)

    def has_joined(self) -> bool:
        if (
            self._client is not None
            and not self._answered
            and assigns_alone(self._config)
        ):
            # The client does not call back when it is assigned no partitions.
            doing = f"members of group {self._group!r} cannot be read"
            members = self._metadata.fetch_members(self._group, doing)
            self._answered = self._client.memberid() in members
        return self._answered

    def starts(self) -> Position:
        return self._starts

    def seek(self, partition: Partition, offset: int) -> None:
        if self._client is not None and partition in self._mine:
            place = TopicPartition(partition.topic, partition.id, offset)
            self._client.incremental_unassign([place])
            self._assign(self._client.incremental_assign, [place])
            self._next[partition] = offset
            self._recreated.pop(partition, None)
            self._drop({partition})

    def commit(self, position: Position) -> None:
        until: float | None = None
        left = set(position) & self._mine
        self._taken, self._committed = set(), Position()
        while self._client is not None:
            # What was assigned again is read from the last commit.
            left -= self._taken
            places = committed_places(position.only(left), self._begun)
            error = self._saved(self._client, places) if places else None
            if error is None:
                self._committed = position.only(left)
                return
            if until is None:
                # The first answer may have waited for the end of a rebalance.
                until = time.monotonic() + self._timeout
            if not is_passing(error) or time.monotonic() > until:
                raise self._not_saved(error)
            # A coordinator that moves or loads is tried again; after a rebalance the
            # partitions that are left are committed.
            self._gather(self._client, FetchLimits(CHUNK, 2**20, 0.0), _SETTLE)

    def committed(self) -> Position:
        return self._committed

    def close(self) -> None:
        self._leave()
        self._metadata.close()

    # --- membership -------------------------------------------------------------------

    def _leave(self) -> None:
        """Close the client; the next fetch joins the group again."""
        client, self._client = self._client, None
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
        if client is not None:
            self._unsubscribe(client)
            client.close()  # may still be assigned partitions; `_assigned` ignores them
        self._answered = False
        self._mine.clear()
        self._starts = Position()
        self._recreated.clear()
        self._begun.clear()
        self._next.clear()
        self._ready.clear()
        self._errors.clear()
        self._unassigned = None

    def _unsubscribe(self, client: Consumer) -> None:
        """Leave the group, if `Consumer.close` would not.

        The client (2.16) leaves without a word where a cooperative member has no
        partitions: the next rebalance, and commits of other members, would wait until
        its session has timed out. Static members have to stay.
        """
        static = "group.instance.id" in self._config.client_properties("consumer")
        if not (self._mine or static or assigns_alone(self._config)):
            with suppress(KafkaException):
                client.unsubscribe()

    def _joined(self) -> Consumer:
        if self._client is None:
            settings = member_settings(
                self._config, self._client_id, self._group, self._watch
            )
            if self._library is not None:
                settings = self._library.add_to(settings)
            try:
                client = Consumer(settings)
            except (KafkaException, ValueError, TypeError) as error:
                raise refused(error, self._config) from error
            if self._library is not None:
                # In the thread, and before the next client.
                self._queue = MemberQueue(self._library, client)
            self._client = client
            client.subscribe(
                self._topics,
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._revoked,
            )
        return self._client

    def _assigned(self, client: Consumer, given: list[TopicPartition]) -> None:
        """Start at the committed offsets, else at the start of the options."""
        self._answered = self._client is not None
        if not given or self._client is None:
            return
        partitions = [_partition(place) for place in given]
        try:
            planned = self._planner.plan(client, partitions)
        except KafkaException as error:
            doing = f"committed offsets of group {self._group!r} cannot be read"
            self._unassigned = failure(error, doing, where=brokers(self._config))
            return
        except StreamError as error:
            self._unassigned = error
            return
        self._watch.clear()
        together = cooperates(self._config)
        assign = client.incremental_assign if together else client.assign
        self._assign(assign, planned.places)
        self._mine |= set(partitions)
        self._starts = self._starts.merge(planned.position)
        self._recreated |= planned.recreated
        self._begun |= planned.begun
        self._save_starts(client, planned)

    def _save_starts(self, client: Consumer, planned: PlannedStarts) -> None:
        """Commit where partitions start that no member has read before.

        Otherwise the next owner, if this member ends before it commits, would pass what
        came since. Best effort: `commit` stores them too.
        """
        starts = planned.position.only(planned.passed)
        places = committed_places(starts, planned.begun)
        error = self._saved(client, places) if places else None
        if error is not None:
            log.info("starts of group %r were not committed: %s", self._group, error)

    def _assign(
        self,
        assign: Callable[[list[TopicPartition]], None],
        places: list[TopicPartition],
    ) -> None:
        queue = self._queue
        partitions = [_partition(place) for place in places]
        if queue is not None:
            queue.forward(partitions)
        assign(places)
        if queue is not None:
            queue.forward(partitions)

    def _revoked(self, client: Consumer, taken: list[TopicPartition]) -> None:
        """Drop rows that another member will read."""
        revoked = {_partition(place) for place in taken}
        self._mine -= revoked
        self._taken |= revoked
        self._starts = self._starts.only(self._mine)
        for partition in revoked:
            self._next.pop(partition, None)
            self._errors.pop(partition, None)
            self._recreated.pop(partition, None)
            self._begun.pop(partition, None)
        self._drop(revoked)

    @property
    def _slice(self) -> float:
        return _JOINING if self._queue is not None and not self._mine else _SLICE

    def _drop(self, partitions: set[Partition]) -> None:
        """Drop rows that are read again, by this member or by another one."""
        self._ready = deque(item for item in self._ready if item[0] not in partitions)

    # --- messages ---------------------------------------------------------------------

    def _gather(self, client: Consumer, limits: FetchLimits, patience: float) -> None:
        """Poll messages and group them by partition."""
        rows = self._new_rows(client)
        try:
            self._poll(rows, limits, patience)
            if self._unassigned is not None:
                raise self._unassigned
            self._answer(rows)
            for partition, offset in rows.rewinds.items():
                self.seek(partition, offset)
            for about in rows.errors:
                self._note(about)
        except BaseException:
            # Rows or errors are missing. The next fetch begins at the last commit.
            self._leave()
            raise

    def _poll(self, rows: GroupRows, limits: FetchLimits, patience: float) -> None:
        until = time.monotonic() + patience
        wanted, wait = 1, patience
        while True:
            received = rows.poll(wanted, limits.max_bytes, wait)
            full = received == wanted and time.monotonic() < until
            over = rows.rows >= limits.max_rows or rows.size >= limits.max_bytes
            if not full or over or rows.errors:
                break
            chunk = next_chunk(rows.rows, rows.size, limits.max_bytes)
            wanted, wait = min(chunk, limits.max_rows - rows.rows), _LINGER

    def _new_rows(self, client: Consumer) -> GroupRows:
        if self._queue is None:
            return ConsumedRowsByPartition(client, self._watch, headers=self._headers)
        return NativeRowsByPartition(self._queue, self._watch, headers=self._headers)

    def _answer(self, rows: GroupRows) -> None:
        """Queue the rows of partitions that were not revoked meanwhile."""
        ends, received = rows.ends, time.monotonic()
        for partition, columns in rows.by_partition():
            if partition in self._mine and partition not in self._recreated:
                answer = self._fetched(columns, partition, ends, received)
                self._ready.append((partition, answer))
        for partition, end in ends.items():
            # Control records after the last row: advance the position beyond them.
            before = self._next.get(partition, end)
            if before < end and partition in self._mine:
                self._next[partition] = end
                state = BatchState.CAUGHT_UP
                answer = Fetched(None, end, state=state, latest=end, held_from=before)
                self._ready.append((partition, answer))

    def _fetched(
        self,
        rows: PartitionRows,
        partition: Partition,
        ends: Mapping[Partition, int],
        received: float,
    ) -> Fetched:
        at, before = rows.next_offset, self._next.get(partition)
        self._next[partition] = at
        latest = ends.get(partition)
        return Fetched(
            rows.batch(),
            at,
            latest=latest if latest == at else None,
            held_from=before,  # `_LOST` reports what is not: a gap is no loss
            size=rows.size,
            received=received,
        )

    # --- what goes wrong --------------------------------------------------------------

    def _note(self, reported: Reported) -> None:
        """Keep an error until the rows before it are returned."""
        error, partition, offset = reported
        if partition is not None and error.code() in _LOST:
            expected = self._next.get(partition)
            # The client may report an offset that was left by `seek`.
            if offset is None or expected is None or offset == expected:
                self._lose(partition)
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED or not is_passing(error):
            # After others the client joins again; `Watch` has those of the network.
            doing = f"group {self._group!r} cannot be read"
            self._errors[None] = failure(error, doing, where=brokers(self._config))

    def _lose(self, partition: Partition) -> None:
        """Raise the loss: the framework applies ``out.of.range`` (rule R7)."""
        client = self._client
        place = TopicPartition(partition.topic, partition.id)
        assert client is not None
        earliest, latest = retried(
            lambda: client.get_watermark_offsets(place, timeout=self._timeout),
            self._timeout,
        )
        wanted = self._next.get(partition)
        if wanted is None:
            [found] = retried(
                lambda: client.committed([place], timeout=self._timeout), self._timeout
            )
            wanted = found.offset
        msg = (
            f"offset {wanted} is not available: the partition has offsets {earliest} "
            f"to {latest}"
        )
        self._errors[partition] = OffsetOutOfRange(
            msg, earliest=earliest, latest=latest, partition=partition, offset=wanted
        )

    def _saved(
        self, client: Consumer, places: list[TopicPartition]
    ) -> KafkaError | None:
        try:
            done = client.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            return error.args[0]  # type: ignore[no-any-return]
        return next((p.error for p in done or () if p.error is not None), None)

    def _raise_error(self) -> None:
        for changed in self._recreated.values():
            raise changed
        if self._errors:
            raise self._errors.pop(next(iter(self._errors)))

    def _check_network(self) -> None:
        doing = f"group {self._group!r} cannot be read"
        where, watch = brokers(self._config), self._watch
        error = watch.refusal(doing, where)
        if error is not None:
            raise error
        lost, patience = watch.down_since, self._config["broker.timeout.millis"] / 1000
        if lost is not None and time.monotonic() - lost > patience:
            raise watch.unreachable(doing, where, patience)

    def _not_saved(self, error: KafkaError) -> CheckpointFailed:
        doing = f"the offsets of group {self._group!r} were not committed"
        cause = failure(error, doing, where=brokers(self._config))
        remedy = "rows since the last commit are delivered again, to the new owner of "
        remedy += "the partition"
        if is_passing(error):
            # It was tried for the connection's timeout: the caller knows for how long
            # to go on, and a later commit has all that this one had.
            remedy = f"commit again, by the same member; otherwise, {remedy}"
        return CheckpointFailed(cause.what, remedy=remedy)


def _partition(place: TopicPartition) -> Partition:
    return Partition(place.topic, place.partition)
