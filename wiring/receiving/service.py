"""Receivers of several streams, run together by ``streamfactory spool``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.defects import with_code
from streamfactory.wiring.receiving.receiver import StreamReceiver

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from streamfactory.spi import StreamError
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.receiving.statistics import PartitionReport

_LOOK: Final = 0.1
"""Seconds between checks whether all receivers have ended."""


@dataclass(frozen=True, slots=True)
class StreamReport:
    """The state of one stream."""

    stream: str
    state: str
    """``waiting`` until its partitions are known, ``receiving``, or ``failed``."""
    error: str | None
    partitions: Sequence[PartitionReport]

    @property
    def rows(self) -> int:
        """Rows stored by this service."""
        return sum(partition.rows for partition in self.partitions)

    def to_plain(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@final
class SpoolService(Closing):
    """Receives several streams, each with its spool, until it is closed.

    A failure of a stream or partition does not affect others.

    Args:
        configured: Configurations of the streams, each with ``spool.path``.

    Raises:
        ConfigError: config; a stream has no spool.
    """

    def __init__(self, configured: Sequence[Configured]) -> None:
        self._receivers = [StreamReceiver(one) for one in configured]

    def run(
        self,
        stop: threading.Event,
        *,
        interval: float,
        on_reports: Callable[[Sequence[StreamReport]], None],
    ) -> StreamError | None:
        """Receive until the stop is set, or all receivers have ended.

        Args:
            stop: When set, received rows are committed and this returns.
            interval: Seconds between two reports.
            on_reports: Called with the reports of all streams, in the calling thread.

        Returns:
            The error that ended the last receiver; None after a stop.
        """
        for receiver in self._receivers:
            receiver.start()
        since = 0.0
        while not stop.wait(min(_LOOK, interval)):
            since += min(_LOOK, interval)
            if since >= interval:
                since = 0.0
                on_reports(self.reports())
            if all(receiver.ended for receiver in self._receivers):
                return next(r.error for r in self._receivers if r.error is not None)
        return None

    def reports(self) -> list[StreamReport]:
        """Return a report per stream, in order."""
        return [_report(receiver) for receiver in self._receivers]

    @property
    def error(self) -> StreamError | None:
        """The error of the first stream that has one."""
        errors = (receiver.error for receiver in self._receivers)
        return next((error for error in errors if error is not None), None)

    def close(self) -> None:
        """Stop, and commit received rows; may be called twice."""
        for receiver in self._receivers:
            receiver.stop()
        for receiver in self._receivers:
            receiver.close()


def _report(receiver: StreamReceiver) -> StreamReport:
    partitions = receiver.reports()
    error = receiver.error or receiver.trouble
    state = "failed" if receiver.error is not None else "receiving"
    if receiver.error is None and not partitions:
        state = "waiting"
    text = None if error is None else with_code(error)
    return StreamReport(receiver.config.name, state, text, partitions)
