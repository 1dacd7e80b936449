"""Offsets that wait for an open transaction: written, and not readable yet."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import Sample
from streamfactory.wiring.metrics import vocabulary as v

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from streamfactory.spi import Partition, PartitionInfo

log = logging.getLogger("streamfactory")

_LASTING: Final = 10.0
"""Seconds after which a transaction is logged: shorter ones are usual."""


def waiting_text(waiting: int, since: str | None) -> str:
    """What waits, as a sentence without its end; empty if nothing waits."""
    if not waiting:
        return ""
    noun = "1 offset waits" if waiting == 1 else f"{waiting} offsets wait"
    began = "" if since is None else f" since {since}"
    return f"{noun} for an open transaction{began}"


def time_text(millis: int | None) -> str | None:
    """A time as text, in UTC to the second."""
    if millis is None:
        return None
    found = datetime.fromtimestamp(millis / 1000, UTC)
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(slots=True)
class _Waiting:
    offset: int
    """The first that waits."""
    count: int
    seen: float
    logged: bool = False


@final
class WaitingOffsets:
    """The waiting offsets of a stream's partitions: a metric, and one log line each.

    Thread-safe: the last call wins.

    Args:
        stream: Name of the stream.
    """

    def __init__(self, stream: str) -> None:
        self._stream = stream
        self._found: dict[Partition, _Waiting] = {}

    def observe(
        self,
        infos: Sequence[PartitionInfo],
        now: float,
        since: Callable[[PartitionInfo], str | None],
    ) -> None:
        """Note the current bounds.

        Args:
            infos: Of all partitions.
            now: Monotonic time.
            since: Looks up when the transaction of a partition began.
        """
        before = self._found
        found: dict[Partition, _Waiting] = {}
        for info in infos:
            if not info.waiting or info.latest is None:
                continue
            one = before.get(info.partition)
            if one is None or one.offset != info.latest:
                one = _Waiting(info.latest, 0, now)
            one.count = info.waiting
            found[info.partition] = one
            if not one.logged and now - one.seen >= _LASTING:
                one.logged = True
                text = waiting_text(one.count, since(info))
                what = "stream %r, partition %s: %s"
                log.warning(what, self._stream, info.partition, text)
        self._found = found

    def counters(self) -> Iterable[Sample]:
        """See `Tally`."""
        return ()

    def gauges(self) -> Iterator[Sample]:
        """See `Tally`."""
        for partition, one in self._found.items():
            labels = (self._stream, partition.topic, str(partition.id))
            yield Sample(v.READ_WAITING, labels, one.count)
