"""The final `Committer`: decides epochs, each once (rules W2 to W7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

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
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.writing.summary import difference, incomparable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.wiring.writing.producer import Producer


@final
class Committer:
    """Decides the epochs of one writer. One thread at a time."""

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
        """The last epoch, -1 where there is none; None until the writer is claimed."""
        self.mismatches = 0
        """Epochs that were repeated with other rows: `difference`."""

    def last(self) -> LastCommit | None:
        """What this writer committed last; None where nothing is remembered.

        Claims the writer: no earlier instance of it can commit any more.
        """
        self._check_open()
        last = self._producer.ask("ask for the last epoch", self._author.last)
        self._known = -1 if last is None else last.epoch
        return last

    def precedes(self, epoch: int) -> bool:
        """Whether this committer knows, without a call, that an epoch is not committed.

        It has claimed the writer. Where another instance has committed the epoch since,
        the commit has no effect all the same.
        """
        return self._known is not None and self._known < epoch

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
            epoch: At least the last one; the same again is a no-op (rule W3).
            messages: One for each task that wrote.
            source_position: Stored with the commit.
            replace_all: The epoch replaces everything before it, in one step.

        Returns:
            True where this call made the commit, False where it was there.

        Raises:
            EpochInThePast: misuse.
            EpochMarkerLost: data_loss; nobody remembers the epoch before (rule W7).
            EpochMismatch: misuse; another number of rows or other content, under
                ``epoch.mismatch=fail``.
            MisuseError: misuse; a message is missing, came twice, or is of another
                epoch or configuration.
        """
        self._check_open()
        whole = self._checked(epoch, messages)
        summary = sum((m.summary for m in whole), Summary())
        drained = any(message.drained for message in whole)
        if drained or not self._sure:
            self._meet_last(epoch, drained=drained)
        staged = [message for message in whole if not message.drained]
        decide = self._author.replace if replace_all else self._author.commit
        # After a lost verdict nothing is known of the epoch before, as at the start.
        self._sure = False
        known, self._known = self._known, None
        held = self._producer.call(lambda: decide(epoch, staged, source_position))
        self._sure = True
        if known is not None:
            self._known = epoch if held is None else held.epoch
        if held is None:
            return True
        self._compare(epoch, held, summary)
        return False

    def abort(self, epoch: int, messages: Sequence[CommitMessage | None]) -> None:
        """Forget what was staged; missing messages are fine, and so is twice (W4)."""
        self._check_open()
        whole = [m for m in messages if m is not None and not m.drained]
        self._producer.call(lambda: self._author.abort(epoch, whole))

    def close(self) -> None:
        """Close; twice is fine."""
        if not self._closed:
            self._closed = True
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
                raise self._refused(epoch, f"a message is of {whose}")
            if context.task in checked:
                raise self._refused(epoch, f"task {context.task} sent two messages")
            if message.config_digest != digest:
                raise self._refused(epoch, "a task wrote under another configuration")
            checked[context.task] = message
        return list(checked.values())

    def _refused(self, epoch: int, what: str) -> MisuseError:
        msg = f"epoch {epoch}: {what}"
        remedy = "abort the epoch, and write it again"
        return MisuseError(msg, stream=self._producer.config.name, remedy=remedy)

    def _meet_last(self, epoch: int, *, drained: bool) -> None:
        if self._writer_id is None or not self._producer.claims.idempotent:
            return
        last = self.last()
        if drained and (last is None or last.epoch < epoch):
            # A task skipped what it took for done: to commit now would lose its rows.
            msg = f"a task saw epoch {epoch} committed, but the sink no longer has it"
            remedy = "abort the epoch, and write it again"
            raise EpochMarkerLost(msg, stream=self._producer.config.name, remedy=remedy)
        streaming = self._kind is WriteKind.STREAMING
        adopted = self._producer.config.get("epoch.adopt") == epoch
        if last is None and epoch > 0 and streaming and not adopted:
            msg = f"epoch {epoch} of writer {self._writer_id!r} has no predecessor here"
            remedy = (
                "where the topic was deleted, or `path` and its like lead elsewhere "
                "than before, put that right; to take the epoch for new, name it once "
                "with `epoch.adopt`"
            )
            raise EpochMarkerLost(msg, stream=self._producer.config.name, remedy=remedy)

    def _compare(self, epoch: int, held: LastCommit, summary: Summary) -> None:
        name = self._producer.config.name
        if held.epoch > epoch:
            msg = f"epoch {epoch} is older than the last one, {held.epoch}"
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
        self.mismatches += 1
        msg = f"epoch {epoch} was repeated with {what}; the first commit is kept"
        if self._producer.config["epoch.mismatch"] == "fail":
            raise EpochMismatch(msg, stream=name)
        log.warning("stream %r: %s", name, msg)

    def _check_open(self) -> None:
        if self._closed:
            msg = "the committer is closed"
            raise ClosedError(msg, stream=self._producer.config.name)
