"""Packages as they were at a tag."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def last_tag(repository: Path) -> str | None:
    """The newest tag before what is checked out; None where there is none."""
    done = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def wheel_of(repository: Path, tag: str, tree: str, folder: Path) -> Path:
    """Build the wheel of a folder of a repository, as it was at a tag.

    Args:
        repository: Where git finds the tag.
        tag: Its name.
        tree: The folder with ``pyproject.toml``, below the repository.
        folder: Where it is unpacked and built.
    """
    archive = subprocess.run(
        ["git", "archive", "--format=tar", tag, tree],
        cwd=repository,
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as members:
        members.extractall(folder, filter="data")
    built = folder / "built"
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)],
        cwd=folder / tree,
        check=True,
        capture_output=True,
        timeout=300,
    )
    [wheel] = built.glob("*.whl")
    return wheel
