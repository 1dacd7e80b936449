"""Backends that write wrongly only where processes end, or run beside one another.

They are made of the specimen ``durable``, a file that processes share.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, ClassVar

from tests.zoo.cage import caught_by

from streamfactory.conformance.specimens.durable import (
    DurableCommitter,
    DurableProducerFactory,
)
from streamfactory.conformance.specimens.frames import Topic, to_ipc
from streamfactory.spi import WriterFenced

if TYPE_CHECKING:
    from streamfactory.spi import LastCommit, StreamCommitter


class MarksFirst(Topic):
    """Writes the epoch's mark and its rows as two frames."""

    def commit(
        self, head: dict[str, Any], body: bytes, instance: str
    ) -> LastCommit | None:
        mark = head | {"lanes": []}
        held = super().commit(mark, to_ipc(self.schema), instance)
        if held is None:
            self.append({"lanes": head["lanes"]}, body)
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
class MarksBeforeItPlaces(DurableProducerFactory):
    """The epoch is remembered before its rows are placed, in two steps."""

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return _MarksFirst(self.config, writer_id)


@caught_by("processes_that_commit_at_once_write_each_epoch_once")
class LocksWithinItsProcess(DurableProducerFactory):
    """Commits exclude one another in one process, and not between processes."""

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return _LocksItsProcess(self.config, writer_id)
