"""A spool and checkpoints on a disk that fails: nothing is lost or acknowledged."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from native.compiling import NoCompiler
from tests.proving.ccompiler import compiler
from tests.proving.skipping import skip_or_fail

ROOT = Path(__file__).parents[2]
PROGRAM = "tests.spool.failing"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that fails calls of all programs that are started with it."""
    found = tmp_path_factory.mktemp("library") / "failing_disk.so"
    source = Path(__file__).with_name("failing_disk.c")
    try:
        command = [compiler(), "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    except NoCompiler as reason:
        skip_or_fail(str(reason))
    subprocess.run([*command, "-o", found, source, "-ldl"], check=True, timeout=60)
    return found


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_a_receiver_on_a_failing_disk_acknowledges_nothing_and_goes_on_later(
    code: int, library: Path, tmp_path: Path
) -> None:
    root, switch = tmp_path / "disk", tmp_path / "switch"
    root.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM, root, switch, str(code)],
        cwd=ROOT,
        env={
            **os.environ,
            "LD_PRELOAD": str(library),
            "FAULT_ROOT": str(root),
            "FAULT_SWITCH": str(switch),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert os.strerror(code) in seen["error"]
    assert seen["state"] in {"blocked", "waiting"}
    assert seen["acknowledged"] == 10
    assert os.strerror(code) in seen["saving"]
    assert seen["loaded"] == [1]
    assert seen["rows"] == [*range(30)]
    assert seen["saved"] == [3]
