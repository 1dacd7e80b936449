"""The final `Committer`: commits epochs, each once (rules W2 to W7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import (
    ClosedError,
    CommitMessage,
    ContractBroken,
    EpochInThePast,
    EpochMarkerLost,
    EpochMismatch,
    LastCommit,
    MisuseError,
    Position,
    StreamCommitter,
    Summary,
    WriteKind,
)
from streamfactory.spi.arguments import COUNT, FLAG, POSITION, Kind, takes
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.writing.counters import CommitCounters, SinkTally, Timing
from streamfactory.wiring.writing.summary import difference, incomparable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.wiring.writing.producer import Producer


def _messages(value: Any) -> list[CommitMessage | None]:
    messages = list(value)
    if not all(isinstance(one, CommitMessage | None) for one in messages):
        raise TypeError
    return messages


MESSAGES: Final = Kind("pass a list of what Writer.commit returned", _messages)


@final
class Committer(Closing):
    """Commits the epochs of one writer; a context manager. Not thread-safe."""

    def __init__(
        self,
        producer: Producer,
        author: StreamCommitter,
        writer_id: str | None,
        kind: WriteKind,
    ) -> None:
        self._producer = producer
        self._author = author
        self._writer_id = writer_id
        self._kind = kind
        self._closed = False
        self._sure = False
        self._known: int | None = None
        """The last epoch, -1 if there is none; None until the writer is claimed."""
        self.counters = CommitCounters()
        self._timing = Timing(self.counters)
        tally = SinkTally(producer.config.name, self.counters)
        self._end_metrics = registry.track(self, tally)

    def last(self) -> LastCommit | None:
        """Return the last commit of this writer; None if none is remembered.

        Claims the writer: earlier instances can no longer commit.
        """
        self._check_open()
        last = self._producer.ask("fetch the last epoch", self._author.last)
        self._known = -1 if last is None else last.epoch
        return last

    def last_epoch(self) -> int | None:
        """Return the last epoch of this writer; None if none is remembered.

        Claims the writer on first use, as `last` does.
        """
        known = self._last_known()
        return None if known < 0 else known

    def precedes(self, epoch: int) -> bool:
        """Whether an epoch is known, without a call, not to be committed.

        The committer has claimed the writer. If another instance has committed the
        epoch since, a commit has no effect.
        """
        return self._known is not None and self._known < epoch

    @takes(epoch=COUNT, messages=MESSAGES, source_position=POSITION, replace_all=FLAG)
    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage | None],
        source_position: Position | None = None,
        *,
        replace_all: bool = False,
    ) -> bool:
        """Make an epoch visible.

        Args:
            epoch: At least the last one; repeating that has no effect (rule W3).
            messages: One for each task that wrote.
            source_position: Stored with the commit.
            replace_all: Whether the epoch atomically replaces all earlier rows.

        Returns:
            True if this call made the commit, False if it was committed before.

        Raises:
            EpochInThePast: misuse.
            EpochMarkerLost: data_loss; the previous epoch was forgotten (rule W7).
            EpochMismatch: misuse; another number of rows or other content, under
                ``epoch.mismatch=fail``.
            MisuseError: misuse; a message is missing, repeated, or of another epoch or
                configuration.
        """
        self._check_open()
        with self._timing:
            whole = self._checked(epoch, messages)
            drained = any(message.drained for message in whole)
            if drained or not self._sure:
                self._meet_last(epoch, drained=drained)
            staged = [message for message in whole if not message.drained]
            decide = self._author.replace if replace_all else self._author.commit
            # After a lost reply the last epoch is unknown, as at the start.
            self._sure = False
            known, self._known = self._known, None
            held = self._producer.call(decide, epoch, staged, source_position)
            self._sure = True
            if known is not None:
                self._known = epoch if held is None else held.epoch
            if held is not None:
                summary = sum((message.summary for message in whole), Summary())
                self._compare(epoch, held, summary)
        if held is None:
            self.counters.commits += 1
        else:
            self.counters.repeated += 1
        return held is None

    @takes(epoch=COUNT, messages=MESSAGES)
    def abort(self, epoch: int, messages: Sequence[CommitMessage | None]) -> None:
        """Remove staged rows; messages may be missing, and calls repeated (rule W4)."""
        self._check_open()
        whole = [m for m in messages if m is not None and not m.drained]
        self._producer.call(self._author.abort, epoch, whole)
        self.counters.aborts += 1

    def close(self) -> None:
        """Close; may be called twice."""
        if not self._closed:
            self._closed = True
            self._end_metrics()
            self._producer.call(self._author.close)

    def _checked(
        self, epoch: int, messages: Sequence[CommitMessage | None]
    ) -> list[CommitMessage]:
        digest = self._producer.config_digest
        checked: dict[int, CommitMessage] = {}
        for message in messages:
            if message is None:
                raise self._refused(epoch, "the message of a task is missing")
            context = message.context
            if (context.writer_id, context.epoch) != (self._writer_id, epoch):
                whose = f"epoch {context.epoch} of writer {context.writer_id!r}"
                raise self._refused(epoch, f"a message belongs to {whose}")
            if context.task in checked:
                raise self._refused(epoch, f"task {context.task} sent two messages")
            if message.config_digest != digest:
                raise self._refused(epoch, "a task used another configuration")
            checked[context.task] = message
        return list(checked.values())

    def _refused(self, epoch: int, what: str) -> MisuseError:
        msg = f"epoch {epoch}: {what}"
        remedy = "abort the epoch and write it again"
        return MisuseError(msg, stream=self._producer.config.name, remedy=remedy)

    def _meet_last(self, epoch: int, *, drained: bool) -> None:
        if self._writer_id is None or not self._producer.claims.idempotent:
            return
        known = self._known
        if drained or known is None or known < 0:
            # What is known may be older than what the task saw, or than an epoch that
            # another instance has committed since.
            last = self.last()
            known = None if last is None else last.epoch
        if drained and (known is None or known < epoch):
            # A task skipped the epoch as committed: committing now would lose its rows.
            msg = f"a task saw epoch {epoch} committed, but the sink no longer has it"
            remedy = "abort the epoch and write it again"
            raise EpochMarkerLost(msg, stream=self._producer.config.name, remedy=remedy)
        streaming = self._kind is WriteKind.STREAMING
        adopted = self._producer.config.get("epoch.adopt") == epoch
        if known is None and epoch > 0 and streaming and not adopted:
            msg = (
                f"the last epoch before {epoch} of writer {self._writer_id!r} "
                f"is unknown"
            )
            remedy = (
                "if the topic was deleted, or `path` or another option changed, "
                "correct it; to write the epoch as a new one, set it once "
                "with `epoch.adopt`"
            )
            raise EpochMarkerLost(msg, stream=self._producer.config.name, remedy=remedy)

    def _last_known(self) -> int:
        if self._known is None:
            self.last()
        assert self._known is not None
        return self._known

    def _compare(self, epoch: int, held: LastCommit, summary: Summary) -> None:
        name = self._producer.config.name
        if held.epoch > epoch:
            msg = f"epoch {epoch} is older than the last committed one, {held.epoch}"
            raise EpochInThePast(msg, stream=name)
        if held.epoch < epoch:
            msg = f"rule W3: epoch {epoch} was refused for the older one {held.epoch}"
            raise ContractBroken(msg, stream=name)
        if held.summary is None:
            return
        if incomparable(summary, held.summary):
            msg = "stream %r: epoch %d was repeated; its content could not be compared"
            msg += ", because it was committed without epoch.mismatch=fail"
            log.warning(msg, name, epoch)
        what = difference(summary, held.summary)
        if what is None:
            return
        self.counters.mismatches += 1
        msg = f"epoch {epoch} was repeated with {what}; the first commit is kept"
        if self._producer.config["epoch.mismatch"] == "fail":
            raise EpochMismatch(msg, stream=name)
        log.warning("stream %r: %s", name, msg)

    def _check_open(self) -> None:
        if self._closed:
            msg = "the committer is closed"
            raise ClosedError(msg, stream=self._producer.config.name)
