"""Processes that are killed.

They are forked from a server that has imported everything: one takes milliseconds.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping
    from multiprocessing.connection import Connection

DEADLINE: Final = 180.0
"""Seconds after which a child that should have ended is a failure."""

_LONGEST_LIFE: Final = 0.04
"""Seconds for which one that was hit may have run."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "pandas",  # pyarrow looks for it when it makes its first array
        "pyarrow.compute",
        "streamfactory.backends.file",
        "streamfactory.wiring.streams.opening",
    ]
)


class Child:
    """One process."""

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._ready, ready = _context.Pipe(duplex=False)
        self.process = _context.Process(
            target=_begin, args=(ready, target, arguments), daemon=True
        )
        self._closed = False
        self.process.start()
        ready.close()

    def wait_until_it_runs(self) -> None:
        """Return when the target has been called."""
        self._ready.poll(DEADLINE)

    def kill(self) -> bool:
        """Kill it; False where it had ended well by itself."""
        self.process.kill()
        status = self.join()
        if status not in {0, -signal.SIGKILL}:
            msg = f"a child ended with {status}"
            raise AssertionError(msg)
        return status != 0

    def end(self) -> None:
        """Kill it, whatever became of it."""
        if not self._closed:
            self.process.kill()
            self.join()

    def join(self) -> int:
        """Wait for its end; its exit status, or minus the signal."""
        self.process.join(DEADLINE)
        status = self.process.exitcode
        if status is None:
            self.process.kill()
            self.process.join()
        self.process.close()
        self._ready.close()
        self._closed = True
        if status is None:
            msg = f"a child did not end in {DEADLINE:.0f} s"
            raise TimeoutError(msg)
        return status


def _begin(
    ready: Connection, target: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    logging.getLogger("streamfactory").setLevel(logging.CRITICAL)
    ready.send(True)
    ready.close()
    target(*arguments)


class Pack:
    """Processes that run together; whoever is killed comes again.

    Args:
        roles: By name, what each of them runs.
    """

    def __init__(self, roles: Mapping[str, tuple[Any, ...]]) -> None:
        self._roles = roles
        self._children = {name: Child(*role) for name, role in roles.items()}

    def hunt(
        self,
        kills: int,
        chance: random.Random,
        longest: Mapping[str, float] | None = None,
        wait: Callable[[], None] | None = None,
    ) -> None:
        """Kill some of them, at random moments.

        Args:
            kills: How many.
            chance: Chooses.
            longest: Seconds that one may have run, by name; 0.04 by default.
            wait: Called before each kill; by default the victim is waited for, until
                it runs.
        """
        while kills:
            name = chance.choice(sorted(self._roles))
            (wait or self._children[name].wait_until_it_runs)()
            most = _LONGEST_LIFE if longest is None else longest[name]
            time.sleep(chance.random() * most)
            kills -= self._children[name].kill()
            self._children[name] = Child(*self._roles[name])

    def finish(self, name: str) -> None:
        """Wait until one ends by itself, and well."""
        status = self._children.pop(name).join()
        if status:
            msg = f"{name} ended with {status}"
            raise AssertionError(msg)

    def close(self) -> None:
        """Kill all that are left."""
        children, self._children = self._children, {}
        for child in children.values():
            child.end()


class KillAt:
    """Kills this process before the n-th step of a name; any name where it is None."""

    def __init__(self, name: str | None, number: int) -> None:
        self._name = name
        self._left = number

    def __call__(self, name: str, path: object) -> None:
        if self._name is not None and name != self._name:
            return
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(DEADLINE)  # the signal comes at once, but not always before this
        self._left -= 1
