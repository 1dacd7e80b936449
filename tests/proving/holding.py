"""Processes that are held at a step until they are killed, or released.

A hold is ordered as a file in a folder, and met once: by the first process that comes
to the step. Workers of Spark get a `Holds` by value.
"""

from __future__ import annotations

import os
import time
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST: Final = 60.0
"""Seconds after which a process that nobody lets go on does so."""


class Holds:
    """The holds of one role.

    Args:
        folder: Of the role alone; made here.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = str(folder)

    def order(self, step: str) -> None:
        """Hold who comes to a step next."""
        self._file("ordered").write_text(step)

    def reached(self) -> int | None:
        """The process that is held, once there is one."""
        try:
            return int(self._file("held").read_text())
        except (FileNotFoundError, ValueError):  # not yet written
            return None

    def release(self) -> None:
        """Let everybody go on."""
        for name in ("ordered", "held"):
            self._file(name).unlink(missing_ok=True)

    def at(self, step: str) -> None:
        """Be held here, if that was ordered."""
        try:
            if self._file("ordered").read_text() != step:
                return
            self._file("ordered").unlink()
        except FileNotFoundError:
            return
        self._file("held").write_text(str(os.getpid()))
        deadline = time.monotonic() + LONGEST
        while self._file("held").exists() and time.monotonic() < deadline:
            time.sleep(0.01)

    def before(self, steps: Mapping[str, type]) -> None:
        """Come to a step before each call of a method of this process."""
        for name, owner in steps.items():
            _hook(owner, name, self)

    def _file(self, name: str) -> Path:
        return Path(self.folder, name)


def _hook(owner: type, name: str, holds: Holds) -> None:
    method = getattr(owner, name)

    @wraps(method)
    def held(*arguments: Any, **options: Any) -> Any:
        holds.at(name)
        return method(*arguments, **options)

    setattr(owner, name, held)
