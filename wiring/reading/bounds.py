"""Whether a start can be had, and what to do when it cannot (rules R7, R8)."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, final

from streamfactory.spi import IncarnationChanged, Loss, OffsetOutOfRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import Fetched, Partition, PartitionInfo

log = logging.getLogger("streamfactory")


@final
class Bounds:
    """The bounds of one partition, the policy, and the losses so far.

    Args:
        stream: Named in errors.
        partition: Named in errors and loss records.
        policy: ``fail``, ``earliest`` or ``latest``.
        look_up: Asks the source, now.
        info: The partition as it was just seen: spares the first look-up.
        incarnation: What the caller's offsets count, where it knows.
    """

    def __init__(
        self,
        stream: str,
        partition: Partition,
        policy: str,
        *,
        look_up: Callable[[], PartitionInfo],
        info: PartitionInfo | None,
        incarnation: str | None,
    ) -> None:
        self._stream = stream
        self._partition = partition
        self._policy = policy
        self._look_up = look_up
        self._fresh = info
        self.incarnation = incarnation
        self.losses: list[Loss] = []
        """Those not told yet: the reader takes them with the next batch."""

    @property
    def begun_again(self) -> bool:
        """Whether it is known already that the offsets count something else."""
        return self._fresh is not None and self._differs(self._fresh.incarnation)

    def check(
        self, where: int, *, end: int | None = None, refused: bool = False
    ) -> int:
        """Where to go on.

        Args:
            where: What the caller wants, inclusive.
            end: What the caller does not want any more: a loss that it is told of does
                not reach beyond.
            refused: The source itself says that it has not got it.

        Raises:
            OffsetOutOfRange, IncarnationChanged: data_loss; under the policy ``fail``.
        """
        info, self._fresh = self._fresh, None
        if info is None or refused or _outside(where, info):
            info = self._look_up()
        if self._differs(info.incarnation):
            return self._begun_again(info, where)
        self.incarnation = self.incarnation or info.incarnation
        if where < info.earliest:
            loss = Loss(self._partition, where, info.earliest, "retention")
        elif info.latest is not None and where > info.latest:
            loss = Loss(self._partition, where, None, "truncated")
        elif refused:
            loss = Loss(self._partition, where, None, "refused by the source")
        else:
            return where
        stuck = refused and self._target(info) == where
        if self._policy == "fail" or stuck:
            have = f"{info.earliest} to {'?' if info.latest is None else info.latest}"
            msg = f"the stream has offsets {have}, not {where} ({loss.cause})"
            raise OffsetOutOfRange(
                msg,
                earliest=info.earliest,
                latest=info.latest,
                stream=self._stream,
                partition=self._partition,
                offset=where,
            )
        return self._go_on(info, loss, end)

    def check_gap(
        self, where: int, first: int, fetched: Fetched, *, end: int | None = None
    ) -> None:
        """A missing first offset is looked up once: a gap is fine, a loss is not.

        Args:
            where: What was asked for.
            first: Offset of the first row, or of the next message where there is none.
            fetched: The author's answer.
            end: As for `check`.

        Raises:
            OffsetOutOfRange: data_loss; under the policy ``fail``.
        """
        held_from = fetched.held_from
        if first <= where or (held_from is not None and held_from <= where):
            return
        earliest = self._look_up().earliest if held_from is None else held_from
        if earliest <= where:
            return
        until = min(first, earliest) if end is None else min(first, earliest, end)
        loss = Loss(self._partition, where, until, "retention")
        if self._policy == "fail":
            msg = f"offsets {where} to {loss.end} were taken away while reading"
            raise OffsetOutOfRange(
                msg,
                earliest=earliest,
                stream=self._stream,
                partition=self._partition,
                offset=where,
            )
        self.tell(loss)

    def meet(self, incarnation: str | None, where: int) -> int | None:
        """Take note of the incarnation that an answer named.

        Returns:
            None where it is the one expected; otherwise where to go on instead.

        Raises:
            IncarnationChanged: data_loss; under the policy ``fail``.
        """
        if not self._differs(incarnation):
            self.incarnation = self.incarnation or incarnation
            return None
        if self._policy == "fail":
            raise self._changed(incarnation, where)
        # What the answer says is newer than any metadata.
        info = replace(self._look_up(), incarnation=incarnation)
        return self._begun_again(info, where)

    def forget(self, incarnation: str | None) -> None:
        """Take back what a failed fetch found: the next one will find it again."""
        self.incarnation = incarnation or self.incarnation
        self.losses = []

    def verify(self, where: int) -> None:
        """Ask once more that the offsets still count the same.

        Raises:
            IncarnationChanged: data_loss, whatever the policy: rows of both lives may
                have been handed out.
        """
        found = self._look_up().incarnation
        if self._differs(found):
            raise self._changed(found, where)

    def tell(self, loss: Loss) -> None:
        """Record a loss."""
        self.losses.append(loss)
        log.warning(
            "stream %r, partition %s: lost %s to %s (%s)",
            self._stream,
            loss.partition,
            loss.start,
            "?" if loss.end is None else loss.end,
            loss.cause,
        )

    def _differs(self, incarnation: str | None) -> bool:
        return None not in (self.incarnation, incarnation) and (
            self.incarnation != incarnation
        )

    def _begun_again(self, info: PartitionInfo, where: int) -> int:
        if self._policy == "fail":
            raise self._changed(info.incarnation, where)
        self.incarnation = info.incarnation
        return self._go_on(info, Loss(self._partition, where, None, "incarnation"))

    def _target(self, info: PartitionInfo) -> int:
        wants_latest = self._policy == "latest" and info.latest is not None
        return info.latest if wants_latest else info.earliest  # type: ignore[return-value]

    def _go_on(self, info: PartitionInfo, loss: Loss, end: int | None = None) -> int:
        target = self._target(info)
        if loss.cause == "retention":
            loss = replace(loss, end=target if end is None else min(target, end))
        self.tell(loss)
        return target

    def _changed(self, found: str | None, where: int) -> IncarnationChanged:
        error = recreated(self._partition, self.incarnation, found, where)
        error.stream = self._stream
        return error


def recreated(
    partition: Partition, expected: str | None, found: str | None, offset: int
) -> IncarnationChanged:
    """The error for a topic whose offsets began again (rule R7)."""
    msg = f"topic {partition.topic!r} was recreated: expected id {expected!r}, "
    return IncarnationChanged(
        f"{msg}found {found!r}",
        expected=expected,
        found=found,
        partition=partition,
        offset=offset,
    )


def _outside(where: int, info: PartitionInfo) -> bool:
    return where < info.earliest or (info.latest is not None and where > info.latest)
