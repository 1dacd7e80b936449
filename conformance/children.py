"""Processes of the kit that are killed, or write beside one another.

They are forked by a helper process that has imported everything and used nothing: one
takes milliseconds, and no thread or connection of the kit's own process is in it.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import subprocess
import sys
import time
import traceback
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.conformance.expectations import Excluded, Mismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PATIENCE: Final = 60.0
"""Seconds that a child may run, its start included."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a child does."""

    role: Callable[..., Any]
    """A function of a module: the child imports it by name."""
    arguments: tuple[Any, ...]
    kill_after: float | None = None
    """Seconds after which it is killed; None for not."""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a child."""

    answer: Any = None
    """Of its function."""
    killed: bool = False
    """It was killed, or killed itself, before it could answer."""
    error: str | None = None
    """What its function raised, as a traceback."""

    @property
    def problem(self) -> str:
        """The last line of the error; empty where there is none."""
        return self.error.strip().splitlines()[-1] if self.error else ""

    def result(self) -> Any:
        """The answer; None of one that was killed.

        Raises:
            Mismatch: Its function raised.
        """
        if self.error:
            msg = f"in another process: {self.problem}"
            raise Mismatch(msg)
        return self.answer


@final
class Nursery:
    """The helper process. Its owner closes it.

    Raises:
        Excluded: This system cannot fork.
    """

    def __init__(self) -> None:
        if not hasattr(os, "fork"):
            msg = "this system cannot fork"
            raise Excluded(msg)
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, our own words
            [sys.executable, "-c", f"from {__name__} import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths},
        )

    def run(self, *tasks: Task) -> list[Ended]:
        """Run children side by side, and wait for all of them.

        Raises:
            Mismatch: A child did not end in time, or the helper broke off.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(pickle.dumps(tasks))
            self._process.stdin.flush()
            answer = pickle.load(self._process.stdout)  # noqa: S301 - our own
        except (EOFError, BrokenPipeError) as error:
            msg = "the process that starts the children has ended"
            raise Mismatch(msg) from error
        if isinstance(answer, str):
            raise Mismatch(answer)
        ended: list[Ended] = answer
        return ended

    def close(self) -> None:
        """End the helper; twice is fine."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a module in another process, which has used nothing yet."""
    with closing(Nursery()) as nursery:
        [ended] = nursery.run(Task(_call, (pickle.dumps((function, arguments)),)))
    return ended.result()


def _call(data: bytes) -> Any:
    # Unpickled here: the helper does not import what the child is to import itself.
    function, arguments = pickle.loads(data)  # noqa: S301 - our own
    return function(*arguments)


def die() -> None:
    """Kill this process by SIGKILL, which it cannot handle."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(PATIENCE)  # the signal comes at once, but not always before this


# --- in the helper --------------------------------------------------------------


def serve() -> None:
    """What the helper does, until its standard input ends."""
    # What children print is no answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            tasks = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own
            answer: Any = _run(tasks)
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001 - raised again by the caller
            answer = f"{type(error).__name__}: {error}"
        answers.write(pickle.dumps(answer))
        answers.flush()


def _run(tasks: Sequence[Task]) -> list[Ended] | str:
    began = time.monotonic()
    children = [_fork(task) for task in tasks]
    words = [b""] * len(tasks)
    late = False
    with selectors.DefaultSelector() as selector:
        for index, (_, end) in enumerate(children):
            selector.register(end, selectors.EVENT_READ, index)
        kills = {
            index: began + task.kill_after
            for index, task in enumerate(tasks)
            if task.kill_after is not None
        }
        while selector.get_map():
            now = time.monotonic()
            for index in [i for i, at in kills.items() if at <= now]:
                del kills[index]
                os.kill(children[index][0], signal.SIGKILL)
            if now > began + PATIENCE and not late:
                late = True
                for pid, _ in children:
                    os.kill(pid, signal.SIGKILL)
            until = min([*kills.values(), began + PATIENCE + 1])
            for key, _ in selector.select(max(0.0, until - now)):
                part = os.read(key.fd, 1 << 16)
                words[key.data] += part
                if not part:
                    selector.unregister(key.fd)
    for pid, end in children:
        os.close(end)
        os.waitpid(pid, 0)
    if late:
        return f"a process did not end within {PATIENCE:.0f} s"
    return [_ended(word) for word in words]


def _ended(word: bytes) -> Ended:
    # A child that was killed while it replied has written only a part.
    with suppress(EOFError, pickle.UnpicklingError):
        ended = pickle.loads(word)  # noqa: S301 - our own
        if isinstance(ended, Ended):
            return ended
    return Ended(killed=True)


def _fork(task: Task) -> tuple[int, int]:
    """The child's id, and where its answer is read."""
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    try:
        os.close(read)
        try:
            ended = Ended(task.role(*task.arguments))
        except BaseException:  # noqa: BLE001 - raised again by the parent
            ended = Ended(error=traceback.format_exc())
        with os.fdopen(write, "wb") as answer:
            answer.write(pickle.dumps(ended))
    finally:
        os._exit(0)
