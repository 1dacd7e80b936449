"""Counters of readers."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import Sample
from streamfactory.wiring.metrics import vocabulary as v

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from streamfactory.spi import Loss, MessageBatch, Metric, Partition
    from streamfactory.wiring.core.clock import Clock


@dataclass(slots=True)
class Counters:
    """Counters of one reader, or the sum over several."""

    rows: int = 0
    """Rows returned."""
    messages: int = 0
    """Messages received, including those that produced no row."""
    bytes: int = 0
    batches: int = 0
    """Batches with rows."""
    fetches: int = 0
    """Calls of ``fetch_messages``."""
    fetch_seconds: float = 0.0
    """Time in these calls, waits for messages included."""
    decode_seconds: float = 0.0
    """Time from the author's answer to rows of the stream's schema."""
    retries: int = 0
    """Transient errors that were retried."""
    recreated: int = 0
    """Consumers recreated, after an error or long idleness."""
    bad_messages: int = 0
    """Messages that could not be decoded and were skipped or replaced by null."""
    dead_letters: int = 0
    """Undecodable messages that were handed out beside the rows."""
    losses: list[Loss] = field(default_factory=list)
    """Known losses."""

    def __add__(self, other: Counters) -> Counters:
        return Counters(
            *(getattr(self, f.name) + getattr(other, f.name) for f in fields(self))
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; losses by partition, range and cause."""
        plain = asdict(self)
        plain["losses"] = [loss.to_dict() for loss in self.losses]
        return plain


_COUNTED: Final[tuple[tuple[Metric, str], ...]] = (
    (v.READ_ROWS, "rows"),
    (v.READ_MESSAGES, "messages"),
    (v.READ_BYTES, "bytes"),
    (v.READ_BATCHES, "batches"),
    (v.READ_FETCHES, "fetches"),
    (v.READ_FETCH_SECONDS, "fetch_seconds"),
    (v.READ_DECODE_SECONDS, "decode_seconds"),
    (v.READ_RETRIES, "retries"),
    (v.READ_RECREATED, "recreated"),
    (v.READ_BAD_MESSAGES, "bad_messages"),
    (v.READ_DEAD_LETTERS, "dead_letters"),
)

_SEEN: Final = 64
"""Latest offsets that are remembered with the time at which each was first seen."""
_APART: Final = 1.0
"""Seconds between two of them, at the least."""


@final
class ReadTally:
    """The metrics of one partition's reader. One thread counts, any may read.

    Args:
        stream: Name of the stream.
        partition: Which.
        counters: Its counts.
        clock: Time.
    """

    def __init__(
        self, stream: str, partition: Partition, counters: Counters, clock: Clock
    ) -> None:
        self._counters = counters
        self._labels = (stream, partition.topic, str(partition.id))
        self._clock = clock
        self._next: int | None = None
        self._latest: int | None = None
        self._seen: deque[tuple[float, int]] = deque()

    def observe(self, batch: MessageBatch) -> None:
        """Note where the reader stands and, if the batch says so, the latest offset."""
        self._next = batch.next_offset
        latest = batch.latest
        if latest is None or latest == self._latest:
            return
        seen, now = self._seen, self._clock.now()
        if self._latest is not None and latest < self._latest:
            seen.clear()  # recreated, or truncated
        self._latest = latest
        while seen and seen[0][1] <= self._next:
            seen.popleft()
        if len(seen) >= _SEEN:
            pairs = list(seen)
            self._seen = seen = deque(
                (first[0], second[1])
                for first, second in zip(pairs[::2], pairs[1::2], strict=True)
            )
        # Keeping the earlier time of two makes the lag older, never younger.
        if seen and now - seen[-1][0] < _APART:
            now = seen.pop()[0]
        seen.append((now, latest))

    def counters(self) -> Iterator[Sample]:
        """See `Tally`."""
        counters, labels = self._counters, self._labels
        for metric, name in _COUNTED:
            yield Sample(metric, labels, getattr(counters, name))
        losses = list(counters.losses)
        yield Sample(v.READ_LOSSES, labels, len(losses))
        known = [one.end - one.start for one in losses if one.end is not None]
        yield Sample(v.READ_LOST_OFFSETS, labels, sum(known))

    def gauges(self) -> Iterator[Sample]:
        """See `Tally`."""
        next_offset, latest, labels = self._next, self._latest, self._labels
        if next_offset is None:
            return
        yield Sample(v.READ_NEXT, labels, next_offset)
        if latest is None:
            return
        lag = max(0, latest - next_offset)
        yield Sample(v.READ_LATEST, labels, latest)
        yield Sample(v.READ_LAG, labels, lag)
        age = 0.0
        if lag:
            beyond = [at for at, offset in list(self._seen) if offset > next_offset]
            age = max(0.0, self._clock.now() - beyond[0]) if beyond else 0.0
        yield Sample(v.READ_LAG_SECONDS, labels, age)
