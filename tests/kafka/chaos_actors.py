"""Processes of `tests.kafka.chaos_proving` that come again when they are killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.kafka.conftest import READING, WRITING
from tests.proving.drivers import Driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.chaos_roles import Place
    from tests.proving.children import Child

TRANSIENT: Final = ("connection_failed", "timeout", "transient", "partial_metadata")
"""Errors of a query that brokers may cause."""
CRASHED: Final = "Python worker exited unexpectedly (crashed)"
"""How a query ends whose process was killed while it planned or committed."""


class Role:
    """One process that comes again when it is killed, and those that it succeeded."""

    def __init__(self, start: Callable[[], Child]) -> None:
        self._start = start
        self.child = start()

    @property
    def pid(self) -> int:
        assert self.child.process.pid is not None
        return self.child.process.pid

    def revive(self) -> None:
        """Start it again where it ended, as it may by an error of `ended_by`."""
        if not self.child.process.is_alive():
            self.kill()

    def kill(self) -> bool:
        """Kill it, and start another; False where it had ended by itself."""
        killed = self.child.kill()
        self.child = self._start()
        return killed

    def succeed(self) -> Child:
        """Start a successor, while this one may still run."""
        old, self.child = self.child, self._start()
        return old

    def end(self) -> None:
        self.child.end()


class Query:
    """The driver of the query on Spark, and its executors."""

    def __init__(self, place: Place, choose: Callable[[], bool]) -> None:
        self._place = place
        self._choose = choose
        self.ends: Counter[str] = Counter()
        """How often it ended by an error."""
        self._path = os.environ.get("PYTHONPATH")
        self._home = linked(place.file("spark"))
        self.start("follow")

    def start(self, mode: str) -> None:
        self._was_shot = False
        path = "required" if self._choose() else "off"
        os.environ.update({READING: path, WRITING: path})
        paths = [self._place.native, self._path]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        os.environ["SPARK_HOME"] = str(self._home)
        arguments = (self._place.root, self._place.bootstrap, mode)
        folder = Path(self._place.root)
        self.driver = Driver(folder, "tests.kafka.chaos_driver", *arguments)

    @property
    def batches(self) -> int:
        """Batches that its checkpoint has committed."""
        commits = self._place.file("checkpoint/commits").glob("[0-9]*")
        return max((int(path.name) for path in commits), default=-1) + 1

    def revive(self) -> None:
        """Start it again where brokers, or a kill of one of its processes, ended it.

        Raises:
            RuntimeError: Something else has.
        """
        if self.driver.runs:
            return
        log = self.driver.log
        codes = [code for code in TRANSIENT if f"[{code}]" in log]
        if self._was_shot and CRASHED in log:
            codes.append("killed")
        if not codes and "Python worker failed to connect back" not in log:
            raise RuntimeError(log[-6000:])
        self.ends[codes[0] if codes else "busy"] += 1
        self.start("follow")

    def processes(self, word: str) -> list[int]:
        """Its processes with a word in their command lines."""
        return [
            pid for pid in descendants(self.driver.group) if word in command_of(pid)
        ]

    def shoot(self, pid: int) -> None:
        """Kill one of its processes."""
        self._was_shot = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill(self) -> bool:
        """Kill the driver with all that it has started; start another."""
        was = self.driver.runs
        self.driver.kill()
        self.start("follow")
        return was

    def drain(self) -> None:
        """Let a driver read to the end."""
        self.driver.kill()
        self.start("available")
        self.driver.succeed()


def linked(folder: Path) -> Path:
    """A home of Spark with links to PySpark's files: executors run in it."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    folder.mkdir()
    for path in Path(found.origin).parent.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, directly or not."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parents[int(folder.name)] = parent_of(int(folder.name))
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
