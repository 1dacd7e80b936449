"""What a case left open: threads, files, sockets, child processes."""

from __future__ import annotations

import contextlib
import gc
import os
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamfactory.conformance.patience import USUAL, Waits

_DESCRIPTORS: Final = Path("/proc/self/fd")
_COLLECTIONS: Final = {1, 2, 4, 8}
"""Looks after which garbage is collected, which takes as long as a case."""
_NUMBERS: Final = re.compile(r"[0-9]+")


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is open at one moment."""

    threads: frozenset[str]
    descriptors: frozenset[str]
    children: frozenset[int]

    def left_since(self, before: Inventory, others: Inventory) -> list[str]:
        """A text of what is open now and was not then.

        What replaces another of its kind is left out: clients of other users of the
        process reconnect.

        Args:
            before: What was open then.
            others: What was open before the backend was first used; what the backend
                itself left earlier replaces nothing when it ends.
        """
        threads = _added(self.threads, before.threads, others.threads)
        descriptors = _added(self.descriptors, before.descriptors, others.descriptors)
        return [
            *(f"thread {name}" for name in threads),
            *(f"open {name}" for name in descriptors),
            *(f"child process {c}" for c in sorted(self.children - before.children)),
        ]


def _added(
    now: frozenset[str], before: frozenset[str], others: frozenset[str]
) -> list[str]:
    """New names, less as many of each kind as were closed meanwhile."""
    closed = Counter(_NUMBERS.sub("", name) for name in (before & others) - now)
    found = []
    for name in sorted(now - before):
        kind = _NUMBERS.sub("", name)
        if closed[kind]:
            closed[kind] -= 1
        else:
            found.append(name)
    return found


def take() -> Inventory:
    """Count what is open."""
    threads = {f"{t.name} ({t.ident})" for t in threading.enumerate() if t.is_alive()}
    return Inventory(frozenset(threads), _descriptors(), _children())


def left_since(
    before: Inventory, others: Inventory | None = None, waits: Waits = USUAL
) -> list[str]:
    """What stays open, after what is ending was given time to end.

    Args:
        before: What was open before.
        others: As of `Inventory.left_since`; None is ``before``.
        waits: For how long.
    """
    deadline, looks = time.monotonic() + waits.settle, 0
    while True:
        left = take().left_since(before, others or before)
        looks += 1
        if not left or (looks > waits.looks and time.monotonic() > deadline):
            return left
        if looks in _COLLECTIONS or looks == waits.looks:
            gc.collect()
        time.sleep(min(0.01 * looks, 0.2))


def _descriptors() -> frozenset[str]:
    if not _DESCRIPTORS.is_dir():
        return frozenset()
    found = set()
    for entry in _DESCRIPTORS.iterdir():
        try:
            found.add(f"{entry.name} -> {entry.readlink()}")
        except OSError:  # the descriptor of the listing is closed by now
            continue
    return frozenset(found)


def _children() -> frozenset[int]:
    # A child of a thread that ends moves to the list of another thread, which may have
    # been read already: then the next reading has it.
    return frozenset(_listed_children() | _listed_children())


def _listed_children() -> set[int]:
    # The system keeps a list for each thread: cases run in threads of their own.
    found: set[int] = set()
    for listing in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found.update(int(word) for word in listing.read_text().split())
    return found
