"""What is at a path that a user or a catalogue names."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def _mode(path: Path) -> int:
    """The mode of what is at a path, links followed; 0 if nothing can be there.

    Unlike `Path.is_file` of Python 3.11, also for a name that is longer than the file
    system allows, for a null character, and below a folder that may not be entered.
    """
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0


def is_file(path: Path) -> bool:
    """Whether a regular file is at a path."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Whether a folder is at a path."""
    return stat.S_ISDIR(_mode(path))


def is_special(path: Path) -> bool:
    """Whether neither a file nor a folder, but something, is at a path."""
    mode = _mode(path)
    return mode != 0 and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
