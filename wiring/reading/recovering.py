"""The consumer of a reader, which is recreated after errors."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import TYPE_CHECKING, final

from streamfactory.spi import (
    NotAuthorized,
    PartitionLevelConsumer,
    TransientError,
)
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
    """Recreates the consumer after an error.

    It is closed, and the next call creates one.

    Args:
        partition: The partition, for errors.
        create: Creates the backend's consumer.
        guard: Translates errors and has the retry policy.
        clock: The clock.
        counters: Counts calls, retries and recreated consumers.
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
        self._reauthorized = False
        self.can_wake = False
        self.newly_made = False
        """Whether the last result was the first of its consumer."""

    @property
    def pause(self) -> float:
        """Seconds until the next attempt, after a failure; otherwise 0."""
        if not self._failures:
            return 0.0
        return max(0.0, self._not_before - self._clock.now())

    def fetch(self, where: int, end: int | None, limits: FetchLimits) -> Fetched:
        """Call ``fetch_messages``.

        Raises:
            StreamError: Its error, translated; the consumer is closed.
        """
        self._counters.fetches += 1
        began = perf_counter()
        try:
            self.newly_made = self._consumer is None
            if self._consumer is None:
                self._consumer = self._create()
                kind = type(self._consumer)
                self.can_wake = kind.wake is not PartitionLevelConsumer.wake
            fetched = checked_answer(self._consumer.fetch_messages(where, end, limits))
        except BaseException:
            self.drop()  # after an error its state is undefined
            # Not around the calls: a generator costs as much as a small batch.
            with self._guard.border(partition=self._partition, offset=where):
                raise
        finally:
            self._counters.fetch_seconds += perf_counter() - began
        self._failures = 0
        self._reauthorized = False
        self._guard.answered = True
        return fetched

    def recover(self, error: TransientError) -> None:
        """Record a failure: the next attempt is due after `pause`.

        Consecutive failures and the pause are counted across fetches: short fetches
        neither fail at the first error nor overload the source, and a permanent failure
        is raised eventually.

        Raises:
            TransientError: The attempts, or the time for them, are exhausted.
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
        self._guard.log_retry(error, self._failures, pause)

    def reauthorize(self, error: NotAuthorized) -> None:
        """Have the next attempt use secrets that were looked up again.

        Once after each success: a secret may have been replaced.

        Raises:
            NotAuthorized: The error, if no secret can be looked up again.
        """
        if self._reauthorized or not self._guard.secrets_renewed:
            raise error
        self._reauthorized = True
        self._counters.recreated += 1

    def renew(self) -> None:
        """Make the next call create a new consumer."""
        self._counters.recreated += 1
        self.drop()

    def drop(self) -> None:
        """Close the consumer, if there is one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                consumer.close()
            except Exception as error:  # noqa: BLE001 - the first error is the one to raise
                self._log("closing", error)

    def wake(self) -> None:
        """Wake a blocked fetch, if the consumer supports it. Thread-safe."""
        consumer = self._consumer
        if consumer is not None and self.can_wake:
            try:
                consumer.wake()
            except Exception as error:  # noqa: BLE001 - the fetch returns after its time slice
                self._log("waking", error)

    def _log(self, doing: str, error: Exception) -> None:
        found = self._guard.translate(error, partition=self._partition)
        log.info("%s the consumer failed: %s", doing, found)
