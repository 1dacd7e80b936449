"""Where tests write: in memory, where the machine has room.

Tests sync thousands of files and remove ten times as many, which on a disk takes half
of their time. What a power cut leaves is simulated (`tests.proving.power`), and a
killed process leaves the same files wherever they are.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from tempfile import gettempdir
from typing import Final

from streamfactory.spi.references import FOLDERS

MEMORY: Final = Path("/dev/shm")
NEEDED: Final = 4 << 30
"""Bytes that have to be free in it; the suite takes a tenth."""


def use_memory() -> None:
    """Let pytest's folders be in memory, unless the caller has chosen a place."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= NEEDED:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def allow_secrets() -> None:
    """Let harnesses refer to secrets in their folders, in every process of the run."""
    os.environ[FOLDERS] = os.pathsep.join([str(MEMORY), gettempdir()])
