"""Backends whose commit is right alone, and wrong in parallel with others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.zoo.registry import ZooProducers, caught_by

from streamfactory.arrowlog import Epoch, Log, Staged
from streamfactory.arrowlog.writing import LogCommitter
from streamfactory.spi import LastCommit, Summary, WriterFenced

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import CommitMessage, Position


class Stepwise(LogCommitter):
    """Checks, appends rows and stores the epoch in separate steps."""

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        if self._writer_id is None:
            return super().commit(epoch, messages, source_position)
        if not self._claimed:
            self.last()
        log = self._factory.log()
        assert isinstance(log, Log)
        if log.owner(self._writer_id) != self._instance:
            msg = f"epoch {epoch}: another instance has claimed the writer"
            raise WriterFenced(msg)
        held = log.last(self._writer_id)
        if held is not None and epoch <= held.epoch:
            return held
        self.place(log, [_staged(message) for message in messages])
        summary = sum((message.summary for message in messages), Summary())
        return self.mark(log, epoch, summary, source_position)

    def place(self, log: Log, attempts: list[Staged]) -> None:
        """Make the rows visible."""
        log.commit(Epoch(None, 0, attempts, Summary()))

    def mark(
        self, log: Log, epoch: int, summary: Summary, position: Position | None
    ) -> LastCommit | None:
        """Store the epoch."""
        return log.commit(
            Epoch(
                str(self._writer_id),
                epoch,
                [],
                summary,
                instance=self._instance,
                position=position,
            )
        ).held


@caught_by("a_reader_during_a_commit_sees_whole_epochs")
class PublishesTaskAfterTask(Stepwise):
    """Rows of one task are readable before those of the next one are written."""

    def place(self, log: Log, attempts: list[Staged]) -> None:
        for attempt in attempts:
            super().place(log, [attempt])


@caught_by("of_two_instances_that_commit_at_once_one_writes")
class AppendsRowsUnconditionally(Stepwise):
    """The instance is checked before the rows are appended, not together with them."""


class WritesStateBack(LogCommitter):
    """Keeps the state of all writers in one dictionary."""

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        log = self._factory.log()
        state = dict(_STATE.get(log.incarnation, {}))
        held = super().commit(epoch, messages, source_position)
        if held is None and self._writer_id is not None:
            state[self._writer_id] = log.last(self._writer_id)
            _STATE[log.incarnation] = state
        return held


_STATE: dict[str, dict[str, LastCommit | None]] = {}


@caught_by("two_writers_that_commit_at_once_lose_nothing")
class OverwritesTheStateOfAllWriters(ZooProducers):
    """The state of all writers is read, changed and replaced without a condition."""

    COMMITTER = WritesStateBack

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        return _STATE.get(self.log().incarnation, {}).get(writer_id)


class Changed(LogCommitter):
    """Changes what it commits, or what it returns."""

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        changed = self.changed_messages(messages)
        return self.changed_result(super().commit(epoch, changed, source_position))

    def changed_messages(
        self, messages: Sequence[CommitMessage]
    ) -> Sequence[CommitMessage]:
        """Change what is committed."""
        return messages

    def changed_result(self, held: LastCommit | None) -> LastCommit | None:
        """Change what is returned."""
        return held


@caught_by("the_summary_of_an_epoch_is_that_of_all_tasks")
class StoresTheSummaryOfOneTask(Changed):
    """The summary of only one of several tasks is stored."""

    def changed_messages(
        self, messages: Sequence[CommitMessage]
    ) -> Sequence[CommitMessage]:
        return [
            message if not index else replace(message, summary=Summary())
            for index, message in enumerate(messages)
        ]


@caught_by("each_of_five_epochs_is_remembered_whole")
class StoresThePreviousSummary(Changed):
    """A committer stores the summary of its previous epoch with each epoch."""

    _previous: Summary | None = None

    def changed_messages(
        self, messages: Sequence[CommitMessage]
    ) -> Sequence[CommitMessage]:
        own = sum((message.summary for message in messages), Summary())
        stored, self._previous = self._previous or own, own
        return [
            replace(message, summary=Summary() if index else stored)
            for index, message in enumerate(messages)
        ]


@caught_by("different_content_is_detected_on_request")
class StoresTheNumberOfRowsOnly(Changed):
    """Of a summary only the number of rows is stored."""

    def changed_messages(
        self, messages: Sequence[CommitMessage]
    ) -> Sequence[CommitMessage]:
        return [replace(m, summary=Summary(m.summary.rows)) for m in messages]


@caught_by("commits_move_the_metrics_by_what_was_committed")
class ReturnsASmallerSummary(Changed):
    """A repeated commit returns a summary with fewer rows."""

    def changed_result(self, held: LastCommit | None) -> LastCommit | None:
        if held is None or held.summary is None:
            return held
        return replace(held, summary=Summary(held.summary.rows - 1))


def _staged(message: CommitMessage) -> Staged:
    return Staged(message.payload["attempt"], tuple(message.payload["files"]))
