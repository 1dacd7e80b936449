"""Commits epochs of one writer: rows and marker in one transaction, exactly once."""

from __future__ import annotations

import logging
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException

from streamfactory.backends.kafka.clients import brokers
from streamfactory.backends.kafka.errors import is_final
from streamfactory.backends.kafka.markers import Marker
from streamfactory.backends.kafka.producing import Deadline, TransactionalProducer
from streamfactory.backends.kafka.staging import Staged
from streamfactory.spi import (
    CommitMessage,
    ConnectionFailed,
    EpochMarkerLost,
    LastCommit,
    Position,
    StreamCommitter,
    StreamError,
    StreamTimeout,
    Summary,
    WriterFenced,
)
from streamfactory.spi.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.backends.kafka.markers import Place
    from streamfactory.backends.kafka.writing_resources import WritingResources
    from streamfactory.backends.kafka.writing_topics import TopicPartitionKey

_logger = logging.getLogger("streamfactory")

_SHORTEST: Final = 60.0
"""Minimum transaction timeout in seconds."""
_RATE: Final = 4 * 1024**2
"""Assumed throughput of a slow broker, in bytes per second."""
_SIGHT: Final = 5.0
"""Seconds for which a commit waits until it is visible to readers."""
_FENCED: Final = Backoff(0.3, 0.3)
_GONE: Final = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
"""Errors of a missing topic: the written one, or the topic of markers."""


