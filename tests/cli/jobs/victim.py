"""A command line that dies where a test wants it to: the first argument says where.

``{"point": NAME, "count": N}`` dies at the N-th passing of a point, ``{"after": S}`` so
many seconds after the first epoch was opened. ``"then": "hang"`` hangs instead of
dying, and ``"then": "say"`` only says so. ``{}`` lives.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from streamfactory.cli.main import main
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore
from streamfactory.wiring.writing.committer import Committer
from streamfactory.wiring.writing.epochs import Epochs
from streamfactory.wiring.writing.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

POINTS: dict[str, tuple[type, str, bool]] = {
    "before a write": (Writer, "write", False),
    "after a write": (Writer, "write", True),
    "before the attempt ends": (Writer, "commit", False),
    "before the decision": (Committer, "commit", False),
    "after the decision": (Committer, "commit", True),
    "before the checkpoint": (FileCheckpointStore, "save", False),
    "after the checkpoint": (FileCheckpointStore, "save", True),
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say() -> None:
    sys.stderr.write("here\n")
    sys.stderr.flush()


def hang() -> None:
    say()
    while True:
        threading.Event().wait(0.05)


ENDS = {"die": die, "hang": hang, "say": say}


def arm(crash: dict[str, Any]) -> None:
    if "after" in crash:
        made: Callable[..., None] = Epochs.__init__

        def begin(self: Epochs, *given: Any, **named: Any) -> None:
            made(self, *given, **named)
            threading.Timer(crash["after"], die).start()

        setattr(Epochs, "__init__", begin)  # noqa: B010
        return
    end = ENDS[crash.get("then", "die")]
    kind, name, late = POINTS[crash["point"]]
    left = crash["count"]
    method = getattr(kind, name)

    def passing(self: Any, *given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and not late:
            end()
        answer = method(self, *given, **named)
        if left == 0:
            end()
        return answer

    setattr(kind, name, passing)


if __name__ == "__main__":
    said = json.loads(sys.argv.pop(1))
    if said:
        arm(said)
    main()
