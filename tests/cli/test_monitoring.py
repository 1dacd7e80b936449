"""``monitoring export``: files for Grafana and Prometheus."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from streamfactory.cli.program import run_program

if TYPE_CHECKING:
    from pathlib import Path


def test_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a" / "b"
    assert run_program(["monitoring", "export", "--to", str(folder)]) == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {"streamfactory-dashboard.json", "streamfactory-alerts.yml"}
    shown = capsys.readouterr().out
    assert f"alerts: {folder / 'streamfactory-alerts.yml'}" in shown
    plain = json.loads((folder / "streamfactory-dashboard.json").read_text())
    assert plain["title"] == "streamfactory"
    assert run_program(["monitoring", "export", "--to", str(folder), "alerts"]) == 0


@pytest.mark.parametrize(
    ("kind", "start"), [("alerts", "groups:\n"), ("dashboard", '{\n  "uid"')]
)
def test_one_file_is_printed(
    kind: str, start: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["monitoring", "export", kind]) == 0
    assert capsys.readouterr().out.startswith(start)
    assert run_program(["monitoring", "export", kind, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[kind].startswith(start)


def test_mistakes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_program(["monitoring", "export"]) == 2
    assert "name one of dashboard and alerts" in capsys.readouterr().err
    assert run_program(["monitoring", "export", "dashboards"]) == 2
    taken = tmp_path / "file"
    taken.write_text("")
    assert run_program(["monitoring", "export", "--to", str(taken / "x")]) != 0
    assert "cannot be written" in capsys.readouterr().err
