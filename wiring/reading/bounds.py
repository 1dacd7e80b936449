"""Checks that a start is within bounds, and where reading continues if not (R7, R8)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, final

from streamfactory.spi import ContractBroken, DataLossError, Loss, OffsetOutOfRange
from streamfactory.wiring.reading.losses import find_loss, recreated, was_recreated

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import Fetched, Partition, PartitionInfo
    from streamfactory.wiring.reading.losses import LossPolicy


@final
class Bounds:
    """The known bounds of one partition, and its losses.

    Args:
        partition: The partition, for errors and loss records.
        policy: The loss policy.
        look_up: Fetches the current bounds from the source.
        identify: Fetches the current incarnation from the source.
        info: Bounds that were just fetched: saves the first look-up.
        incarnation: Incarnation of the caller's offsets, if known.
    """

    def __init__(
        self,
        partition: Partition,
        policy: LossPolicy,
        *,
        look_up: Callable[[], PartitionInfo],
        identify: Callable[[], str | None],
        info: PartitionInfo | None = None,
        incarnation: str | None = None,
    ) -> None:
        self._partition = partition
        self._policy = policy
        self._look_up = look_up
        self._identify = identify
        self._carried = False
        self._fresh = info
        self.incarnation = incarnation
        self.losses: list[Loss] = []
        """Losses not reported yet: the next batch has them."""

    @property
    def begun_again(self) -> bool:
        """Whether the topic is known to be recreated, before any look-up."""
        return self._fresh is not None and was_recreated(
            self.incarnation, self._fresh.incarnation
        )

    @property
    def uncertain(self) -> bool:
        """Whether results do not carry the incarnation that the source has.

        Then it is fetched after them, before they are handed out (rule R13).
        """
        return self.incarnation is not None and not self._carried

    @property
    def unchanged(self) -> bool:
        """Whether the source still has the incarnation of the results; looks it up."""
        return not self.uncertain or self.incarnation == self._identify()

    def check(
        self,
        where: int,
        *,
        end: int | None = None,
        refusal: DataLossError | None = None,
    ) -> int:
        """Return the offset at which reading continues.

        Args:
            where: The requested offset, inclusive.
            end: End of the range, exclusive: no loss is recorded beyond it.
            refusal: The error that the backend raised at ``where``.

        Raises:
            DataLossError: data_loss; under the policy ``fail``.
        """
        info, self._fresh = self._fresh, None
        if info is None or refusal is not None or find_loss(info, where, None):
            info = self._look_up()
        return self._start(info, where, end, refusal)

    def check_gap(
        self, where: int, first: int, fetched: Fetched, *, end: int | None = None
    ) -> None:
        """Check whether a missing first offset is a gap or a loss, by one look-up.

        Args:
            where: The requested offset.
            first: Offset of the first row, or of the next message if there is none.
            fetched: The result of the consumer.
            end: See `check`.

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
        msg = f"offsets {where} to {until} were removed while reading"
        error = OffsetOutOfRange(msg, earliest=earliest, offset=where)
        loss = Loss(self._partition, where, until, "retention")
        self.losses.append(self._policy.accept(loss, error))

    def redirect(
        self, where: int, fetched: Fetched, *, fresh: bool = False
    ) -> int | None:
        """Return where to continue if the topic was recreated.

        Args:
            where: The requested offset.
            fetched: The result of the consumer.
            fresh: Whether it is the first result of a new consumer, which may have
                rows.

        Raises:
            DataLossError: data_loss; under the policy ``fail``.
            ContractBroken: plugin; a result with rows has a new incarnation.
        """
        found = fetched.incarnation
        self._carried = found is not None
        if was_recreated(self.incarnation, found):
            if self._policy.fails:  # without a look-up, which could fail itself
                error = recreated(self._partition, self.incarnation, found, where)
                raise error.at(stream=self._policy.stream)
            # The result is newer than any metadata.
            info = replace(self._look_up(), incarnation=found)
            where = self._start(info, where, None, None)
            if fetched.rows and not fresh:
                msg = "rule R7: a result with rows has a new incarnation"
                raise ContractBroken(msg)
            return where
        self.incarnation = self.incarnation or found
        if fetched.latest is not None and fetched.latest < where:
            checked = self.check(where)
            return None if checked == where else checked
        return None

    def forget(self, incarnation: str | None) -> None:
        """Discard the losses of a failed fetch: the next one will find them again."""
        self.incarnation = incarnation or self.incarnation
        self.losses = []

    def verify(self, where: int) -> None:
        """Verify by a look-up that the topic was not recreated.

        Raises:
            IncarnationChanged: data_loss, whatever the policy: rows of both topics may
                have been returned.
        """
        found = self._identify()
        if was_recreated(self.incarnation, found):
            error = recreated(self._partition, self.incarnation, found, where)
            raise error.at(stream=self._policy.stream)

    def _start(
        self,
        info: PartitionInfo,
        where: int,
        end: int | None,
        refusal: DataLossError | None,
    ) -> int:
        where, loss = self._policy.start(
            info, where, self.incarnation, end=end, refusal=refusal
        )
        if loss is not None:
            self.losses.append(loss)
        if loss is not None and loss.cause == "incarnation":
            self.incarnation = info.incarnation
        else:
            self.incarnation = self.incarnation or info.incarnation
        return where
