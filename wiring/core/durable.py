"""Atomic and durable writes of local files (rule P3)."""

from __future__ import annotations

import os
import uuid
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and sync the parent of each."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def replace_file(
    path: Path, content: bytes, unchanged: AbstractContextManager[object] | None = None
) -> None:
    """Replace a file atomically by rename; the caller syncs its folder.

    Args:
        path: The file.
        content: Its new content.
        unchanged: Entered for the time of the rename, which it may refuse.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with unchanged or nullcontext():
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that its entries survive a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
