"""The examples that need no server: each does what docs/examples.md shows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from tests.examples.running import (
    EXAMPLES,
    PAGE,
    PATIENCE,
    environment,
    execute,
    printed,
    run,
    run_without,
    shown,
    words,
)
from tests.house import pages

if TYPE_CHECKING:
    from pathlib import Path

ALONE = ["python examples/push_duckdb.py", "python examples/own_decoder.py"]
"""Examples that are one script, and need neither a server nor Java."""


@pytest.mark.parametrize("command", ALONE)
def test_a_script_prints_what_the_page_shows(command: str, tmp_path: Path) -> None:
    assert printed(run(command, tmp_path)) == shown(command)


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [("python examples/push_duckdb.py", "duckdb", "duckdb")],
)
def test_a_script_names_the_package_to_install(
    command: str, module: str, extra: str, tmp_path: Path
) -> None:
    output = run_without(module, command, tmp_path)
    assert f"pip install 'streamfactory[{extra}]'" in output


def test_two_programs_meet_in_shared_memory(tmp_path: Path) -> None:
    write, read = (f"python examples/shm/{name}.py" for name in ("writer", "reader"))
    with subprocess.Popen(
        [*words(write), str(tmp_path / "shm")],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(tmp_path / "tmp"),
    ) as writer:
        try:
            topic = tmp_path / "shm" / "measurements.topic"
            deadline = time.monotonic() + PATIENCE
            while not topic.exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            (tmp_path / "here").mkdir()
            seen = run(read, tmp_path / "here", str(tmp_path / "shm"))
            said, _ = writer.communicate(timeout=PATIENCE)
        finally:
            writer.kill()
    assert printed(seen) == shown(read)
    assert printed(said) == shown(write)


def test_two_programs_meet_at_a_socket(tmp_path: Path) -> None:
    read, write = (f"python examples/two_programs/{n}.py" for n in ("reader", "writer"))
    address = f"unix:{tmp_path}/orders.sock"
    with subprocess.Popen(
        [*words(read), address],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(tmp_path / "tmp"),
    ) as reader:
        try:
            sent = run(write, tmp_path, address)
            said, _ = reader.communicate(timeout=PATIENCE)
        finally:
            reader.kill()
    assert printed(sent) == shown(write)
    assert reader.returncode == 0
    assert printed(said.replace(address, "127.0.0.1:9700")) == shown(read)


def test_a_user_tests_code_of_its_own(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        check=False,
        cwd=EXAMPLES / "own_tests",
        env=environment(tmp_path / "tmp"),
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


def test_the_notebook_runs_from_the_first_cell_to_the_last(tmp_path: Path) -> None:
    outputs = execute(EXAMPLES / "explore.ipynb", tmp_path)
    assert "guarantee  exactly-once" in "".join(outputs[0]["data"]["text/plain"])
    assert "image/png" in outputs[-1]["data"], "no plot"


def test_the_cells_of_the_first_notebook_run_in_order(tmp_path: Path) -> None:
    notebook = json.loads((EXAMPLES / "notebooks/first.ipynb").read_text("utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join("".join(cell["source"]) for cell in code)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(tmp_path, {"MPLBACKEND": "Agg"}),
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        *(
            f"<MessageBatch of rides-0: 30 rows, offsets {n} to {n + 30}, data>"
            for n in range(0, 150, 30)
        ),
        "interrupted",
    ]


def test_the_page_of_the_first_notebook_has_its_cells() -> None:
    notebook = json.loads((EXAMPLES / "notebooks/first.ipynb").read_text("utf-8"))
    page = (PAGE.parent / "notebook.md").read_text("utf-8")
    for cell in notebook["cells"]:
        assert "".join(cell["source"]) in page, "run docs/notebook.py"


@pytest.mark.parametrize(
    "notebook", sorted(EXAMPLES.rglob("*.ipynb")), ids=lambda p: p.name
)
def test_a_notebook_is_kept_without_outputs(notebook: Path) -> None:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"]] == []
    assert [cell for cell in code if cell["execution_count"] is not None] == []


def test_the_page_lists_every_example() -> None:
    page = PAGE.read_text("utf-8")
    listed = set(re.findall(r"^\| \[`([\w.]+?)/?`\]", page, re.MULTILINE))
    there = {path.name for path in EXAMPLES.iterdir() if path.name[0] not in "._"}
    assert there <= listed


def test_every_command_of_the_page_names_a_file() -> None:
    found = [
        line.split()[2]
        for block in pages.blocks(PAGE.read_text("utf-8"))
        for line in block.text.splitlines()
        if line.startswith("$ python examples/")
    ]
    assert found
    assert [name for name in found if not (EXAMPLES.parent / name).is_file()] == []


def test_every_script_reports_how_to_run_it_and_what_it_needs() -> None:
    older = {"flights.py", "changes.py", "ledger.py", "lines.py"}
    scripts = [
        path
        for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("two_programs/*.py")]
        if path.name not in older
    ]
    for script in scripts:
        head = script.read_text("utf-8").split('"""')[1]
        assert "python examples/" in head, script
        assert "\nNeeds: pip install " in head, script
