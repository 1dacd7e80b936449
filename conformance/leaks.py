"""What a case left open: threads, files, sockets, child processes."""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = Path("/proc/self/fd")
_SETTLE: Final = 2.0
"""Seconds in which threads and children that were told to end may still end."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is open at one moment."""

    threads: frozenset[str]
    descriptors: frozenset[str]
    children: frozenset[int]

    def left_since(self, before: Inventory) -> list[str]:
        """In words, what is open now and was not then."""
        found = [f"thread {name}" for name in sorted(self.threads - before.threads)]
        found += [
            f"open {name}" for name in sorted(self.descriptors - before.descriptors)
        ]
        return found + [
            f"child process {c}" for c in sorted(self.children - before.children)
        ]


def take() -> Inventory:
    """Count what is open."""
    threads = {f"{t.name} ({t.ident})" for t in threading.enumerate() if t.is_alive()}
    return Inventory(frozenset(threads), _descriptors(), _children())


def left_since(before: Inventory) -> list[str]:
    """What stays open, after what is ending was given time to end."""
    deadline = time.monotonic() + _SETTLE
    while True:
        left = take().left_since(before)
        if not left or time.monotonic() > deadline:
            return left
        gc.collect()  # which takes as long as a case
        time.sleep(0.01)


def _descriptors() -> frozenset[str]:
    if not _DESCRIPTORS.is_dir():
        return frozenset()
    found = set()
    for entry in _DESCRIPTORS.iterdir():
        try:
            found.add(f"{entry.name} -> {entry.readlink()}")
        except OSError:  # the listing's own descriptor is gone by now
            continue
    return frozenset(found)


def _children() -> frozenset[int]:
    listing = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    try:
        return frozenset(int(word) for word in listing.read_text().split())
    except OSError:
        return frozenset()
