"""Folders below a root, when several threads use them."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk.folders import Folders, Modes

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_that_is_closed_concurrently_is_listed(tmp_path: Path) -> None:
    """A descriptor that was closed, and given to another folder, would list that."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"of-{name}").touch()
    folders = Folders(tmp_path, Modes())
    stop = threading.Event()

    def forget() -> None:
        while not stop.is_set():
            folders.forget()
            folders.has(str(tmp_path / "b"))

    interval = sys.getswitchinterval()
    other = threading.Thread(target=forget)
    other.start()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5000):
            assert folders.names(str(tmp_path / "a")) == ["of-a"]
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        other.join()
