"""Snippets for schedulers, run by each in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import venv
from typing import TYPE_CHECKING

import pytest
from tests.house import pages
from tests.proving.drivers import REPOSITORY
from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from pathlib import Path

PAGE = REPOSITORY / "docs" / "operations.md"
DAGSTER = """
import sys

import dagster as dg
import snippet

schedule = snippet.defs.resolve_schedule_def("spent_often")
assert schedule.cron_schedule == "*/5 * * * *"
assert snippet.defs.resolve_job_def(schedule.job_name).name == schedule.job_name
result = dg.materialize([snippet.spent], raise_on_error=False)
sys.exit(0 if result.success else 3)
"""


def snippet(package: str) -> str:
    """The block of the page that imports a package."""
    blocks = pages.blocks(PAGE.read_text("utf-8"))
    code = [one.text for one in blocks if one.language == "python"]
    (found,) = [text for text in code if f" {package}" in text]
    return found


@pytest.mark.long("installs Dagster")
def test_dagster_runs_the_pipeline_and_sees_how_it_ended(tmp_path: Path) -> None:
    python = environment(tmp_path, "dagster", "snippet.py")
    (tmp_path / "check.py").write_text(DAGSTER)
    settings = {"DAGSTER_HOME": "", "DAGSTER_DISABLE_TELEMETRY": "1"}
    for status, ended in ((0, 0), (130, 0), (1, 3), (2, 3)):
        done = run(tmp_path, status, [python, "check.py"], settings)
        assert done.returncode == ended, done.stdout + done.stderr


@pytest.mark.long("installs Airflow")
def test_airflow_runs_the_pipeline_and_sees_how_it_ended(tmp_path: Path) -> None:
    python = environment(tmp_path, "apache-airflow", "dags/snippet.py")
    settings = {"AIRFLOW_HOME": str(tmp_path), "AIRFLOW__CORE__LOAD_EXAMPLES": "False"}
    airflow = python.with_name("airflow")
    done = run(tmp_path, 0, [airflow, "db", "migrate"], settings, called=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for status, state in ((0, "success"), (130, "skipped"), (1, "failed")):
        command = [airflow, "dags", "test", "spent", "2026-11-29"]
        done = run(tmp_path, status, command, settings)
        assert f"state={state}" in done.stdout + done.stderr


def run(
    folder: Path,
    status: int,
    command: list[object],
    settings: dict[str, str],
    *,
    called: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run a scheduler, where the command `streamfactory` ends with a status."""
    programs = folder / "environment" / "bin"
    program, arguments = programs / "streamfactory", folder / "streams" / "called"
    program.write_text(f'#!/bin/sh\necho "$@" > called\nexit {status}\n')
    program.chmod(0o755)
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env={
            **os.environ,
            **settings,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if called:
        words = arguments.read_text().strip()
        assert words == "run spent --once --log-format json", done.stderr
        arguments.unlink()
    return done


def environment(folder: Path, package: str, name: str) -> Path:
    """Make an environment with a package, and the snippet that uses it.

    Args:
        folder: Where; the pipeline's is ``streams`` in it.
        package: The package.
        name: File of the snippet.

    Returns:
        Its Python.
    """
    (folder / "streams").mkdir()
    text = snippet(package.removeprefix("apache-"))
    assert text.count('"/srv/streams"') == 1
    text = text.replace("/srv/streams", str(folder / "streams"))
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text.replace("retries=3", "retries=0"))
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / "bin" / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", package],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if done.returncode:
        skip_or_fail(f"pip cannot install {package}: {done.stderr[-500:]}")
    return python
