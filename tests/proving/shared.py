"""Servers that all workers of a run of tests share.

The first worker that needs one starts it, and writes down where it is. A watcher ends
it when the run ends, however it ends.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.kafka.jars import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pytest

# Ends the server when the run of tests is gone, and removes its data: logs stay.
WATCHER: Final = """
"$@" & child=$!
trap 'kill -TERM $child 2>/dev/null' TERM
while kill -0 $child 2>/dev/null && kill -0 $RUN 2>/dev/null; do sleep 0.3; done
kill -0 $RUN 2>/dev/null || { kill -KILL $child 2>/dev/null; rm -rf "$DATA" $LEFT; }
wait $child
"""


LEFT_TO_THE_WATCHER: Final[list[object]] = []
"""Referenced for as long as the process lives: other workers may use them."""


class Run(NamedTuple):
    """A run of tests, of one process or of several workers."""

    folder: Path
    """That all its processes know."""
    process: int
    """Ends with it."""


def this_run(factory: pytest.TempPathFactory) -> Run:
    """The run that this process belongs to."""
    folder = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        return Run(folder.parent, os.getppid())
    return Run(folder, os.getpid())


def started_once(run: Run, name: str, start: Callable[[], dict[str, Any]]) -> Any:
    """What the first process that asks for a server was told by ``start``."""
    note = run.folder / f"{name}.json"
    with locked(run.folder / f"{name}.lock"):
        if not note.exists():
            note.write_text(json.dumps(start()))
    return json.loads(note.read_text())


def watched(
    command: Sequence[str], run: int, data: Path, log: Path, left: str = ""
) -> subprocess.Popen[bytes]:
    """Start a server in a group of processes, which ends with a run.

    Args:
        command: Of the server.
        run: The process whose end ends it.
        data: A folder that is removed then.
        log: Gets what it prints.
        left: Patterns of other files that are removed.
    """
    variables = {"RUN": str(run), "DATA": str(data), "LEFT": left}
    with log.open("ab") as file:
        return subprocess.Popen(
            ["sh", "-c", WATCHER, "server", *command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=os.environ | variables,
            cwd=log.parent,
            start_new_session=True,
        )
