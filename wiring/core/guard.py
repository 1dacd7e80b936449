"""The border between an author's code and ours: translation of errors, and retries."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from streamfactory.spi import (
    Backend,
    ClosedError,
    ConnectionFailed,
    ErrorTable,
    StreamConfig,
    StreamError,
    StreamTimeout,
    TransientError,
    UntranslatedError,
)
from streamfactory.spi.backoff import Backoff

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from streamfactory.spi import Partition
    from streamfactory.wiring.core.clock import Clock

T = TypeVar("T")
"""What a guarded call answers."""

log = logging.getLogger("streamfactory")

_STANDARD = ErrorTable({TimeoutError: StreamTimeout, ConnectionError: ConnectionFailed})


def log_warnings(config: StreamConfig) -> None:
    """Log what validation found to have no effect, or to be deprecated.

    A file may define a stream for several uses, so that an option of it without effect
    in one of them is nothing to be seen. One that was given for this use is.
    """
    for warning in config.warnings:
        quiet = warning.level == "note" and warning.origin != "argument"
        level = logging.INFO if quiet else logging.WARNING
        log.log(level, "stream %r: %s", config.name, warning)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, and how long to wait; for transient errors only."""

    attempts: int
    backoff: Backoff
    patience: float | None = None
    """Seconds for which failures to connect are retried, whatever their number, to a
    server that has answered before: it is restarted. None where ``attempts`` was given
    by the user, who gets them."""

    @classmethod
    def of(cls, config: StreamConfig) -> RetryPolicy:
        """As the options ``retry.*`` say."""
        return cls(
            config["retry.max.attempts"],
            Backoff(
                config["retry.initial.millis"] / 1000, config["retry.max.millis"] / 1000
            ),
            None
            if config.given("retry.max.attempts")
            else config["connection.timeout.millis"] / 1000,
        )

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        return self.backoff.pause(failures)


class Guard:
    """Runs an author's code so that only our errors come out.

    Args:
        config: Names the stream and knows what to mask.
        backend: Has the translation table.
        clock: Time.
    """

    def __init__(self, config: StreamConfig, backend: Backend, clock: Clock) -> None:
        self._config = config
        self._translate = backend.translate
        self._policy = RetryPolicy.of(config)
        self._clock = clock
        self.answered = False
        """Whether the server has answered: then it can be reached, but for a while."""

    @property
    def policy(self) -> RetryPolicy:
        """How often to try, and how long to wait."""
        return self._policy

    def gives_up(self, error: StreamError, failures: int, elapsed: float) -> bool:
        """Whether an error is the last one.

        Args:
            error: Of the last attempt.
            failures: Attempts that failed, in a row.
            elapsed: Seconds since the first of them failed.
        """
        if not isinstance(error, TransientError):
            return True
        patience = self._policy.patience
        if (
            patience is not None
            and self.answered
            and isinstance(error, ConnectionFailed)
        ):
            return elapsed >= patience
        return failures >= self._policy.attempts

    def translate(
        self,
        error: Exception,
        *,
        partition: Partition | None = None,
        offset: int | None = None,
    ) -> StreamError:
        """The error of our tree for whatever came out, masked and placed.

        The caller raises it ``from`` the original.
        """
        if isinstance(error, StreamError):
            found: StreamError | None = error
        else:
            found = self._translate(error) if self._translate is not None else None
            found = found or _STANDARD(error)
        if found is None:
            what = f"the plug-in raised {type(error).__name__}: {error}"
            found = UntranslatedError(what)
        self._mask(found)
        if found is not error:
            found.cause_text = self._config.mask(f"{type(error).__name__}: {error}")
        return found.at(stream=self._config.name, partition=partition, offset=offset)

    def call(
        self,
        operation: str,
        function: Callable[[], T],
        *,
        closed: threading.Event,
        timeout: float,
        partition: Partition | None = None,
    ) -> T:
        """Call ``function``, again after passing trouble, within ``timeout`` seconds.

        Raises:
            StreamError: Translated. A transient one has used up the attempts or the
                time, and says so.
            ClosedError: misuse; ``closed`` was set meanwhile.
        """
        start = self._clock.now()
        failures = 0
        while True:
            try:
                answer = function()
            except Exception as error:
                found = self.translate(error, partition=partition)
                failures += 1
                pause = self._policy.pause(failures)
                elapsed = self._clock.now() - start
                late = elapsed + pause > timeout
                if late or self.gives_up(found, failures, elapsed):
                    final = self.exhausted(found, operation, failures, elapsed)
                    if final is error:
                        raise  # not from itself: a circle would not pickle
                    raise final from error
                log.info("%s: trying again in %.2f s", found, pause)
                if self._clock.wait(closed, pause):
                    msg = f"closed while trying again to {operation}"
                    raise ClosedError(msg, stream=self._config.name) from error
            else:
                self.answered = True
                return answer

    @contextmanager
    def border(
        self, *, partition: Partition | None = None, offset: int | None = None
    ) -> Iterator[None]:
        """Let only our errors out of calls that are made once.

        Args:
            partition: Named in errors that name none.
            offset: Likewise.
        """
        try:
            yield
        except Exception as error:
            found = self.translate(error, partition=partition, offset=offset)
            if found is error:
                raise
            raise found from error

    def exhausted(
        self, error: StreamError, operation: str, failures: int, elapsed: float
    ) -> StreamError:
        """The final error names operation, attempts and time.

        A backend that tries again itself has set ``attempts`` of its error.
        """
        if isinstance(error, TransientError):
            failures = max(failures, error.attempts or 0)
            error.attempts = failures
            tries = f"{failures} attempt{'s' * (failures > 1)}"
            error.what = (
                f"{operation} failed after {tries} in {elapsed:.1f} s: {error.what}"
            )
            error.args = (error.what,)
        return error

    def _mask(self, error: StreamError) -> None:
        """Mask an error and what of its causes may cross to another process."""
        error.what = self._config.mask(error.what)
        error.args = (error.what,)
        if error.remedy is not None:
            error.remedy = self._config.mask(error.remedy)
        cause = error.__cause__
        if cause is error:
            error.__cause__ = None  # a circle would not pickle
        elif isinstance(cause, StreamError):
            self._mask(cause)
        elif cause is not None:
            error.cause_text = self._config.mask(f"{type(cause).__name__}: {cause}")
