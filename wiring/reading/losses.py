"""The loss policy (rule R7): one for readers, groups, planned batches and backends."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from streamfactory.spi import (
    DataLossError,
    IncarnationChanged,
    Loss,
    OffsetOutOfRange,
    PartitionState,
    PartitionVanished,
)

if TYPE_CHECKING:
    from streamfactory.spi import Partition, PartitionInfo, StreamConfig

log = logging.getLogger("streamfactory")


def was_recreated(expected: str | None, found: str | None) -> bool:
    """Whether two incarnations are known to differ."""
    return None not in (expected, found) and expected != found


def recreated(
    partition: Partition, expected: str | None, found: str | None, offset: int | None
) -> IncarnationChanged:
    """The error for a topic whose offsets began again."""
    msg = f"topic {partition.topic!r} was recreated: expected id {expected!r}, "
    return IncarnationChanged(
        f"{msg}found {found!r}",
        expected=expected,
        found=found,
        partition=partition,
        offset=offset,
    )


def find_loss(
    info: PartitionInfo, offset: int, expected: str | None
) -> tuple[Loss, DataLossError] | None:
    """What is missing at an offset, and the error for it; None where nothing is.

    Args:
        info: The partition as it is now.
        offset: The next one to read; the latest itself is fine.
        expected: The incarnation that it belongs to; None where not known.
    """
    partition = info.partition
    if info.state is PartitionState.VANISHED:
        msg = "the partition was removed"
        error: DataLossError = PartitionVanished(
            msg, partition=partition, offset=offset
        )
        return Loss(partition, offset, None, "vanished"), error
    if was_recreated(expected, info.incarnation):
        error = recreated(partition, expected, info.incarnation, offset)
        return Loss(partition, offset, None, "incarnation"), error
    if offset < info.earliest:
        loss = Loss(partition, offset, info.earliest, "retention")
    elif info.latest is not None and offset > info.latest:
        loss = Loss(partition, offset, None, "truncated")
    else:
        return None
    return loss, _out_of_range(info, loss)


def _out_of_range(info: PartitionInfo, loss: Loss) -> OffsetOutOfRange:
    have = f"{info.earliest} to {'?' if info.latest is None else info.latest}"
    return OffsetOutOfRange(
        f"the stream has offsets {have}, not {loss.start} ({loss.cause})",
        earliest=info.earliest,
        latest=info.latest,
        partition=info.partition,
        offset=loss.start,
    )


@final
@dataclass(frozen=True, slots=True)
class LossPolicy:
    """Whether a loss is an error, or a record after which reading continues.

    Immutable, so any thread may use it.
    """

    stream: str
    """Named in errors."""
    word: str
    """``fail``, ``earliest`` or ``latest``."""

    @classmethod
    def of(cls, config: StreamConfig) -> LossPolicy:
        """As the option ``out.of.range`` says."""
        return cls(config.name, config["out.of.range"])

    @property
    def fails(self) -> bool:
        """Whether every loss is an error."""
        return self.word == "fail"

    def accept(self, loss: Loss, error: DataLossError) -> Loss:
        """Raise the error where the policy says so; otherwise log the loss.

        Raises:
            DataLossError: data_loss; the one given.
        """
        if self.fails:
            raise error.at(stream=self.stream, partition=loss.partition)
        log.warning(
            "stream %r, partition %s: lost %s to %s (%s)",
            self.stream,
            loss.partition,
            loss.start,
            "?" if loss.end is None else loss.end,
            loss.cause,
        )
        return loss

    def start(
        self,
        info: PartitionInfo,
        offset: int,
        expected: str | None,
        *,
        end: int | None = None,
        refusal: DataLossError | None = None,
    ) -> tuple[int, Loss | None]:
        """Where reading starts, and the loss that this means.

        Args:
            info: The partition as it is now.
            offset: The offset wanted.
            expected: The incarnation that it belongs to; None where not known.
            end: First offset not wanted: a loss is recorded up to it at the most.
            refusal: What the backend raised instead of messages at ``offset``.

        Raises:
            DataLossError: data_loss; the policy is ``fail``, or the backend refuses
                the offset at which reading would continue.
        """
        found = find_loss(info, offset, expected)
        resume = None if refusal is None else refusal.resume
        if refusal is not None and (
            found is None or not isinstance(refusal, OffsetOutOfRange)
        ):
            found = self._refused(info, offset, refusal)
        if found is None:
            return offset, None
        loss, error = found
        target = self._target(info) if resume is None else resume
        stuck = refusal is not None and target == offset
        if stuck and loss.cause != "incarnation":
            raise error.at(stream=self.stream, partition=info.partition)
        if loss.end is not None:
            loss = replace(loss, end=target if end is None else min(target, end))
        return target, self.accept(loss, error)

    def end(self, info: PartitionInfo, offset: int) -> int:
        """Where a batch ends: nothing waits for offsets that nobody has written.

        Raises:
            OffsetOutOfRange: data_loss; the end is beyond the latest, and the policy
                is ``fail``.
        """
        latest = info.latest
        if latest is None or offset <= latest:
            return offset
        msg = f"the batch is to end at {offset}, and the stream ends at {latest}"
        error = OffsetOutOfRange(
            msg,
            earliest=info.earliest,
            latest=latest,
            stream=self.stream,
            partition=info.partition,
            offset=offset,
        )
        if self.fails:
            raise error
        log.warning("%s: ends there", error)  # nothing is lost
        return latest

    def vanished(self, partition: Partition, offset: int, when: str) -> Loss:
        """The loss of a partition that was removed.

        Args:
            partition: Which.
            offset: The next one that would have been read.
            when: For the error: ``while it was read``.

        Raises:
            PartitionVanished: data_loss; the policy is ``fail``.
        """
        error = PartitionVanished(
            f"the partition was removed {when}", partition=partition, offset=offset
        )
        return self.accept(Loss(partition, offset, None, "vanished"), error)

    def _target(self, info: PartitionInfo) -> int:
        at_latest = self.word == "latest" and info.latest is not None
        return info.latest if at_latest else info.earliest  # type: ignore[return-value]

    def _refused(
        self, info: PartitionInfo, offset: int, refusal: DataLossError
    ) -> tuple[Loss, DataLossError]:
        """A loss that only the backend knows of."""
        if isinstance(refusal, OffsetOutOfRange):
            loss = Loss(info.partition, offset, refusal.resume, "refused by the source")
            return loss, _out_of_range(info, loss)
        changed = isinstance(refusal, IncarnationChanged) and refusal.resume is None
        cause = "incarnation" if changed else refusal.what
        return Loss(info.partition, offset, refusal.resume, cause), refusal
