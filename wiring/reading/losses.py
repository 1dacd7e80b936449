"""The loss policy (rule R7), used by readers, groups, planned batches and backends."""

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
    """Return the error for a recreated topic."""
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
    """Return the loss at an offset and its error; None if there is no loss.

    Args:
        info: The current state of the partition.
        offset: The next offset to read; it may be the latest.
        expected: Incarnation of the offset; None if unknown.
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
        f"offset {loss.start} is out of range: available are {have} ({loss.cause})",
        earliest=info.earliest,
        latest=info.latest,
        partition=info.partition,
        offset=loss.start,
    )


@final
@dataclass(frozen=True, slots=True)
class LossPolicy:
    """Decides whether a loss is an error, or a record after which reading continues.

    Immutable and thread-safe.
    """

    stream: str
    """Name of the stream, for errors."""
    word: str
    """``fail``, ``earliest`` or ``latest``."""

    @classmethod
    def of(cls, config: StreamConfig) -> LossPolicy:
        """Create the policy from the option ``out.of.range``."""
        return cls(config.name, config["out.of.range"])

    @property
    def fails(self) -> bool:
        """Whether every loss is an error."""
        return self.word == "fail"

    def accept(self, loss: Loss, error: DataLossError) -> Loss:
        """Raise the error if the policy is ``fail``; otherwise log the loss.

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
        """Return where reading starts, and the loss that this implies.

        Args:
            info: The current state of the partition.
            offset: The requested offset.
            expected: Incarnation of the offset; None if unknown.
            end: End of the range, exclusive: no loss is recorded beyond it.
            refusal: The error that the backend raised at ``offset``.

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

    def end(self, info: PartitionInfo, offset: int, expected: str | None = None) -> int:
        """Return the end of a batch: at most the latest offset.

        Args:
            info: The current state of the partition.
            offset: The requested end.
            expected: Incarnation of the end; None if unknown.

        Raises:
            IncarnationChanged: data_loss; the topic was recreated, and the policy is
                ``fail``.
            OffsetOutOfRange: data_loss; the end is beyond the latest, and the policy
                is ``fail``.
        """
        if self.fails and was_recreated(expected, info.incarnation):
            error = recreated(info.partition, expected, info.incarnation, offset)
            raise error.at(stream=self.stream)
        latest = info.latest
        if latest is None or offset <= latest:
            return offset
        msg = f"the batch ends at {offset}, beyond the latest offset {latest}"
        beyond = OffsetOutOfRange(
            msg,
            earliest=info.earliest,
            latest=latest,
            stream=self.stream,
            partition=info.partition,
            offset=offset,
        )
        if self.fails:
            raise beyond
        log.warning("%s: ends at latest", beyond)  # nothing is lost
        return latest

    def vanished(self, partition: Partition, offset: int, when: str) -> Loss:
        """Return the loss of a removed partition.

        Args:
            partition: The partition.
            offset: The next offset to read.
            when: When it was removed, for the error: ``while it was read``.

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
        """Handle a loss that the backend reported."""
        if isinstance(refusal, OffsetOutOfRange):
            loss = Loss(info.partition, offset, refusal.resume, "refused by the source")
            return loss, _out_of_range(info, loss)
        changed = isinstance(refusal, IncarnationChanged) and refusal.resume is None
        cause = "incarnation" if changed else refusal.what
        return Loss(info.partition, offset, refusal.resume, cause), refusal
