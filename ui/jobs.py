"""Jobs that a page starts and that outlast its request."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import MisuseError, StreamError
from streamfactory.wiring.core.defects import InternalError
from streamfactory.wiring.core.shown import plain_error

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_JOBS: Final = 100
"""Jobs whose results are kept."""
MOST_RUNNING: Final = 8
"""Jobs that run at a time."""

_log = logging.getLogger("streamfactory.ui")


@dataclass
class Job:
    """One job. Written by its thread, read by pages."""

    number: int
    title: str
    streams: tuple[str, ...] = ()
    """What it reads and writes."""
    stop: threading.Event = field(default_factory=threading.Event)
    rows: int = 0
    """Rows so far."""
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None

    @property
    def state(self) -> str:
        """``running``, ``done`` or ``failed``."""
        if self.error is not None:
            return "failed"
        return "running" if self.result is None else "done"


@final
class Jobs:
    """Runs some jobs in threads, one for each title at a time. Thread-safe.

    Args:
        kept: Jobs whose results are kept.
    """

    def __init__(self, kept: int = MOST_JOBS) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._jobs: OrderedDict[int, Job] = OrderedDict()
        self._numbers = 0
        self._threads: list[threading.Thread] = []

    def start(
        self,
        title: str,
        function: Callable[[Job], dict[str, Any]],
        streams: tuple[str, ...] = (),
    ) -> Job:
        """Start a job.

        Args:
            title: What is done to what.
            function: Does it, and returns the result as plain values; it ends soon
                after ``stop`` of the job is set.
            streams: What it reads and writes.

        Raises:
            MisuseError: misuse; a job with this title is running, or too many are.
        """
        with self._lock:
            running = [job for job in self._jobs.values() if job.state == "running"]
            if any(job.title == title for job in running):
                msg = f"{title}: it is running already"
                raise MisuseError(msg, remedy="wait until it has ended")
            if len(running) >= MOST_RUNNING:
                msg = f"{title}: not started, because {len(running)} jobs are running"
                raise MisuseError(msg, remedy="wait until one has ended, or stop one")
            self._numbers += 1
            job = Job(self._numbers, title, streams)
            self._jobs[job.number] = job
            ended = [job for job in self._jobs.values() if job.state != "running"]
            for old in ended[: max(0, len(self._jobs) - self._kept)]:
                del self._jobs[old.number]
        thread = threading.Thread(
            target=_run, args=(job, function), name=title, daemon=True
        )
        with self._lock:
            self._threads = [one for one in self._threads if one.is_alive()]
            self._threads.append(thread)
            thread.start()
        return job

    def get(self, number: int) -> Job | None:
        """A job by its number."""
        with self._lock:
            return self._jobs.get(number)

    def list(self) -> list[Job]:
        """All jobs, newest first."""
        with self._lock:
            return list(self._jobs.values())[::-1]

    def stop(self, seconds: float = 10.0) -> None:
        """Stop all jobs, and wait until they have ended, up to a limit.

        A replay that does not end in time is continued by the same replay.
        """
        for job in self.list():
            job.stop.set()
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _run(job: Job, function: Callable[[Job], dict[str, Any]]) -> None:
    try:
        job.result = function(job)
    except StreamError as error:
        job.error = plain_error(error)
    except Exception as error:  # noqa: BLE001 - shown on its page
        _log.exception("%s failed", job.title)
        job.error = InternalError(type(error).__name__).to_dict()
