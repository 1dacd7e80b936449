"""A test whose real component is missing is skipped, and with ``CI=true`` it fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
NEED_JAVA = [
    "tests/kafka/test_kafka_kills.py",
    "tests/pipelines/test_pipeline_kills.py",
    "tests/sockets/test_socket_java.py",
    "tests/spark/test_cluster_sink.py",
    "tests/spark/test_source_slice.py",
]


@pytest.mark.parametrize(
    ("value", "outcome"),
    [("true", pytest.fail.Exception), ("", pytest.skip.Exception)],
)
def test_ci_decides(
    value: str, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", value)
    with pytest.raises(outcome, match="no server"):
        skip_or_fail("no server")


@pytest.fixture
def without_java(tmp_path: Path) -> Callable[[str], dict[str, int]]:
    """Runs tests that need Java where there is none; how many came to which end."""

    def run(ci: str) -> dict[str, int]:
        environment = {k: v for k, v in os.environ.items() if k != "JAVA_HOME"}
        environment |= {"CI": ci, "PATH": str(tmp_path), "XDG_CACHE_HOME": "/nowhere"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *NEED_JAVA],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        closing = done.stdout.splitlines()[-1]
        return {what: int(count) for count, what in re.findall(r"(\d+) (\w+)", closing)}

    return run


def test_without_java_tests_are_skipped(
    without_java: Callable[[str], dict[str, int]],
) -> None:
    found = without_java("")
    assert found["skipped"] > 10
    assert not {"passed", "failed", "error", "errors"} & set(found)


def test_in_ci_they_fail(without_java: Callable[[str], dict[str, int]]) -> None:
    found = without_java("true")
    assert found.get("failed", 0) + found.get("errors", 0) > 10
    assert not {"passed", "skipped"} & set(found)
