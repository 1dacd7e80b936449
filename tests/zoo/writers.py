"""Backends that write wrongly, each in one way."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import Any

from tests.zoo.registry import ZooProducers, caught_by

from streamfactory.arrowlog import Epoch, Staged
from streamfactory.arrowlog.writing import LogCommitter, LogWriter
from streamfactory.spi import LastCommit, Summary, TopicNotFound, WriterFenced


@caught_by("an_aborted_attempt_leaves_nothing")
class CommitsOnAbort(LogWriter):
    """The rows of an aborted attempt are written."""

    def abort(self) -> None:
        sealed = self._stage.seal()
        self._log.commit(Epoch(None, 0, [sealed], Summary()))


@caught_by("nothing_is_visible_before_the_decision")
class PublishesBeforeTheDecision(LogWriter):
    """A task's rows are visible when the task commits."""

    def commit(self) -> Any:
        sealed = self._stage.seal()
        self._log.commit(Epoch(None, 0, [sealed], Summary()))
        empty = self._log.stage(uuid.uuid4().hex).seal()
        return {"attempt": empty.attempt, "files": []}


@caught_by("a_commit_into_a_deleted_topic_is_no_success")
class CommitsIntoNothing(LogCommitter):
    """A commit into a topic that was deleted meanwhile counts as successful."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        try:
            return super().commit(epoch, messages, source_position)
        except TopicNotFound:
            return None


@caught_by("writers_find_no_unknown_topic")
class ClaimsUnknownTopics(LogCommitter):
    """A claim of a topic that is not there counts as made, and does not hold."""

    _is_lost = False

    def last(self) -> Any:
        try:
            self._factory.log()
        except TopicNotFound:
            self._is_lost = True
        return super().last()

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        if self._is_lost:
            msg = "the writer was claimed by a later instance"
            raise WriterFenced(msg)
        return super().commit(epoch, messages, source_position)


@caught_by("a_repeated_epoch_has_no_effect")
class StoresNoEpoch(LogCommitter):
    """Every commit counts as that of a new writer."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        own, self._writer_id = self._writer_id, uuid.uuid4().hex
        try:
            return super().commit(epoch, messages, source_position)
        finally:
            self._writer_id = own


@caught_by("the_last_epoch_and_its_position_are_remembered")
class OmitsThePosition(LogCommitter):
    """The source's position is not stored with the commit."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        return super().commit(epoch, messages, None)


@caught_by("the_last_epoch_and_its_position_are_remembered")
class ReturnsNoLastCommit(LogCommitter):
    """`last` always returns None."""

    def last(self) -> Any:
        return None


@caught_by("a_later_instance_fences_an_earlier_one")
class FencesNoInstance(LogCommitter):
    """All instances of a writer are treated as one, so none is fenced."""

    def __init__(self, factory: Any, writer_id: Any) -> None:
        super().__init__(factory, writer_id)
        self._instance = "the only one"


@caught_by("a_later_instance_fences_an_earlier_one")
class AllowsFencedInstances(LogCommitter):
    """A fenced instance claims the writer again by its next call."""

    def last(self) -> Any:
        self._claimed = False
        return super().last()


@caught_by("the_last_instance_to_claim_is_the_writer")
class OrdersInstancesByCreation(LogCommitter):
    """An instance that was created before the current one never claims the writer."""

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


@caught_by("fetching_the_last_commit_fences_no_instance")
class ClaimsOnCreation(LogCommitter):
    """Creating a committer fences the current instance."""

    def __init__(self, factory: Any, writer_id: Any) -> None:
        super().__init__(factory, writer_id)
        self.last()


@caught_by("fetching_the_last_commit_fences_no_instance")
class ClaimsOnFetchLastCommit(ZooProducers):
    """A task that fetches the last commit fences the committer."""

    def fetch_last_commit(self, writer_id: str) -> Any:
        return self.COMMITTER(self, writer_id).last()


@caught_by("writers_do_not_share_epochs")
class IgnoresTheWriterId(ZooProducers):
    """Epochs are stored without their writer."""

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
class RefusesEmptyEpochs(LogCommitter):
    """An epoch without rows is an error."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        if len(messages) == 2 and not any(m.summary.rows for m in messages):
            msg = "nothing to commit"
            raise ValueError(msg)
        return super().commit(epoch, messages, source_position)


@caught_by("nothing_is_visible_before_the_decision")
class CommitsSomeTasks(LogCommitter):
    """The rows of one of several tasks are dropped."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        kept = messages[:-1] if len(messages) == 2 and epoch == 0 else messages
        if any(m.summary.rows == 3 for m in messages):
            messages = kept
        return super().commit(epoch, messages, source_position)


@caught_by("a_driver_that_was_replaced_changes_nothing")
class AppendsRepeatedEpochs(LogCommitter):
    """The rows of a repeated epoch are appended again."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        last = self.last()
        if last is None or epoch > last.epoch:
            return super().commit(epoch, messages, source_position)
        staged = [Staged(m.payload["attempt"]) for m in messages]
        self._factory.log().commit(Epoch(None, 0, staged, Summary()))
        return None


@caught_by("rows_go_to_the_partition_they_name")
class IgnoresThePartition(LogWriter):
    """Every row is written to partition 0."""

    def write(self, outgoing: Any) -> None:
        super().write(replace(outgoing, partition=0))


@caught_by("an_epoch_without_predecessor_is_refused")
class InventsALastCommit(LogCommitter):
    """A last commit is returned for unknown writers."""

    def last(self) -> Any:
        return super().last() or LastCommit(-1)


@caught_by("writes_of_any_size_are_whole")
class DropsRowsBeyondAPage(LogWriter):
    """Of each write only the first 512 rows are written."""

    def write(self, outgoing: Any) -> None:
        super().write(replace(outgoing, rows=outgoing.rows.slice(0, 512)))
