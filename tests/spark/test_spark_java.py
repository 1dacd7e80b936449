"""Which Java Spark starts, and what is said where there is none."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from streamfactory.spark import find_java, prepare_environment

if TYPE_CHECKING:
    from pathlib import Path


def java_in(folder: Path) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java: neither in the environment nor in a virtual one."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("JAVA_HOME", "")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, sys.executable)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))


def test_no_java_is_none() -> None:
    prepare_environment()
    assert find_java() is None


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_java_of_the_path_is_found_where_java_home_leads_nowhere(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = java_in(tmp_path / "system")
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("JAVA_HOME", home)
    prepare_environment()
    assert find_java() == str(program)


@pytest.mark.parametrize("home", ["", "/nowhere"])
def test_java_of_the_virtual_environment_is_found_where_there_is_no_other(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = java_in(tmp_path / "venv" / "java")
    monkeypatch.setenv("JAVA_HOME", home)
    prepare_environment()
    assert find_java() == str(program)


def test_java_home_comes_before_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = java_in(tmp_path / "own")
    monkeypatch.setenv("PATH", str(java_in(tmp_path / "system").parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "own"))
    prepare_environment()
    assert find_java() == str(program)
