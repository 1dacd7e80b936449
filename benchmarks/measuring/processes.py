"""What the processes that Spark starts use: processor time, memory, threads. Linux."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator

_PERIOD: Final = 0.02
"""Seconds between two samples."""


class WorkerPeaks:
    """The most that any Python worker below this process used; a context manager."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        """Resident memory of the largest worker, at its peak."""
        self.threads = 0
        self.descriptors = 0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._sampler.join()

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD):
            for pid in _workers():
                with suppress(OSError, ValueError):  # it has just ended
                    self._sample(pid)

    def _sample(self, pid: int) -> None:
        status = Path(f"/proc/{pid}/status").read_text().split()
        peak = int(status[status.index("VmHWM:") + 1]) / 1024
        threads = int(status[status.index("Threads:") + 1])
        descriptors = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        self.megabytes = max(self.megabytes, peak)
        self.threads = max(self.threads, threads)
        self.descriptors = max(self.descriptors, descriptors)


def tree_seconds(pid: int) -> float:
    """Processor time of a process and of all below it, ended ones included."""
    ticks = 0
    for one in [pid, *_children_of(pid, recursive=True)]:
        with suppress(OSError):  # it has just ended: its parent has its time
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _workers() -> Iterator[int]:
    """Processes that PySpark's daemon forked."""
    for daemon in _children_of(os.getpid(), recursive=True):
        with suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{daemon}/cmdline").read_bytes():
                yield from _children_of(daemon)


def _children_of(pid: int, *, recursive: bool = False) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            listed = (task / "children").read_text().split()
            for child in map(int, listed):
                yield child
                if recursive:
                    yield from _children_of(child, recursive=True)
