"""Forked programs behave as executed ones, and ports are given once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.proving import forking
from tests.proving.ports import PORTS, free_port, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator

REPORTING = """
import atexit, os, sys
atexit.register(print, "at exit")
print(os.getcwd(), os.environ["PLANTED"], sys.argv[1:], __name__, sys.path[0])
print(sys.stdin.read(), os.getsid(0) == os.getpid(), file=sys.stderr)
"""
WAITING = "import time; print('here', flush=True); time.sleep(600)"
ENDS = {
    "": 0,
    "raise SystemExit": 0,
    "raise SystemExit(7)": 7,
    "raise SystemExit('why')": 1,
    "raise ValueError('why')": 1,
    "raise KeyboardInterrupt": -signal.SIGINT,
    "import os; os._exit(9)": 9,
    "import os, signal; os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()": 0,
}


@pytest.fixture(params=["forked", "executed"])
def start(request: pytest.FixtureRequest) -> Iterator[str]:
    """How the programs of a test are started: both ways in turn."""
    if request.param == "executed":
        with forking.executed():
            yield request.param
    else:
        yield request.param


def script(folder: Path, code: str) -> list[str]:
    path = folder / "script.py"
    path.write_text(code)
    return [sys.executable, str(path)]


def is_forked(process: subprocess.Popen[Any]) -> bool:
    return getattr(process, "_ended", None) is not None


def test_a_program_has_its_own_surroundings(start: str, tmp_path: Path) -> None:
    tmp_path.joinpath("place").mkdir()
    with subprocess.Popen(
        [*script(tmp_path, REPORTING), "a", "b c"],
        cwd=tmp_path / "place",
        env={**os.environ, "PLANTED": "x"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        out, err = process.communicate("in", timeout=300)
        assert is_forked(process) == (start == "forked")
    assert out == (
        f"{tmp_path / 'place'} x ['a', 'b c'] __main__ {tmp_path}\nat exit\n"
    )
    assert err == "in True\n"


@pytest.mark.parametrize(("code", "status"), ENDS.items())
def test_a_program_ends_with_its_status(
    start: str, code: str, status: int, tmp_path: Path
) -> None:
    done = subprocess.run(
        script(tmp_path, code), capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == status
    assert ("why" in done.stderr) == ("why" in code)
    assert ("late" in done.stdout) == ("late" in code)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_program_is_ended_by_signals(start: str, number: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        script(tmp_path, WAITING),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.05)
        process.send_signal(number)
        assert process.stdout.read() == ""
        os.kill(process.pid, number)  # it is a zombie until it is waited for
        assert process.wait(300) == -number
        process.kill()  # it has ended: nothing happens
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


def test_what_python_reads_when_it_starts_has_its_effect(tmp_path: Path) -> None:
    code = "import sys; print(sys.flags.utf8_mode, getattr(sys, 'planted', None))"
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.planted = 'here'")
    for variable, printed in (
        ({}, "0 None\n"),
        ({"PYTHONUTF8": "1"}, "1 None\n"),
        ({"PYTHONPATH": str(tmp_path)}, "0 here\n"),
    ):
        done = subprocess.run(
            script(tmp_path, code),
            env={**os.environ, **variable},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == printed


def test_temporary_files_go_to_the_folder_of_the_program(
    start: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        script(tmp_path, "import tempfile; print(tempfile.gettempdir())"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{tmp_path}\n"


@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ([sys.executable, "-m", "streamfactory", "list"], {}, True),
        ([sys.executable, "-m", "streamfactory", "run", "p.toml"], {}, False),
        ([sys.executable, str(forking.ROOT / "examples" / "flights.py")], {}, False),
        ([sys.executable, "-m", "pytest"], {}, False),
        ([sys.executable, "-c", "pass"], {}, False),
        ([sys.executable, "-X", "importtime", "script.py"], {}, False),
        ([sys.executable], {}, False),
        (["/usr/bin/python", "script.py"], {}, False),
        ([sys.executable, "script.py"], {"preexec_fn": print}, False),
        ([sys.executable, "script.py"], {"pass_fds": (3,)}, False),
    ],
)
def test_programs_that_are_forked(
    command: list[str], options: dict[str, Any], expected: bool
) -> None:
    assert forking.can_be_forked(command, options) == expected


def test_no_port_is_given_twice() -> None:
    given = [free_port() for _ in range(60)]  # more than one block
    first = free_ports(4)
    child, code = Path(__file__).parents[2], "print(*(free_port() for _ in range(60)))"
    code = f"from tests.proving.ports import free_port; {code}"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=child, capture_output=True, check=True
    )
    given += [*range(first, first + 4), *map(int, done.stdout.split())]
    assert len(set(given)) == 124
    assert all(port in PORTS for port in given)
