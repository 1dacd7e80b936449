"""Rows enter a log as `SoundRows` only: mypy refuses every other way."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
from streamfactory.arrowlog import SoundStage
from streamfactory.backends.flight.server.batches import Incoming, UncheckedRows
from streamfactory.spi import BatchValidator, SoundRows


def f(
    stage: SoundStage, received: UncheckedRows, validator: BatchValidator, rows: object
) -> None:
    stage.append_sound(0, received)  # refused
    stage.append_sound(0, rows)  # refused
    SoundRows(rows)  # refused
    received.nbytes  # refused
    received.batch  # refused
    sound = received.validated(validator)
    sound.batch = rows  # refused
    stage.append_sound(0, sound)
    stage.append_sound(0, sound.slice(0, 1))


def g(incoming: Incoming, stage: SoundStage) -> None:
    for rows, _ in incoming.received():
        if rows is not None:
            stage.append_sound(0, rows)  # refused
            len(rows)  # refused
    for sound, _ in incoming.sound():
        if sound is not None:
            stage.append_sound(0, sound)


class Forged(SoundRows):  # refused
    pass


class Bypass(SoundStage):
    def append(self, partition: int, rows: object) -> None:  # refused
        pass
"""


@pytest.mark.slow("runs mypy")
def test_mypy_refuses_every_way_around_the_validator(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml"]
    done = subprocess.run(
        [*command, str(tmp_path / "program.py")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    refused = re.findall(r"program\.py:(\d+): error", done.stdout)
    lines = PROGRAM.splitlines()
    expected = [n for n, line in enumerate(lines, 1) if "# refused" in line]
    assert sorted(set(map(int, refused))) == expected, done.stdout + done.stderr


OWNERS = {
    r"object\.__new__\(SoundRows": {"spi/soundness/__init__.py"},
    r"\b_sound\(": {"spi/soundness/__init__.py"},
    r"\bUncheckedRows\(": {"backends/flight/server/batches.py"},
    r"\.append_sound\(": {
        "arrowlog/stages.py",
        "backends/flight/server/plain.py",
        "backends/flight/server/uploads.py",
        "backends/flight/server/writing.py",
    },
}


@pytest.mark.parametrize("pattern", OWNERS)
def test_these_modules_alone_handle_rows_on_their_way_into_a_log(pattern: str) -> None:
    folders = {path.parent for path in ROOT.glob("*/__init__.py")} - {ROOT / "tests"}
    found = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in folder.rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }
    assert found == OWNERS[pattern]
