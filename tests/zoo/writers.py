"""Backends that write wrongly, each in one way."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from tests.zoo.cage import ZooProducers, caught_by

from streamfactory.arrowlog import Staged
from streamfactory.backends.memory import store
from streamfactory.backends.memory.writing import MemoryCommitter, MemoryWriter
from streamfactory.spi import LastCommit, Summary


@caught_by("an_aborted_attempt_leaves_nothing")
class AbortsByCommitting(MemoryWriter):
    """What was aborted is written all the same."""

    def __init__(self, log: Any, context: Any) -> None:
        super().__init__(log, context)
        self._log = log

    def abort(self) -> None:
        sealed = self._stage.seal()
        self._log.commit(None, 0, [sealed], summary=Summary())


@caught_by("nothing_is_visible_before_the_decision")
class CannotWaitForTheDecision(MemoryWriter):
    """A task's rows are visible when the task commits."""

    def __init__(self, log: Any, context: Any) -> None:
        super().__init__(log, context)
        self._log = log

    def commit(self) -> Any:
        sealed = self._stage.seal()
        self._log.commit(None, 0, [sealed], summary=Summary())
        empty = self._log.stage(uuid.uuid4().hex).seal()
        return {"attempt": empty.attempt, "rows": {}}


@caught_by("an_epoch_that_comes_again_has_no_effect")
class RemembersNoEpoch(ZooProducers):
    """Every committer begins with an empty memory."""

    def create_committer(self, writer_id: str | None) -> Any:
        made = MemoryCommitter(writer_id, self.config)
        original = made.commit

        def commit(epoch: int, messages: Any, position: Any = None) -> Any:
            made._writer_id = f"{writer_id}-{uuid.uuid4().hex}"
            try:
                return original(epoch, messages, position)
            finally:
                made._writer_id = writer_id

        made.commit = commit  # type: ignore[method-assign, assignment]  # the defect
        return made


@caught_by("the_last_epoch_and_its_position_are_remembered")
class ForgetsThePosition(MemoryCommitter):
    """The source's position is not stored with the commit."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        return super().commit(epoch, messages, None)


@caught_by("the_last_epoch_and_its_position_are_remembered")
class KnowsNothingOfTheLast(MemoryCommitter):
    """`last` answers None, whatever was committed."""

    def last(self) -> Any:
        return None


@caught_by("writers_do_not_share_epochs")
class TakesAllWritersForOne(ZooProducers):
    """Epochs are remembered without their writer."""

    def create_committer(self, writer_id: str | None) -> Any:
        name = "sink" if writer_id in ("one", "other") else writer_id
        return MemoryCommitter(name, self.config)

    def fetch_last_commit(self, writer_id: str) -> Any:
        name = "sink" if writer_id in ("one", "other") else writer_id
        return super().fetch_last_commit(name)


@caught_by("abort_tolerates_missing_messages_and_repetition")
class AbortsOnce(MemoryCommitter):
    """A second abort is an error."""

    def __init__(self, writer_id: Any, config: Any) -> None:
        super().__init__(writer_id, config)
        self._aborted = False

    def abort(self, epoch: int, messages: Any) -> None:
        if self._aborted:
            msg = "aborted already"
            raise RuntimeError(msg)
        self._aborted = True
        super().abort(epoch, messages)


@caught_by("an_empty_epoch_commits")
class WantsRows(MemoryCommitter):
    """An epoch without rows is an error."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        if len(messages) == 2 and not any(m.payload["rows"] for m in messages):
            msg = "nothing to commit"
            raise ValueError(msg)
        return super().commit(epoch, messages, source_position)


@caught_by("nothing_is_visible_before_the_decision")
class CommitsHalf(MemoryCommitter):
    """Of several tasks one is forgotten."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        kept = messages[:-1] if len(messages) == 2 and epoch == 0 else messages
        if any(sum(m.payload["rows"].values()) == 3 for m in messages):
            messages = kept
        return super().commit(epoch, messages, source_position)


@caught_by("a_driver_that_was_replaced_changes_nothing")
class SaysThatItCommitted(MemoryCommitter):
    """A repeat is appended once more, by another way."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        held = super().commit(epoch, messages, source_position)
        if held is not None and messages:
            log = store(self._store).open(self._topic)
            for message in messages:
                staged = Staged(message.payload["attempt"], message.payload["rows"])
                log.commit(None, 0, [replace(staged)], summary=Summary())
        return None


@caught_by("rows_go_to_the_partition_they_name")
class PutsAllIntoTheFirst(MemoryWriter):
    """Every row goes to partition 0."""

    def write(self, outgoing: Any) -> None:
        super().write(replace(outgoing, partition=0))


@caught_by("an_epoch_without_predecessor_is_refused")
class InventsAPredecessor(MemoryCommitter):
    """A writer that nobody remembers is said to have been here before."""

    def last(self) -> Any:
        return super().last() or LastCommit(-1)
