"""The author's consumer in the hand of a reader: made, called, dropped, made anew."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, final

from streamfactory.spi import PartitionLevelConsumer, TransientError
from streamfactory.wiring.reading.batches import checked_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import Fetched, FetchLimits, Partition
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.core.guard import Guard
    from streamfactory.wiring.reading.counters import Counters

log = logging.getLogger("streamfactory")


@final
class RecoveringConsumer:
    """Recreates the consumer after an error: it is closed, and the next call makes one.

    Args:
        partition: Named in errors.
        create: Makes the author's consumer.
        guard: Translates errors and says how often to try.
        clock: Time.
        counters: Counts calls, retries and consumers made anew.
    """

    def __init__(
        self,
        partition: Partition,
        create: Callable[[], PartitionLevelConsumer],
        guard: Guard,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._partition = partition
        self._create = create
        self._guard = guard
        self._clock = clock
        self._counters = counters
        self._consumer: PartitionLevelConsumer | None = None
        self._failures = 0
        self._failing_since = 0.0
        self._not_before = 0.0
        self.can_wake = False
        self.newly_made = False
        """Whether the last answer was the first of its consumer."""

    @property
    def pause(self) -> float:
        """Seconds until the next try, after a failure; 0 where there is none."""
        if not self._failures:
            return 0.0
        return max(0.0, self._not_before - self._clock.now())

    def fetch(self, where: int, end: int | None, limits: FetchLimits) -> Fetched:
        """Call the author's fetch.

        Raises:
            StreamError: Whatever it raised, translated; the consumer is gone.
        """
        self._counters.fetches += 1
        try:
            with self._guard.border(partition=self._partition, offset=where):
                self.newly_made = self._consumer is None
                if self._consumer is None:
                    self._consumer = self._create()
                    kind = type(self._consumer)
                    self.can_wake = kind.wake is not PartitionLevelConsumer.wake
                answer = self._consumer.fetch_messages(where, end, limits)
                fetched = checked_answer(answer)
        except BaseException:
            self.drop()  # after an error nobody knows where it stands
            raise
        self._failures = 0
        self._guard.answered = True
        return fetched

    def recover(self, error: TransientError) -> None:
        """Take note of a failure: until `pause` is over there is no next try.

        Failures in a row count across fetches, and so does the pause: short fetches
        neither fail at the first hiccup nor hammer the source, and no failure hides
        for ever.

        Raises:
            TransientError: The attempts, or the time for them, are used up.
        """
        now = self._clock.now()
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        elapsed = now - self._failing_since
        if self._guard.gives_up(error, self._failures, elapsed):
            failures, self._failures = self._failures, 0
            raise self._guard.exhausted(error, "fetch", failures, elapsed)
        self._counters.retries += 1
        self._counters.recreated += 1
        pause = self._guard.policy.pause(self._failures)
        self._not_before = now + pause
        log.info("%s: trying again in %.2f s", error, pause)

    def renew(self) -> None:
        """Make the next call use a new consumer."""
        self._counters.recreated += 1
        self.drop()

    def drop(self) -> None:
        """Close the consumer, if there is one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                consumer.close()
            except Exception as error:  # noqa: BLE001 - the first error is the one to tell
                self._log("closing", error)

    def wake(self) -> None:
        """Make a blocked fetch come back, where the author can. From any thread."""
        consumer = self._consumer
        if consumer is not None and self.can_wake:
            try:
                consumer.wake()
            except Exception as error:  # noqa: BLE001 - it comes back by its slice
                self._log("waking", error)

    def _log(self, doing: str, error: Exception) -> None:
        found = self._guard.translate(error, partition=self._partition)
        log.info("%s the consumer failed: %s", doing, found)
