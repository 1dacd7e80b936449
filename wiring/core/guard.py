"""Calls of plug-in code: translation of errors, and retries."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from streamfactory.spi import (
    Backend,
    ClosedError,
    ConnectionFailed,
    ErrorTable,
    NotAuthorized,
    StreamConfig,
    StreamError,
    StreamTimeout,
    TransientError,
    UntranslatedError,
)
from streamfactory.spi.backoff import Backoff
from streamfactory.spi.causes import is_failure
from streamfactory.wiring.core.bounded import interruptible
from streamfactory.wiring.core.shown import all_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from streamfactory.spi import Partition
    from streamfactory.wiring.core.clock import Clock

T = TypeVar("T")
"""The result of a guarded call."""

_FRESH: Final = 1.0
"""Seconds after an answer in which the same operation is called by the calling thread:
another one costs as much as a small write to memory."""

log = logging.getLogger("streamfactory")

_STANDARD = ErrorTable({TimeoutError: StreamTimeout, ConnectionError: ConnectionFailed})


def log_warnings(config: StreamConfig) -> None:
    """Log options that have no effect, or are deprecated.

    A file may define a stream for several uses, so a note about an option of a file is
    logged at info level only. Each is logged once in a process, for each stream: a
    script may open a stream many times.
    """
    for warning in config.warnings:
        quiet = warning.level == "note" and warning.origin != "argument"
        level = logging.INFO if quiet else logging.WARNING
        log_once(level, config.name, str(warning))


@lru_cache(maxsize=1024)
def log_once(level: int, name: str, warning: str) -> None:
    """Log a warning about a stream; a repeated call has no effect."""
    log.log(level, "stream %r: %s", name, warning)


_LOOKS = threading.Event()


@contextmanager
def looking_once() -> Iterator[None]:
    """Of a command that shows a state: servers that cannot be reached are its result.

    In the whole process, streams that are opened meanwhile retry failures to connect
    like others (``retry.max.attempts``), and do not wait until a server starts.
    """
    _LOOKS.set()
    try:
        yield
    finally:
        _LOOKS.clear()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts and pauses of retries; for transient errors only."""

    attempts: int
    backoff: Backoff
    patience: float | None = None
    """Seconds for which failures to connect are retried, whatever their number: the
    server starts, or is restarted. None where the user gave ``attempts``, and within
    `looking_once`."""

    @classmethod
    def of(cls, config: StreamConfig) -> RetryPolicy:
        """Create the policy from the options ``retry.*``."""
        return cls(
            config["retry.max.attempts"],
            Backoff(
                config["retry.initial.millis"] / 1000, config["retry.max.millis"] / 1000
            ),
            None
            if config.given("retry.max.attempts") or _LOOKS.is_set()
            else config["connection.timeout.millis"] / 1000,
        )

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many consecutive failures."""
        return self.backoff.pause(failures)


class Guard:
    """Calls plug-in code so that only errors of our tree are raised.

    Args:
        config: The stream's name and the secrets to mask.
        backend: The translation table.
        clock: The clock.
    """

    def __init__(self, config: StreamConfig, backend: Backend, clock: Clock) -> None:
        self._config = config
        self._translate = backend.translate
        self._policy = RetryPolicy.of(config)
        self.clock = clock
        self._answered_at: dict[str, float] = {}
        """When an operation was last answered."""
        self._left: Future[Any] | None = None
        """A call that an interrupt left to its thread."""
        self.answered = False
        """Whether the server has answered: its address is correct."""
        self.secrets_renewed = False
        """Whether the last refusal concerned secrets that are looked up again."""

    @property
    def policy(self) -> RetryPolicy:
        """The retry policy."""
        return self._policy

    def end(self, close: Callable[[], object]) -> None:
        """Close what the calls use.

        After an interrupt a call may not have returned: then it is closed once it has,
        by another thread.
        """
        left = self._left
        if left is None or left.done():
            close()
            return

        def close_then() -> None:
            wait([left])
            try:
                close()
            except Exception as error:  # noqa: BLE001 - nothing waits for it
                log.info("closing after an interrupt: %s", self.translate(error))

        threading.Thread(target=close_then, name="close", daemon=True).start()

    def _made(self, operation: str, function: Callable[[], T]) -> T:
        """Make a call, which an interrupt ends unless it was answered just before."""
        if self.clock.now() - self._answered_at.get(operation, -inf) < _FRESH:
            return function()
        return interruptible(function, self._leave)

    def _leave(self, call: Future[T]) -> None:
        self._left = call

    def gives_up(self, error: StreamError, failures: int, elapsed: float) -> bool:
        """Whether to stop retrying after an error.

        Args:
            error: The error of the last attempt.
            failures: Number of consecutive failures.
            elapsed: Seconds since the first of them.
        """
        if not isinstance(error, TransientError):
            return True
        patience = self._policy.patience
        if patience is not None and isinstance(error, ConnectionFailed):
            return elapsed >= patience
        return failures >= self._policy.attempts

    def _may_reauthorize(self, error: StreamError) -> bool:
        return isinstance(error, NotAuthorized) and self.secrets_renewed

    def log_retry(self, error: StreamError, failures: int, pause: float) -> None:
        """Log that an operation is retried.

        The first failure of a first connection is a warning: a wrong address is retried
        for as long as a server that starts.
        """
        patience = self._policy.patience
        first = failures == 1 and not self.answered
        if first and patience is not None and isinstance(error, ConnectionFailed):
            what = "%s: retrying for %.0f s (connection.timeout.millis)"
            log.warning(what, error, patience)
        else:
            log.info("%s: retrying in %.2f s", error, pause)

    def translate(
        self,
        error: BaseException,
        *,
        partition: Partition | None = None,
        offset: int | None = None,
    ) -> StreamError:
        """Translate an exception to an error of our tree, with its place and masked.

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
        mask_error(found, self._config.mask)
        if found is not error:
            found.cause_text = self._config.mask(f"{type(error).__name__}: {error}")
        if isinstance(found, NotAuthorized):
            # After masking: what the server quotes may be the secret of now.
            self.secrets_renewed = self._config.renew()
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
        """Call ``function``; retry after transient errors, within ``timeout`` seconds.

        A call that is refused is repeated once, if secrets were kept that can have been
        replaced.

        Raises:
            StreamError: Translated. A transient one has exhausted the attempts or the
                timeout, and its message has both.
            ClosedError: misuse; ``closed`` was set during the call.
        """
        start = self.clock.now()
        failures = 0
        reauthorized = False
        while True:
            try:
                answer = self._made(operation, function)
            except BaseException as error:
                if not is_failure(error):
                    raise
                found = self.translate(error, partition=partition)
                if self._may_reauthorize(found) and not reauthorized:
                    reauthorized = True
                    continue
                failures += 1
                pause = self._policy.pause(failures)
                elapsed = self.clock.now() - start
                late = elapsed + pause > timeout
                if late or self.gives_up(found, failures, elapsed):
                    final = self.exhausted(found, operation, failures, elapsed)
                    if final is error:
                        raise  # not from itself: a cycle would not pickle
                    raise final from error
                self.log_retry(found, failures, pause)
                if self.clock.wait(closed, pause):
                    msg = f"closed while retrying to {operation}"
                    raise ClosedError(msg, stream=self._config.name) from error
            else:
                self.answered = True
                self._answered_at[operation] = self.clock.now()
                return answer

    @contextmanager
    def border(
        self, *, partition: Partition | None = None, offset: int | None = None
    ) -> Iterator[None]:
        """Translate the errors of calls that are not retried.

        Args:
            partition: Set in errors that have none.
            offset: Set in errors that have none.
        """
        try:
            yield
        except BaseException as error:
            if not is_failure(error):
                raise
            found = self.translate(error, partition=partition, offset=offset)
            if found is error:
                raise
            raise found from error

    def exhausted(
        self, error: StreamError, operation: str, failures: int, elapsed: float
    ) -> StreamError:
        """Return the final error, with operation, attempts and time.

        A backend that retries itself has set ``attempts`` of its error.
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


@contextmanager
def masked_errors(masks: Iterable[Callable[[str], str]]) -> Iterator[None]:
    """Mask the secrets of streams in the errors of a block.

    Args:
        masks: One for each stream; the block may add some.
    """
    try:
        yield
    except StreamError as error:
        mask_error(error, all_of(masks))
        raise


def mask_error(error: StreamError, mask: Callable[[str], str]) -> None:
    """Mask an error and those of its causes that can be pickled."""
    error.what = mask(error.what)
    error.args = (error.what,)
    if error.remedy is not None:
        error.remedy = mask(error.remedy)
    cause = error.__cause__
    if cause is error:
        error.__cause__ = None  # a cycle would not pickle
    elif isinstance(cause, StreamError):
        mask_error(cause, mask)
    elif cause is not None:
        error.cause_text = mask(f"{type(cause).__name__}: {cause}")
