"""Everything that README and docs show is run, and does what is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.house import pages

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
RUNNER = Path(__file__).with_name("pages.py")


def run_page(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("STREAMFACTORY_", "PYTHON", "COLUMNS"))
    }
    # A worktree shows its own commands, not those of the tree that is installed.
    own = {"PYTHONPATH": str(ROOT / "src"), "PYTHONSAFEPATH": "1", "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-W", "error", str(RUNNER), str(page)],
        cwd=folder,
        env=environment | own,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow("runs each command of a page")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    done = run_page(page, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


# --- the runner itself ----------------------------------------------------------------

FENCE = "```"
MEMORY = 'streamType = "memory"\n"stream.memory.topic.name" = "clicks"\n'
GOOD = f"""
{FENCE}toml title="configs/streams/clicks.toml"
[properties]
{MEMORY}{FENCE}

{FENCE}python
from pathlib import Path
seen = Path("configs/streams/clicks.toml").exists()
{FENCE}

- in a list:

  {FENCE}python
  assert seen
  {FENCE}

{FENCE}python no-run: it would fail
raise RuntimeError
{FENCE}

{FENCE}console
$ streamfactory lst
...
$ echo $?
2
$ make coffee
{FENCE}
"""


def test_runner_runs_files_python_and_consoles(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(GOOD)
    done = run_page(page, tmp_path)
    assert (done.stdout, done.stderr) == ("Tally(python=2, commands=1, files=1)\n", "")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"{FENCE}python\nassert 1 == 2\n{FENCE}", "AssertionError"),
        (f"{FENCE}python\nopen('x')\n{FENCE}", "FileNotFoundError"),
        (f"\n\n{FENCE}python\n\n1 / 0\n{FENCE}", 'page.md", line 5'),
        (
            f"{FENCE}console\n$ streamfactory lst\nfine\n{FENCE}",
            "line 2: `streamfactory lst` ends with 2 and prints",
        ),
        (f"{FENCE}console\n$ streamfactory lst\n{FENCE}", "--- but is shown as\n"),
        (f"{FENCE}console\n$ echo $?\n1\n{FENCE}", "--- but is shown as\n1"),
        (f"{FENCE}python no-run:\n1\n{FENCE}", "line 2: no-run without a reason"),
        (f"{FENCE}python norun: x\n1\n{FENCE}", "line 2: 'norun: x' means nothing"),
        (f"{FENCE}py\n1\n{FENCE}", "line 2: language 'py'; known are console, "),
        (f"{FENCE}\nx\n{FENCE}", "line 2: language ''; known are console, "),
        (f"{FENCE}python\n1\n", "line 1: a block is never closed"),
        (
            f'{FENCE}toml title="../x.toml"\n{FENCE}',
            "line 2: '../x.toml' leads out of the folder",
        ),
    ],
)
def test_runner_finds_what_is_wrong(tmp_path: Path, text: str, complaint: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    done = run_page(page, tmp_path)
    assert done.returncode == 1
    assert complaint in done.stderr


@pytest.mark.parametrize(
    ("shown", "real", "same"),
    [
        ("a b", "a b", True),
        ("a b", "a c", False),
        ("a", "a b", False),
        ("a b", "a", False),
        ("", "", True),
        ("...", "", True),
        ("a ... d", "a b c d", True),
        ("a ... d", "a d", True),
        ("a ... d", "a b c", False),
        ("... c ...", "a b c d", True),
        ("... e", "a b", False),
    ],
)
def test_runner_compares_to_the_letter(*, shown: str, real: str, same: bool) -> None:
    assert pages.matches(shown.split(), real.split()) is same


def test_pages_link_to_what_exists() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)", re.sub("`[^`]*`", "", prose(page)))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert missing == []


def prose(page: Path) -> str:
    """A page without its blocks."""
    return re.sub(r"(?ms)^ *(`{3,}).*?^ *\1", "", page.read_text(encoding="utf-8"))
