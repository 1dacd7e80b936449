"""Backends that write wrongly, each in one way."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any

from tests.zoo.cage import ZooProducers, caught_by

from streamfactory.arrowlog import Staged
from streamfactory.arrowlog.writing import LogCommitter, LogWriter
from streamfactory.spi import LastCommit, Summary


@caught_by("an_aborted_attempt_leaves_nothing")
class AbortsByCommitting(LogWriter):
    """What was aborted is written all the same."""

    def abort(self) -> None:
        sealed = self._stage.seal()
        self._log.commit(None, 0, [sealed], summary=Summary())


@caught_by("nothing_is_visible_before_the_decision")
class CannotWaitForTheDecision(LogWriter):
    """A task's rows are visible when the task commits."""

    def commit(self) -> Any:
        sealed = self._stage.seal()
        self._log.commit(None, 0, [sealed], summary=Summary())
        empty = self._log.stage(uuid.uuid4().hex).seal()
        return {"attempt": empty.attempt, "files": []}


@caught_by("an_epoch_that_comes_again_has_no_effect")
class RemembersNoEpoch(LogCommitter):
    """Every commit is another writer's."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        own, self._writer_id = self._writer_id, uuid.uuid4().hex
        try:
            return super().commit(epoch, messages, source_position)
        finally:
            self._writer_id = own


@caught_by("other_content_is_noticed_on_request")
class KeepsTheNumberOfRowsOnly(LogCommitter):
    """Of what the tasks summed up only the number of rows is stored."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        counted = [replace(m, summary=Summary(m.summary.rows)) for m in messages]
        return super().commit(epoch, counted, source_position)


@caught_by("the_last_epoch_and_its_position_are_remembered")
class ForgetsThePosition(LogCommitter):
    """The source's position is not stored with the commit."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        return super().commit(epoch, messages, None)


@caught_by("the_last_epoch_and_its_position_are_remembered")
class KnowsNothingOfTheLast(LogCommitter):
    """`last` answers None, whatever was committed."""

    def last(self) -> Any:
        return None


@caught_by("a_later_instance_fences_an_earlier_one")
class FencesNobody(LogCommitter):
    """All instances of a writer are one: none can be fenced."""

    def __init__(self, factory: Any, writer_id: Any) -> None:
        super().__init__(factory, writer_id)
        self._instance = "the only one"


@caught_by("a_later_instance_fences_an_earlier_one")
class TakesTheWriterBack(LogCommitter):
    """An instance that was fenced claims the writer again when it asks again."""

    def last(self) -> Any:
        self._claimed = False
        return super().last()


@caught_by("the_last_instance_to_begin_is_the_writer")
class GoesByTheHourOfBirth(LogCommitter):
    """An instance that was made before the one that writes can never begin."""

    def __init__(self, factory: Any, writer_id: Any) -> None:
        super().__init__(factory, writer_id)
        self._born = time.monotonic_ns()

    def last(self) -> Any:
        log, writer = self._factory.log(), str(self._writer_id)
        youngest = _YOUNGEST.setdefault((log.incarnation, writer), self._born)
        if self._born >= youngest:
            _YOUNGEST[log.incarnation, writer] = self._born
            return super().last()
        self._claimed = True
        return log.last(writer)


_YOUNGEST: dict[tuple[str, str], int] = {}


@caught_by("looking_from_outside_fences_nobody")
class ClaimsWhenItIsMade(LogCommitter):
    """Making a committer fences the one that writes."""

    def __init__(self, factory: Any, writer_id: Any) -> None:
        super().__init__(factory, writer_id)
        self.last()


@caught_by("looking_from_outside_fences_nobody")
class ClaimsWhenItIsLookedAt(ZooProducers):
    """A task that looks for the last epoch fences the committer."""

    def fetch_last_commit(self, writer_id: str) -> Any:
        return self.COMMITTER(self, writer_id).last()


@caught_by("writers_do_not_share_epochs")
class TakesAllWritersForOne(ZooProducers):
    """Epochs are remembered without their writer."""

    def create_committer(self, writer_id: str | None) -> Any:
        name = "sink" if writer_id in ("one", "other") else writer_id
        return LogCommitter(self, name)

    def fetch_last_commit(self, writer_id: str) -> Any:
        name = "sink" if writer_id in ("one", "other") else writer_id
        return super().fetch_last_commit(name)


@caught_by("abort_tolerates_missing_messages_and_repetition")
class AbortsOnce(LogCommitter):
    """A second abort is an error."""

    def __init__(self, factory: Any, writer_id: Any) -> None:
        super().__init__(factory, writer_id)
        self._aborted = False

    def abort(self, epoch: int, messages: Any) -> None:
        if self._aborted:
            msg = "aborted already"
            raise RuntimeError(msg)
        self._aborted = True
        super().abort(epoch, messages)


@caught_by("an_empty_epoch_commits")
class WantsRows(LogCommitter):
    """An epoch without rows is an error."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        if len(messages) == 2 and not any(m.summary.rows for m in messages):
            msg = "nothing to commit"
            raise ValueError(msg)
        return super().commit(epoch, messages, source_position)


@caught_by("nothing_is_visible_before_the_decision")
class CommitsHalf(LogCommitter):
    """Of several tasks one is forgotten."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        kept = messages[:-1] if len(messages) == 2 and epoch == 0 else messages
        if any(m.summary.rows == 3 for m in messages):
            messages = kept
        return super().commit(epoch, messages, source_position)


@caught_by("a_driver_that_was_replaced_changes_nothing")
class SaysThatItCommitted(LogCommitter):
    """A repeat is appended once more, by another way."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        last = self.last()
        if last is None or epoch > last.epoch:
            return super().commit(epoch, messages, source_position)
        staged = [Staged(m.payload["attempt"]) for m in messages]
        self._factory.log().commit(None, 0, staged, summary=Summary())
        return None


@caught_by("rows_go_to_the_partition_they_name")
class PutsAllIntoTheFirst(LogWriter):
    """Every row goes to partition 0."""

    def write(self, outgoing: Any) -> None:
        super().write(replace(outgoing, partition=0))


@caught_by("an_epoch_without_predecessor_is_refused")
class InventsAPredecessor(LogCommitter):
    """A writer that nobody remembers is said to have been here before."""

    def last(self) -> Any:
        return super().last() or LastCommit(-1)
