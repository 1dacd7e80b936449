"""Folders that killed processes left beside the topics of a folder."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LEFT: Final = ".left-"
"""Prefix of folders that are being created or removed. Their process keeps them locked:
one that is not locked is removed by the process that finds it."""


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Be the only one who gives or takes the name of a topic, for a moment."""
    file = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def left_folders(root: Path) -> list[Path]:
    """Those of processes that were killed while they made or removed a topic."""
    found = [path for path in root.iterdir() if path.name.startswith(LEFT)]
    return [path for path in found if _is_free(path)]


def remove_left(root: Path) -> None:
    """Remove them."""
    with alone(root):
        for path in left_folders(root):
            shutil.rmtree(path, ignore_errors=True)


def _is_free(path: Path) -> bool:
    """Whether no process has locked a folder."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True
