"""Fetches with a deadline: time slices, pauses, checks of results (rules R1, R7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    BatchState,
    ClosedError,
    DataLossError,
    Fetched,
    FetchLimits,
    IncarnationChanged,
    NotAuthorized,
    OffsetOutOfRange,
    TransientError,
)
from streamfactory.wiring.reading.clipping import Answer

if TYPE_CHECKING:
    import threading

    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.reading.batches import BatchMaker
    from streamfactory.wiring.reading.bounds import Bounds
    from streamfactory.wiring.reading.recovering import RecoveringConsumer

_SLICE: Final = 0.25
"""Maximum seconds of one call of the consumer, unless it can be woken."""
_LONGEST_NAP: Final = 0.05


@final
class FetchLoop:
    """Polls a consumer until data, an end or the deadline. One thread at a time.

    Args:
        held: The consumer.
        bounds: Checks offsets and incarnations of the results.
        maker: Checks the offsets of the results.
        clock: The clock.
        closed: Set when the reader is closed.
        idle: Seconds without data after which the consumer is recreated; 0 for never.
    """

    def __init__(
        self,
        held: RecoveringConsumer,
        bounds: Bounds,
        maker: BatchMaker,
        clock: Clock,
        *,
        closed: threading.Event,
        idle: float,
    ) -> None:
        self._held = held
        self._bounds = bounds
        self._maker = maker
        self._clock = clock
        self._closed = closed
        self._idle = idle
        self._last_data = clock.now()
        self.renewed = False
        """Whether the last call closed the consumer because it was idle."""

    def wake(self) -> None:
        """Make a blocked `ask` return soon. Thread-safe."""
        self._held.wake()

    def stop(self) -> None:
        """Close the consumer, if there is one."""
        self._held.drop()

    def ask(
        self, where: int, end: int | None, limits: FetchLimits
    ) -> tuple[int, Answer]:
        """Poll until there is a result, or the deadline.

        Returns:
            The offset at which reading continued, which differs after a loss, and the
            result: rows at or after that offset, or none.

        Raises:
            ClosedError: misuse; closed during the call.
            StreamError: Raised by the consumer; for a transient one the attempts are
                exhausted.
        """
        self.renewed = False
        deadline = self._clock.now() + limits.timeout
        nap = 0.001
        while True:
            if not self._rested(deadline):
                return where, Answer.of(where, Fetched(None, where))
            asked_at = self._clock.now()
            left = max(0.0, deadline - asked_at)
            slice_ = left if self._held.can_wake else min(left, _SLICE)
            try:
                sliced = FetchLimits(limits.max_rows, limits.max_bytes, slice_)
                fetched = self._held.fetch(where, end, sliced)
            except TransientError as error:
                self._check_open()
                self._held.recover(error)
                continue
            except NotAuthorized as error:
                self._check_open()
                self._held.reauthorize(error)
                continue
            except DataLossError as error:
                known = isinstance(error, (OffsetOutOfRange, IncarnationChanged))
                if not known and error.resume is None:
                    raise
                where = self._bounds.check(where, end=end, refusal=error)
                return where, Answer.of(where, Fetched(None, where))
            self._check_open()
            at, answer, found = self._accept(where, end, fetched)
            if found:
                return at, answer
            left = deadline - self._clock.now()
            if left <= 0:
                self._renew_when_idle()
                return where, answer
            if self._clock.now() - asked_at < slice_:
                # The consumer returned early: do not spin.
                self._wait(min(nap, left))
                nap = min(nap * 2, _LONGEST_NAP)

    def _accept(
        self, where: int, end: int | None, fetched: Fetched
    ) -> tuple[int, Answer, bool]:
        """Check what the consumer returned.

        Returns:
            The offset at which reading continues, the result, and False if there
            is nothing yet.
        """
        elsewhere = self._bounds.redirect(where, fetched, fresh=self._held.newly_made)
        if elsewhere is not None:
            moved = Fetched(None, elsewhere, losses=fetched.losses)
            return elsewhere, Answer.of(elsewhere, moved), True
        answer = self._maker.accept(where, fetched)
        if (
            answer.rows is None
            and fetched.next_offset <= where
            and not fetched.losses
            and not _ends(fetched)
        ):
            return where, answer, False
        first = fetched.next_offset if answer.rows is None else answer.offset(0)
        self._bounds.check_gap(where, first, fetched, end=end)
        self._last_data = self._clock.now()
        return where, answer, True

    def _rested(self, deadline: float) -> bool:
        """Wait until the next attempt is due; False if the deadline is earlier."""
        while pause := self._held.pause:
            left = deadline - self._clock.now()
            if left <= 0:
                return False
            self._wait(min(pause, left))
        return True

    def _wait(self, seconds: float) -> None:
        self._clock.wait(self._closed, seconds)
        self._check_open()

    def _renew_when_idle(self) -> None:
        if self._idle and self._clock.now() - self._last_data > self._idle:
            self._last_data = self._clock.now()
            self._held.renew()
            self.renewed = True

    def _check_open(self) -> None:
        if self._closed.is_set():
            msg = "the reader is closed"
            raise ClosedError(msg)


def _ends(fetched: Fetched) -> bool:
    return fetched.state is BatchState.END_OF_PARTITION and not fetched.rows
