"""Backends that write wrongly only where processes end, or run beside one another.

They are made of the specimen ``durable``, a file that processes share.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from tests.zoo.registry import caught_by, register

from streamfactory.conformance.specimens import durable
from streamfactory.conformance.specimens.durable import (
    DurableCommitter,
    DurableConsumer,
    DurableConsumerFactory,
    DurableMetadata,
    DurableProducerFactory,
)
from streamfactory.conformance.specimens.frames import Topic, to_ipc
from streamfactory.spi import WriterFenced

if TYPE_CHECKING:
    from streamfactory.spi import LastCommit, Partition, StreamCommitter


class MarksFirst(Topic):
    """Writes the epoch's mark and its rows as two frames."""

    def commit(
        self, head: dict[str, Any], body: bytes, instance: str
    ) -> LastCommit | None:
        mark = head | {"partition": []}
        held = super().commit(mark, to_ipc(self.schema), instance)
        if held is None:
            self.append({"partition": head["partition"]}, body)
        return held


class LocksItsProcess(Topic):
    """Looks and adds in two steps, under a lock of this process."""

    LOCK: ClassVar = threading.Lock()

    def commit(
        self, head: dict[str, Any], body: bytes, instance: str
    ) -> LastCommit | None:
        with self.LOCK:
            self.refresh()
            writer, epoch = head["writer"], head["epoch"]
            kept = self.writers.get(writer)
            if kept is not None and epoch <= kept[0].epoch:
                return kept[0]
            if self.owners.get(writer, instance) != instance:
                msg = f"epoch {epoch}: a later instance of {writer!r} has begun"
                raise WriterFenced(msg)
            self.send(head, body)
            return None

    def send(self, head: dict[str, Any], body: bytes) -> None:
        """As the client of a server does."""
        self.append(head, body)

    def claim(self, writer: str, instance: str) -> None:
        with self.LOCK:
            super().claim(writer, instance)


class _Committer(DurableCommitter):
    TOPIC: ClassVar[type[Topic]]

    def topic(self) -> Topic:
        return self.TOPIC(self._config["path"])


class _MarksFirst(_Committer):
    TOPIC = MarksFirst


class _LocksItsProcess(_Committer):
    TOPIC = LocksItsProcess


@caught_by("a_killed_commit_is_finished_or_never_was")
class StoresTheEpochBeforeItsRows(DurableProducerFactory):
    """The epoch is stored before its rows, in two steps."""

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return _MarksFirst(self.config, writer_id)


@caught_by("processes_that_commit_at_once_write_each_epoch_once")
class LocksWithinOneProcess(DurableProducerFactory):
    """The lock of commits does not exclude other processes."""

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return _LocksItsProcess(self.config, writer_id)


# --- reading ----------------------------------------------------------------------


class ShownEarly(Topic):
    """Has the rows of an epoch in a frame before the one that commits it."""

    def commit(
        self, head: dict[str, Any], body: bytes, instance: str
    ) -> LastCommit | None:
        kept = self.writers.get(head["writer"])
        is_new = kept is None or head["epoch"] > kept[0].epoch
        if is_new and self.owners.get(head["writer"], instance) == instance:
            self.append({"early": head["partition"]}, body)
            head |= {"shown": True}
        return self.send(head, body, instance)

    def send(
        self, head: dict[str, Any], body: bytes, instance: str
    ) -> LastCommit | None:
        """As the client of a server does."""
        return super().commit(head, body, instance)

    def _apply(self, head: dict[str, Any], body: bytes) -> None:
        if "early" in head:
            super()._apply({"partition": head["early"]}, body)
        else:
            hidden = ("partition",) * ("shown" in head)
            known = {key: head[key] for key in head if key not in hidden}
            super()._apply(known, body)


class _EarlyConsumer(DurableConsumer):
    TOPIC = ShownEarly


class _EarlyMetadata(DurableMetadata):
    TOPIC = ShownEarly


class _EarlyCommitter(_Committer):
    TOPIC = ShownEarly


class EarlyConsumers(DurableConsumerFactory):
    """Reads the rows of both frames."""

    def create_partition_level_consumer(
        self, client_id: str, partition: Partition, fields_to_read: Any = None
    ) -> DurableConsumer:
        return _EarlyConsumer(self.config["path"], partition)

    def create_metadata_provider(self, client_id: str) -> DurableMetadata:
        return _EarlyMetadata(self.config["path"])


class EarlyProducers(DurableProducerFactory):
    """Writes the two frames."""

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return _EarlyCommitter(self.config, writer_id)


register(
    "ReadsUncommittedRows",
    "Its consumers return rows of an epoch before they are visible.",
    "consumers_during_a_commit_return_whole_epochs",
    replace(
        durable.streamfactory_backend(),
        consumer_factory=EarlyConsumers,
        producer_factory=EarlyProducers,
    ),
    durable.DurableHarness,
)
