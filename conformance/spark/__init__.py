"""Simulates Spark's micro-batch engine towards a stream, without a JVM.

``reading`` has the driver and the tasks that read, ``writing`` those that write. Both
keep what Spark keeps over a restart of the driver: logs, and nothing else. A hook is
called between every two calls; what it does there is the schedule: it may write, grow
or truncate the stream, and raise `Crash` to throw the driver away.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.conformance.bench import Bench

Hook = Callable[[str], None]
"""Called with the name of the call that has just returned."""

T = TypeVar("T")
"""What crosses."""


class Crash(Exception):
    """The driver has ended: everything in its memory is lost."""


def ship(thing: T) -> T:
    """What arrives in another process."""
    arrived: T = pickle.loads(pickle.dumps(thing))  # noqa: S301 - our own
    return arrived


@contextmanager
def one_run(bench: Bench) -> Iterator[None]:
    """Keep the script of a run that fails, and of no other."""
    mark = len(bench.script)
    yield
    del bench.script[mark:]


def nothing(step: str) -> None:
    """The hook of a quiet run."""


def crash_at(*numbers: int) -> Hook:
    """A hook that lets the driver die at the steps of these numbers, from 0."""
    steps = iter(range(1_000_000))

    def hook(step: str) -> None:
        if next(steps) in numbers:
            raise Crash(step)

    return hook
