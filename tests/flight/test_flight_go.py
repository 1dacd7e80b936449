"""The client in Go of ``examples/flight_go``, written from the page alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from streamfactory.wiring.serving.process import ServerProcess

SOURCE = Path(__file__).parents[2] / "examples" / "flight_go"

pytestmark = [
    pytest.mark.network,
    pytest.mark.long("fetches Arrow's module for Go, and compiles it once"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The compiled program."""
    if shutil.which("go") is None:
        skip_or_fail("Go is not installed")
    program = tmp_path_factory.mktemp("go") / "client"
    built = subprocess.run(
        ["go", "build", "-o", str(program), "."],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return str(program)


def test_it_lists_writes_once_reads_follows_and_handles_an_error(
    client: str, flight_server: ServerProcess, topic: str
) -> None:
    address = flight_server.location.partition("://")[2]
    done = subprocess.run(
        [client, address, topic],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    before, after, *lines = done.stdout.splitlines()
    assert topic not in before
    assert topic in after
    assert lines == [
        "epoch 0: placed at 0 to 3",
        "epoch 1: placed at 3 to 5",
        "epoch 1: held, 2 rows",
        *(f"offset {number}: id {number + 1}" for number in range(5)),
        "followed to offset 5: id 6",
        "followed to offset 6: id 7",
        "offset_out_of_range (gRPC Unknown), available: 0 to 7",
        "offset 6: id 7",
    ]
