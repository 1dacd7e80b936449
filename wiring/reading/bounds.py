"""Whether a start is held, and where reading continues if not (rules R7, R8)."""

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
    """The bounds of one partition as a reader knows them, and its losses.

    Args:
        partition: Named in errors and loss records.
        policy: What a loss leads to.
        look_up: Asks the source, now.
        info: The partition as it was just seen: spares the first look-up.
        incarnation: The one that the caller's offsets belong to, where it is known.
    """

    def __init__(
        self,
        partition: Partition,
        policy: LossPolicy,
        *,
        look_up: Callable[[], PartitionInfo],
        info: PartitionInfo | None = None,
        incarnation: str | None = None,
    ) -> None:
        self._partition = partition
        self._policy = policy
        self._look_up = look_up
        self._fresh = info
        self.incarnation = incarnation
        self.losses: list[Loss] = []
        """Those not reported yet: the next batch carries them."""

    @property
    def begun_again(self) -> bool:
        """Whether the topic is known to be recreated, before any look-up."""
        return self._fresh is not None and was_recreated(
            self.incarnation, self._fresh.incarnation
        )

    def check(
        self,
        where: int,
        *,
        end: int | None = None,
        refusal: DataLossError | None = None,
    ) -> int:
        """Where to continue.

        Args:
            where: What the caller wants, inclusive.
            end: First offset not wanted: no loss is recorded beyond it.
            refusal: What the backend raised instead of messages at ``where``.

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
        """A missing first offset is looked up once: a gap is fine, a loss is not.

        Args:
            where: The offset that was asked for.
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
        msg = f"offsets {where} to {until} were taken away while reading"
        error = OffsetOutOfRange(msg, earliest=earliest, offset=where)
        loss = Loss(self._partition, where, until, "retention")
        self.losses.append(self._policy.accept(loss, error))

    def redirect(
        self, where: int, fetched: Fetched, *, fresh: bool = False
    ) -> int | None:
        """Where to continue instead, when an answer is not about ``where``.

        Args:
            where: The offset that was asked for.
            fetched: The author's answer.
            fresh: Whether a new consumer gave it: its first answer may have rows.

        Raises:
            DataLossError: data_loss; under the policy ``fail``.
            ContractBroken: plugin; rows came with a new incarnation.
        """
        found = fetched.incarnation
        if was_recreated(self.incarnation, found):
            if self._policy.fails:  # without a look-up, which might fail itself
                error = recreated(self._partition, self.incarnation, found, where)
                raise error.at(stream=self._policy.stream)
            # The answer is newer than any metadata.
            info = replace(self._look_up(), incarnation=found)
            where = self._start(info, where, None, None)
            if fetched.rows and not fresh:
                msg = "rule R7: rows came with a new incarnation"
                raise ContractBroken(msg)
            return where
        self.incarnation = self.incarnation or found
        if fetched.latest is not None and fetched.latest < where:
            checked = self.check(where)
            return None if checked == where else checked
        return None

    def forget(self, incarnation: str | None) -> None:
        """Take back what a failed fetch found: the next one will find it again."""
        self.incarnation = incarnation or self.incarnation
        self.losses = []

    def verify(self, where: int) -> None:
        """Ask once more whether the topic is the same.

        Raises:
            IncarnationChanged: data_loss, whatever the policy: rows of both topics may
                have been returned.
        """
        found = self._look_up().incarnation
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
