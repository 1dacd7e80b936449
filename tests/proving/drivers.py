"""Programs that start processes of their own, as Spark's drivers do: killed together.

And what a kill at a certain moment leaves of Spark's checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY: Final = Path(__file__).parents[2]
DEADLINE: Final = 400.0
"""Seconds in which a driver comes to where it is killed, or to its end."""


_SLOW: Final = "Python worker failed to connect back"
"""Spark's error when a Python process has not started within ten seconds."""


class MachineBusy(RuntimeError):
    """Spark gave up a Python process that took too long to start: run it again."""


class Driver:
    """A module that runs as a program, in a group with all that it starts.

    Args:
        folder: Where it runs; what it says is in ``driver.log`` there.
        module: Its name.
        *arguments: Of its command line.
        python: Of another environment.
    """

    def __init__(
        self,
        folder: Path,
        module: str,
        *arguments: object,
        python: str = sys.executable,
    ) -> None:
        paths = [str(REPOSITORY), str(REPOSITORY / "src")]
        paths += filter(None, [os.environ.get("PYTHONPATH")])
        self._log = folder / "driver.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, "-m", module, *map(str, arguments)],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(paths),
                    "PYSPARK_PYTHON": python,
                },
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @property
    def group(self) -> int:
        """Its process group."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def wait_for(self, change: Callable[[], bool]) -> bool:
        """Wait until something has changed; False where the driver ended before.

        Raises:
            TimeoutError: Nothing changes; the driver was killed.
        """
        deadline = time.monotonic() + DEADLINE
        while not change():
            if not self.runs:
                return False
            if time.monotonic() > deadline:
                self._kill()
                raise TimeoutError(self._last_words())
            time.sleep(0.01)
        return True

    def kill_after(self, delay: float) -> None:
        """Kill it in so many seconds; it may end first."""
        deadline = time.monotonic() + delay
        while self.runs and time.monotonic() < deadline:
            time.sleep(0.01)
        self.kill()

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        if self.runs:
            self._kill()

    def was_killed(self) -> bool:
        """Wait for its end; one that does not come to it is killed.

        Answers:
            Whether it was killed; False where it ended well.

        Raises:
            MachineBusy: Its machine is too busy.
            RuntimeError: It failed by itself.
        """
        try:
            status = self._process.wait(DEADLINE)
        except BaseException:
            self._kill()
            raise
        if status not in (0, -signal.SIGKILL):
            if _SLOW in self.log:
                raise MachineBusy(self._last_words())
            raise RuntimeError(self._last_words())
        return status != 0

    def succeed(self) -> None:
        """Wait until it has ended well."""
        if self.was_killed():
            raise RuntimeError(self._last_words())

    def failure(self) -> str:
        """Wait until it has failed; all that it said.

        Raises:
            RuntimeError: It ended well, or was killed.
        """
        status = self._process.wait(DEADLINE)
        if status in (0, -signal.SIGKILL):
            msg = f"the driver ended with {status}, and should have failed"
            raise RuntimeError(msg)
        return self.log

    @property
    def log(self) -> str:
        """All that it and what it started have said."""
        return self._log.read_text(errors="replace")

    def _kill(self) -> None:
        os.killpg(self.group, signal.SIGKILL)
        self._process.wait()

    def _last_words(self) -> str:
        return self.log[-4000:]


class Commits:
    """The batches that Spark's checkpoint says are committed, seen from now on.

    A driver that is killed before its first commit has only started: such a kill proves
    nothing of what a restart makes of a batch that is there.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._folder = checkpoint / "commits"
        self._before = self._found()

    @property
    def grown(self) -> bool:
        """Whether a batch was committed since this was made."""
        return bool(self._found() - self._before)

    def _found(self) -> set[str]:
        return {path.name for path in self._folder.glob("[0-9]*")}


def batches_committed(checkpoint: Path) -> int:
    """Batches that Spark's checkpoint has committed since the query began.

    A prover writes as much as the query has read. A driver that is killed after a batch
    or two would leave a backlog that grows with each kill, and the last driver, which
    reads all of it, would need minutes.
    """
    numbers = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    return max(numbers, default=-1) + 1


def forget_commit(checkpoint: Path) -> bool:
    """As when the driver died between the sinks' commits and Spark's own.

    Answers:
        Whether there was a commit to forget.
    """
    commits = [*(checkpoint / "commits").glob("[0-9]*")]
    if not commits:
        return False
    newest = max(commits, key=lambda path: int(path.name))
    newest.unlink()
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    return True
