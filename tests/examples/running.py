"""Runs an example as a user does, and compares it with docs/examples.md."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.house import pages
from tests.proving.drivers import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EXAMPLES = REPOSITORY / "examples"
PAGE = REPOSITORY / "docs" / "examples.md"
SECONDS = re.compile(r"\d[\d.,]*(?= s\b| rows/s)")
"""What differs from run to run."""
PATIENCE = 300
BLOCK = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec
PathFinder.find_spec = staticmethod(
    lambda name, *rest: None if name == "{0}" else find(name, *rest)
)
"""
"""Makes a module of a Python process look as if it were not installed."""


def words(command: str) -> list[str]:
    """A command line, with this interpreter and the examples of the repository."""
    found = shlex.split(command)
    assert found[0] == "python"
    return [sys.executable, str(REPOSITORY / found[1]), *found[2:]]


def shown(command: str) -> list[str]:
    """What the page shows behind a command."""
    for block in pages.blocks(PAGE.read_text("utf-8")):
        head, _, rest = block.text.partition("\n")
        if head == f"$ {command}":
            return [SECONDS.sub("N", line) for line in rest.splitlines()]
    msg = f"docs/examples.md does not show `{command}`"
    raise AssertionError(msg)


def printed(text: str) -> list[str]:
    """What a command printed, without its times."""
    return [SECONDS.sub("N", line.rstrip()) for line in text.splitlines()]


def environment(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of an example: its temporary files go to a folder."""
    folder.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(folder), **(more or {})}


def run(command: str, folder: Path, *arguments: str, **more: str) -> str:
    """Run an example in an empty folder; it succeeds, and leaves no file.

    Args:
        command: As the page shows it.
        folder: An empty folder.
        arguments: More of them than shown.
        more: Environment variables.

    Returns:
        What it printed.
    """
    done = subprocess.run(
        [*words(command), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment(folder / "tmp", more),
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    return done.stdout


def execute(notebook: Path, folder: Path, **more: str) -> list[Any]:
    """Execute a copy of a notebook.

    Args:
        notebook: The notebook.
        folder: An empty folder.
        more: Environment variables.

    Returns:
        The outputs of all cells.
    """
    copy = folder / notebook.name
    shutil.copy(notebook, copy)
    done = subprocess.run(
        [sys.executable, "-m", "jupyter", "execute", "--inplace", copy.name],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment(folder / "tmp", more),
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    cells = json.loads(copy.read_text("utf-8"))["cells"]
    return [one for cell in cells for one in cell.get("outputs", [])]


def run_without(module: str, command: str, folder: Path) -> str:
    """Run an example where a module cannot be imported, nor in its children; it fails.

    Returns:
        What it printed, and wrote to standard error.
    """
    block = folder / "block"
    block.mkdir()
    (block / "sitecustomize.py").write_text(BLOCK.format(module), "utf-8")
    path = os.pathsep.join([str(block), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        words(command),
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=environment(folder / "tmp", {"PYTHONPATH": path}),
        timeout=PATIENCE,
    )
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr
