"""Runs of pipelines in processes that the pages start, each with a Spark of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import MisuseError
from streamfactory.ui.logs import log_change

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MOST_RUNNING: Final = 8
"""Runs at a time."""
MOST_LINES: Final = 50
"""Lines of a run's output that are kept."""
AS_CONFIGURED: Final = "configured"
PACES: Final = {
    AS_CONFIGURED: "as its file says",
    "once": "with the rows that exist now",
    "continuous": "when it is stopped",
}
"""When a run ends, by pace: an option of the command, but for the first one."""
_GRACE: Final = 1.0
"""Seconds that the end of the pages waits for runs: a signal ends commands in two."""
_LINE: Final = 2000
"""Characters of a line that are kept."""
_COMMAND: Final = (sys.executable, "-m", "streamfactory", "run", "--until-input-ends")


@dataclass(eq=False)
class Run:
    """One run of a pipeline. Changed by `Runs` only, read by pages."""

    number: int
    pipeline: str
    path: Path
    pace: str
    process: subprocess.Popen[str]
    began: float = field(default_factory=time.time)
    """Seconds since 1970."""
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    """The last lines of its output."""
    stopping: bool = False
    again: bool = False
    """Whether another run follows its end."""

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return self.process.poll() is None

    @property
    def state(self) -> str:
        """Running, stopping, restarting; stopped, ended, failed.

        A run that was not stopped has failed if its exit status is not 0.
        """
        status = self.process.poll()
        if status is None:
            if not self.stopping:
                return "running"
            return "restarting" if self.again else "stopping"
        if self.stopping:
            return "stopped"
        return "failed" if status else "ended"

    @property
    def text(self) -> str:
        """Its output."""
        return "\n".join(self.lines.copy())


@final
class Runs:
    """Starts and stops runs, one for each file at a time. Thread-safe.

    Args:
        command: What runs a pipeline, whose pace and file are added. It finishes its
            batch and ends when its standard input ends, so when this process ends, too.
    """

    def __init__(self, command: Sequence[str] = _COMMAND) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._last: dict[str, Run] = {}
        """The last run of each file."""
        self._threads: list[threading.Thread] = []
        self._numbers = 0
        self._closed = False

    def last(self, path: Path) -> Run | None:
        """The last run of a pipeline, which may have ended."""
        with self._lock:
            return self._last.get(_key(path))

    def start(self, pipeline: str, path: Path, pace: str = AS_CONFIGURED) -> Run:
        """Start a run.

        Raises:
            MisuseError: misuse; a run of this file, or too many others, are running.
        """
        with self._lock:
            return self._start(pipeline, path, pace)

    def stop(self, run: Run) -> None:
        """Have a run finish its batch and end; a second time, end at once.

        What it has not committed is repeated by the next run.
        """
        with self._lock:
            run.again = False
            self._stop(run)

    def restart(self, run: Run) -> None:
        """Have a run finish its batch and end, and start another one then."""
        with self._lock:
            run.again = True
            if not run.stopping:
                self._stop(run)

    def close(self) -> None:
        """Stop all runs, and wait for a second until they have ended.

        The others end when they have finished their batches; this process need not
        wait for that.
        """
        with self._lock:
            self._closed = True
            for run in self._last.values():
                run.again = False
                if run.running and not run.stopping:
                    self._stop(run)
            threads = self._threads
        deadline = time.monotonic() + _GRACE
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _start(self, pipeline: str, path: Path, pace: str) -> Run:
        running = [one for one in self._last.values() if one.running]
        if self._closed:
            msg = f"pipeline {pipeline!r} is not started: the pages are ending"
            raise MisuseError(msg, remedy="use `streamfactory run`")
        if any(_key(one.path) == _key(path) for one in running):
            msg = f"pipeline {pipeline!r} is not started: a run of it has not ended"
            raise MisuseError(msg, remedy="wait for its end, or stop it")
        if len(running) >= MOST_RUNNING:
            msg = f"pipeline {pipeline!r} is not started: {len(running)} are running"
            raise MisuseError(msg, remedy="stop one of them first")
        process = subprocess.Popen(  # noqa: S603 - this interpreter and our own command
            [*self._command, *command_of(path, pace)[2:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C is for this process, which stops it then
        )
        self._numbers += 1
        run = Run(self._numbers, pipeline, path, pace, process)
        self._last[_key(path)] = run
        thread = threading.Thread(
            target=self._follow, args=(run,), name=f"run of {pipeline}", daemon=True
        )
        self._threads = [one for one in self._threads if one.is_alive()] + [thread]
        thread.start()
        return run

    def _stop(self, run: Run) -> None:
        if run.stopping:
            run.process.terminate()
            return
        run.stopping = True
        assert run.process.stdin is not None
        run.process.stdin.close()

    def _follow(self, run: Run) -> None:
        """Keep the end of a run's output until it ends; start the run that follows."""
        output = run.process.stdout
        assert output is not None
        assert run.process.stdin is not None
        with output:
            while line := output.readline(_LINE):
                run.lines.append(line.rstrip("\n"))
        run.process.wait()
        with self._lock:
            run.process.stdin.close()
        text = f"pipeline {run.pipeline}: its run has ended, {run.state}"
        log_change(text, {"pipeline": run.pipeline})
        with self._lock:
            if not run.again:
                return
            try:
                self._start(run.pipeline, run.path, run.pace)
            except (MisuseError, OSError) as error:
                run.lines.append(f"not started again: {error}")


def command_of(path: Path, pace: str) -> list[str]:
    """The command that does the same in a terminal."""
    words = [] if pace == AS_CONFIGURED else [f"--{pace}"]
    return ["streamfactory", "run", *words, "--", str(path)]


def _key(path: Path) -> str:
    return os.path.realpath(path)