class EpochCommitter(StreamCommitter):
    """Commits staged epochs. One thread at a time.

    The transactional id is derived from the writer id, so initialising it resolves
    transactions of earlier instances and fences them. Kafka lets a fenced producer
    initialise again; the marker, which names the instance that claimed the writer,
    prevents that.

    Args:
        resources: Provides topics, markers and staged rows.
        writer_id: None if idempotence is not required: then there is no marker.
    """

    def __init__(self, resources: WritingResources, writer_id: str | None) -> None:
        self._resources = resources
        self._writer_id = writer_id
        self._instance = uuid.uuid4().hex
        self._claim: int | None = None
        """Number of this instance's claim."""
        self._producer: TransactionalProducer | None = None
        self._place: Place | None = None
        self._held: LastCommit | None = None
        """The last commit. Valid while the producer is not fenced."""

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        staged = [Staged.from_payload(message.payload) for message in messages]
        summary = sum((message.summary for message in messages), Summary())
        held = self._decide(LastCommit(epoch, source_position, summary), staged)
        self._forget(staged)
        self._resources.staging.sweep()
        return held

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        self._forget([Staged.from_payload(message.payload) for message in messages])

    def last(self) -> LastCommit | None:
        if self._writer_id is None:
            return None
        deadline = self._deadline(self._timeout([]))
        while True:
            try:
                if self._producer is not None and self._place is not None:
                    self._check_claim(self._place, deadline)
                self._open(self._timeout([]), deadline)
            except WriterFenced:
                return self._held
            except (KafkaException, StreamTimeout) as error:
                self._drop_or_raise(error, deadline)
            else:
                return self._held

    def close(self) -> None:
        self._drop()

    def _decide(
        self, wanted: LastCommit, staged: Sequence[Staged]
    ) -> LastCommit | None:
        """Commit unless committed already; retry until the outcome is known."""
        timeout, tried = self._timeout(staged), False
        deadline = self._deadline(2 * timeout)
        while True:
            try:
                self._open(timeout, deadline)
                held = self._held
                if held is not None and held.epoch >= wanted.epoch:
                    return None if tried and held.epoch == wanted.epoch else held
                tried, begun = True, time.monotonic()
                try:
                    self._transact(wanted, staged, deadline)
                finally:
                    if time.monotonic() - begun > timeout:
                        timeout *= 2
            except WriterFenced:
                # Also if the later instance has committed this epoch: its rows are
                # others (rule W3).
                raise
            except (KafkaException, StreamTimeout) as error:
                self._drop_or_raise(error, deadline)
            except ConnectionFailed as error:
                self._drop()
                if not tried:
                    raise
                raise _unknown(error) from error
            except BaseException:
                self._drop(abort=True)
                raise
            else:
                return None

    def _open(self, timeout: float, deadline: Deadline) -> None:
        """Initialise the producer and read the last commit.

        Raises:
            WriterFenced: permanent; a later instance has claimed the writer.
            ConnectionFailed: transient.
        """
        if self._producer is not None and self._producer.timeout >= timeout:
            return
        self._drop()
        resources, writer = self._resources, self._writer_id
        connecting = Deadline(resources.patience)
        try:
            if writer is not None:
                topic = resources.config.topic
                self._place = resources.markers.ensure(topic, writer, connecting)
                self._check_claim(self._place, connecting)
            self._producer = TransactionalProducer(
                resources.producer(),
                self._name(),
                resources.config.topic,
                timeout,
                connecting,
                resources.library(),
            )
        except (KafkaException, StreamTimeout) as error:
            if connecting.left:
                raise
            doing = f"writing to {resources.config.topic!r}"
            where, patience = brokers(resources.config), resources.patience
            raise resources.watch.unreachable(doing, where, patience) from error
        if self._place is not None:
            self._claim_writer(self._producer, self._place, deadline)

    def _check_claim(self, place: Place, deadline: Deadline) -> None:
        """Check for a later instance before initialising, which would disturb it.

        A negative result proves nothing: an open transaction may hide the marker.
        """
        if self._claim is not None:
            marker = self._resources.markers.read(place, deadline)
            if marker is not None and marker.claim > self._claim:
                raise self._fenced(marker)

    def _claim_writer(
        self, producer: TransactionalProducer, place: Place, deadline: Deadline
    ) -> None:
        """Claim the writer in its marker, and read its last commit."""
        marker = self._resources.markers.read(place, deadline, settled=True)
        ours = marker is not None and marker.instance == self._instance
        if self._claim is not None and marker is None:
            raise self._lost()
        if self._claim is not None and marker is not None and not ours:
            raise self._fenced(marker)
        self._held = None if marker is None else marker.commit
        number = 0 if marker is None else marker.claim
        if not ours:
            number += 1
            value = Marker(self._instance, number, self._held).encode()
            producer.begin()
            producer.send_one(place.topic, place.partition, place.key, value, deadline)
            producer.commit(deadline)
        self._claim = number

    def _fenced(self, marker: Marker) -> WriterFenced:
        self._drop()
        self._held = marker.commit
        msg = f"a later instance has claimed writer {self._writer_id!r}"
        return WriterFenced(msg)

    def _transact(
        self, wanted: LastCommit, staged: Sequence[Staged], deadline: Deadline
    ) -> None:
        """Send rows and marker in one transaction."""
        producer, place = self._producer, self._place
        assert producer is not None
        producer.begin()
        partitions: set[TopicPartitionKey] = set()
        for one in staged:
            for topic, partition, rows in self._resources.staging.read(one):
                producer.send(topic, partition, rows, deadline)
                partitions.add((topic, partition))
        if place is not None:
            # Sent last: while uncommitted it hides the markers of other writers.
            assert self._claim is not None
            value = Marker(self._instance, self._claim, wanted).encode()
            producer.send_one(place.topic, place.partition, place.key, value, deadline)
            partitions.add((place.topic, place.partition))
        producer.commit(deadline)
        self._held = wanted
        self._await_visible(partitions)

    def _await_visible(self, partitions: set[TopicPartitionKey]) -> None:
        """Wait until readers see the commit: the broker responds before that (W2)."""
        try:
            seen = self._resources.topics.await_visible(partitions, Deadline(_SIGHT))
        except (KafkaException, StreamError) as error:
            text = "%s: committed, but its visibility is unknown: %s"
            _logger.warning(text, self._name(), error)
        else:
            if not seen:
                text = "%s: committed behind another writer's open transaction"
                _logger.info(text, self._name())

    def _drop_or_raise(
        self, error: KafkaException | StreamTimeout, deadline: Deadline
    ) -> None:
        """Drop the producer; the next one looks up the outcome of the epoch.

        Raises:
            KafkaException: A new producer does not fix the error.
            StreamTimeout: transient; the deadline has passed, the outcome is unknown.
        """
        code = error.args[0] if isinstance(error, KafkaException) else None
        final = code is not None and is_final(code)
        self._drop(abort=code is not None and code.txn_requires_abort())
        if code is not None and code.code() in _GONE and self._claim is not None:
            self._check_markers()
        # Without a writer id there is no marker to look up the outcome.
        if final or (self._writer_id is None and code is not None):
            raise error
        if not deadline.left or self._writer_id is None:
            raise _unknown(error) from error
        _logger.info("%s: retrying with a new producer: %s", self._name(), error)
        # If fenced, give the other instance time to finish.
        time.sleep(min(deadline.left, _FENCED.pause(1)))

    def _check_markers(self) -> None:
        """Distinguish a missing topic of markers from a missing target topic.

        Raises:
            EpochMarkerLost: data_loss; the topic of markers is missing.
            TopicNotFound: permanent; the target topic is missing.
        """
        resources, patience = self._resources, Deadline(self._resources.patience)
        writer = self._writer_id or ""
        if resources.markers.find(resources.config.topic, writer, patience) is None:
            raise self._lost()

    def _lost(self) -> EpochMarkerLost:
        msg = f"the marker of writer {self._writer_id!r} no longer exists"
        return EpochMarkerLost(msg)

    def _drop(self, *, abort: bool = False) -> None:
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if abort:
            with suppress(KafkaException, StreamTimeout):  # or the broker does it
                producer.abort(Deadline(2.0))
        producer.close()

    def _forget(self, staged: Sequence[Staged]) -> None:
        self._resources.staging.remove([one.file for one in staged if one.file])

    def _name(self) -> str:
        """The transactional id."""
        who = self._writer_id or f"anonymous/{self._instance}"
        return f"streamfactory/{self._resources.config.topic}/{who}"

    def _timeout(self, staged: Sequence[Staged]) -> float:
        """Timeout of the transaction in seconds."""
        given: int | None = self._resources.config.get("transaction.timeout.millis")
        if given is not None:
            return given / 1000
        timeout, needed = _SHORTEST, sum(one.size for one in staged) / _RATE
        while timeout < needed:  # in steps: each new value needs a new producer
            timeout *= 2
        return timeout

    def _deadline(self, seconds: float) -> Deadline:
        return Deadline(self._resources.patience + seconds)


def _unknown(error: BaseException) -> StreamTimeout:
    msg = f"the outcome of a commit is unknown: {error}"
    remedy = "commit the epoch again: a repeated commit has no effect"
    return StreamTimeout(msg, remedy=remedy)
