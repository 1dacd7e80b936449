"""The state of one job, followed while the job runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import ConfigError, Sample
from streamfactory.wiring.controls.states import Controls, JobState
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.metrics import vocabulary as v
from streamfactory.wiring.metrics.registry import registry

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    from streamfactory.wiring.controls.states import Pause
    from streamfactory.wiring.core.throttle import Rate

_LOOK: Final = 0.2
"""Seconds between two looks at the file."""


@final
class Control:
    """Follows what users ask of a job that runs. Thread-safe.

    Args:
        job: Its name, as of `wiring.controls.states`.
        controls: The states of jobs; by default those of the catalogue.
        limited: Whether the job keeps a rate; otherwise one has no effect, as the log
            says.

    Raises:
        ConfigError: config; the file of the job cannot be read.
    """

    def __init__(
        self, job: str, controls: Controls | None = None, *, limited: bool = True
    ) -> None:
        self.job = job
        self._limited = limited
        self._controls = controls or Controls()
        self._state = self._controls.read(job)
        self._next = time.monotonic() + _LOOK
        self._trouble = ""
        self._tally = _Tally(job)
        self._note(JobState())
        registry.track(self, self._tally)

    @property
    def state(self) -> JobState:
        """What is asked of the job, some 0.2 s ago at most. Does not raise.

        Once the job runs, a file that cannot be read changes nothing: it is logged.
        """
        if time.monotonic() < self._next:
            return self._state
        self._next = time.monotonic() + _LOOK
        before = self._state
        try:
            self._state = self._controls.read(self.job)
            self._trouble = ""
        except ConfigError as error:
            if self._trouble != error.what:
                self._trouble = error.what
                log.warning("job %r continues as before: %s", self.job, error)
        self._note(before)
        return self._state

    @property
    def pause(self) -> Pause | None:
        """Why the job is to wait; None if it is not. Does not raise."""
        return self.state.pause

    def rate(self, otherwise: Rate) -> Rate:
        """The most that the job is to read per second. Does not raise.

        Args:
            otherwise: If nothing is asked of it.
        """
        asked = self.state.rate
        return otherwise if asked is None else asked

    def wait(self, stop: threading.Event) -> None:
        """Wait until the job is resumed, or the stop is set."""
        while self.pause is not None and not stop.wait(_LOOK):
            pass

    def _note(self, before: JobState) -> None:
        if self._state.rate != before.rate:
            limit = self._state.rate or "as its stream configures"
            what = "job %r: its rate is %s"
            if not self._limited:
                what = "job %r: it reads without limits, so a rate has no effect: %s"
            log.warning(what, self.job, limit)
        pause = self._state.pause
        self._tally.paused = pause is not None
        if pause is not None and pause != before.pause:
            how = f"streamfactory resume {self.job}"
            log.warning("job %r is %s; to continue: %s", self.job, pause, how)
        elif pause is None and before.pause is not None:
            log.warning("job %r was resumed", self.job)


class _Tally:
    """The metrics of a job."""

    def __init__(self, job: str) -> None:
        self._job = job
        self.paused = False

    def counters(self) -> tuple[()]:
        """See `Tally`."""
        return ()

    def gauges(self) -> Iterator[Sample]:
        """See `Tally`."""
        yield Sample(v.JOB_PAUSED, (self._job,), self.paused)
