"""The quickstart, as somebody types it: what it shows is what comes."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.house import pages
from tests.proving.drivers import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

PAGE = REPOSITORY / "docs" / "quickstart.md"
NUMBER = re.compile(r"\d[\d.]*(?= s\b| rows/s)")
"""What differs from run to run."""


@pytest.mark.long("makes an environment and installs the wheel")
@pytest.mark.usefixtures("own_spark")
def test_the_quickstart_does_what_it_shows(tmp_path: Path) -> None:
    commands = 0
    for block in pages.blocks(PAGE.read_text("utf-8")):
        title = pages.TITLE.search(block.words)
        if title is not None:
            file = tmp_path / title[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
            continue
        for command, shown in console(block.text):
            done = subprocess.run(
                [sys.executable, "-m", *shlex.split(command)],
                capture_output=True,
                text=True,
                check=False,
                cwd=tmp_path,
                timeout=300,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            # The notes of `publish` are shown; they go to standard error.
            said = done.stdout + (done.stderr if "note: " in shown else "")
            said = said.replace(str(tmp_path), "/srv/shop")
            assert plain(said) == plain(shown), command
            commands += 1
    assert commands == 8


def console(text: str) -> list[tuple[str, str]]:
    """Our commands of a console, each with what it prints."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
    found = [part.partition("\n") for part in parts]
    return [(line, out) for line, _, out in found if line.startswith("streamfactory ")]


def plain(text: str) -> list[str]:
    """Lines, but for times and speeds; those of tables in any order."""
    lines = [NUMBER.sub("N", line).rstrip() for line in text.strip().splitlines()]
    return sorted(lines)
