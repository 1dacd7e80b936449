"""How much a client fetches at once: by the range, and by what responses expand to.

Kafka limits a response by its compressed bytes, and librdkafka expands it completely
before the first message can be read: 1 MiB of zeros is 10 GB. No property of the client
limits that. So a topic is first read in responses of one producer batch; what they
expand to decides how much is requested later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_KIB: Final = 1024
_MIB: Final = 1024**2
MAX_AHEAD: Final = 64 * _MIB
"""Maximum bytes of a queue, librdkafka's own; and of an expanded response, unless one
producer batch is longer."""
_SHARE: Final = 3
"""Minimum ratio between a range and the data that may be fetched beyond it."""
_OF_FETCH: Final = ("fetch.message.max.bytes", "max.partition.fetch.bytes")
"""The client's property for the bytes of a response, with its alias."""


@dataclass(frozen=True, slots=True)
class FetchSize:
    """How many bytes a client requests at once, and how many it queues ahead."""

    fetch: int
    ahead: int = 0
    """0: the next request is sent when the queue is empty."""

    @property
    def waste(self) -> int:
        """Maximum bytes that a client fetches beyond a range.

        One producer batch is always fetched completely, however long it is.
        """
        return self.fetch + self.ahead

    @property
    def waits(self) -> bool:
        """Whether a request is sent only when the queue is empty, or almost."""
        return self.ahead <= _KIB

    def settings(self) -> dict[str, str]:
        """The client's settings."""
        fetch = {"fetch.message.max.bytes": str(self.fetch)}
        if self.ahead:
            return {**fetch, "queued.max.messages.kbytes": str(self.ahead // _KIB)}
        return {
            **fetch,
            "queued.min.messages": "1",
            # A fetch request without result delays the next partition: librdkafka
            # sends one fetch request at a time to a broker.
            "fetch.wait.max.ms": "20",
        }


class FetchSizes:
    """Chooses a client's size for a range, from what was read of its topic before.

    Args:
        properties: The client's properties that the user sets.
        batch_bytes: Maximum bytes of a batch; the largest size prefetches as much.
    """

    def __init__(self, properties: Mapping[str, str], batch_bytes: int) -> None:
        ahead = min(max(batch_bytes, _MIB), MAX_AHEAD)
        largest = FetchSize(_MIB, ahead)
        steps = [fetch * _KIB for fetch in (1, 16, 64, 256)]
        self._endless = [*(FetchSize(fetch, _KIB) for fetch in steps), largest]
        self._bounded = [*map(FetchSize, (*steps, _MIB)), largest]
        self._measures = properties.keys().isdisjoint(_OF_FETCH)
        self._expansion: dict[str, float] = {}
        self._bytes_per_offset: dict[str, float] = {}

    def choose(self, topic: str, start: int, end: int | None) -> FetchSize:
        """The size for a range.

        The largest that wastes at most a third of the range, and whose responses have
        64 MiB when they are expanded. Until it is known what they expand to, the
        smallest one.

        Args:
            topic: The topic.
            start: First offset.
            end: Exclusive; None for no end.
        """
        expansion = self._expansion.get(topic, 0.0 if not self._measures else None)
        sizes = self._endless if end is None else self._bounded
        if expansion is None:
            return sizes[0]
        sizes = [s for s in sizes if s.fetch * expansion <= MAX_AHEAD] or sizes[:1]
        if end is None:
            return sizes[-1]
        expected = self._bytes_per_offset.get(topic, 0.0) * (end - start)
        sizes = sizes[1:] or sizes
        return [s for s in sizes if _SHARE * s.waste <= expected or s is sizes[0]][-1]

    def expands(self, topic: str, size: FetchSize) -> bool:
        """Whether responses of this size have more than 64 MiB when expanded."""
        smallest = size.fetch <= self._bounded[0].fetch
        return not smallest and self._expansion.get(topic, 0) * size.fetch > MAX_AHEAD

    def observe(self, topic: str, size: int, offsets: int) -> None:
        """Record the bytes of a number of offsets."""
        if offsets > 0:
            self._bytes_per_offset[topic] = size / offsets

    def observe_response(self, topic: str, size: FetchSize, expanded: int) -> None:
        """Record the bytes of the messages of a response that the size limited.

        A response has the requested bytes, or one longer producer batch: what a larger
        one expands to is overestimated, and measured again when that is requested.
        """
        self._expansion[topic] = expanded / size.fetch


class Responses:
    """Counts the bytes of single responses, while each leaves an empty queue behind.

    A client whose queue is shorter than a response sends its next request when the
    queue is empty. What is taken until then is one response.
    """

    def __init__(self) -> None:
        self._taken: int | None = None
        """Of the current response; None for the first one after an assignment, which
        may begin within a producer batch."""
        self._begun = False

    def add(self, size: int, *, emptied: bool) -> int | None:
        """Count bytes; returns those of the response that they complete, if any.

        Args:
            size: Bytes that were taken from the queue.
            emptied: Whether nothing is left in the queue.
        """
        if self._taken is not None:
            self._taken += size
        self._begun |= size > 0
        if not emptied or not self._begun:
            return None
        taken, self._taken, self._begun = self._taken, 0, False
        return taken
