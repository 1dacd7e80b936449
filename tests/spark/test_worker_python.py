"""The Python that Spark's processes on this machine are started with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamfactory.spark import prepare_environment
from streamfactory.spark.interpreter import python_of_workers

if TYPE_CHECKING:
    import pytest

ASK = "import json, os, sys; print(json.dumps([sys.prefix, os.environ['PYTHONPATH']]))"
NAMES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")


def asked(path: str) -> Any:
    """The prefix and the path of a worker's interpreter."""
    done = subprocess.run(
        [python_of_workers(), "-c", ASK],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(done.stdout)


def unset(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Have them not set, and as they are after the test."""
    for name in names:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_it_is_this_interpreter_without_the_archives() -> None:
    given = "/a b/*:/s/python/lib/pyspark.zip:/s/python/lib/py4j-0.10.9-src.zip:/c"
    assert asked(given) == [sys.prefix, "/a b/*:/c"]
    assert asked("/s/python/lib/pyspark.zip") == [sys.prefix, ""]


def test_its_folder_goes_with_the_process_and_not_with_a_fork() -> None:
    code = """
import os, sys
from streamfactory.spark.interpreter import python_of_workers
print(python_of_workers(), flush=True)
child = os.fork()
if child:
    os.waitpid(child, 0)
    assert os.path.exists(python_of_workers())
sys.exit(0)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    [script] = done.stdout.split()
    assert not Path(script).parent.exists()


def test_what_is_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NAMES[0], "/their/python")
    unset(monkeypatch, NAMES[1])
    prepare_environment(local=True)
    assert os.environ[NAMES[0]] == "/their/python"
    assert os.environ[NAMES[1]] == python_of_workers()


def test_workers_get_the_path_of_this_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unset(monkeypatch, *NAMES)
    prepare_environment()
    assert {os.environ[name] for name in NAMES} == {sys.executable}
