"""``streamfactory new-backend``: a package that passes the kit as it is made."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.proving.skipping import skip_or_fail
from tests.proving.tiers import sample

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome

ROOT = Path(__file__).parents[2]
FILES = [
    ".github/workflows/ci.yml",
    ".gitignore",
    "README.md",
    "pyproject.toml",
    "src/streamfactory_acme/__init__.py",
    "src/streamfactory_acme/backend.py",
    "src/streamfactory_acme/harness.py",
    "src/streamfactory_acme/py.typed",
    "tests/test_backend.py",
    "tests/test_conformance.py",
]
NO_NETWORK = re.compile(
    "NewConnectionError|NameResolutionError|Temporary failure in name resolution"
    "|Network is unreachable|ConnectTimeoutError|ReadTimeoutError"
)


def tool(folder: Path, *words: str, **environment: str) -> str:
    """Run a program in a folder; answers what it prints."""
    done = subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def files_of(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file()
    )


def test_makes_a_package_without_a_trace_of_the_template(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    outcome = streamfactory("new-backend", "acme")
    folder = tmp_path / "streamfactory-acme"
    assert (outcome.status, outcome.err) == (0, "")
    assert outcome.out.splitlines()[:2] == ["streamfactory-acme:", f"  {FILES[0]}"]
    assert files_of(folder) == FILES
    for path in FILES:
        assert re.findall("@[A-Z]+@", (folder / path).read_text()) == []
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == "streamfactory-acme"
    assert project["entry-points"] == {
        "streamfactory.backends": {"acme": "streamfactory_acme.backend"},
        "streamfactory.conformance": {"acme": "streamfactory_acme.harness:AcmeHarness"},
    }


def test_into_and_json(streamfactory: Callable[..., Outcome], tmp_path: Path) -> None:
    outcome = streamfactory("new-backend", "a-b_c2", "--into", "x/y", "--json")
    assert outcome.status == 0
    made = outcome.json
    assert made["folder"] == "x/y/streamfactory-a-b-c2"
    assert made["files"] == files_of(tmp_path / made["folder"])
    backend = tmp_path / made["folder"] / "src/streamfactory_a_b_c2/backend.py"
    assert "class ABC2Consumer(" in backend.read_text()
    assert 'name="a-b_c2"' in backend.read_text()


@pytest.mark.parametrize(
    "name",
    ["", "Acme", "2fast", "a b", "a/b", "../up", "a-", "-a", "a--b", "é", "a" * 21],
)
def test_bad_names_are_refused(
    streamfactory: Callable[..., Outcome], tmp_path: Path, name: str
) -> None:
    outcome = streamfactory("new-backend", "--", name)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == (
        "error: [usage] "
        f"Invalid value for 'NAME': {name!r} is no name for a stream type: "
        "lower-case letters and digits, a letter first, words joined by - or _, at "
        "most 20 characters. (see streamfactory new-backend --help)\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_the_name_of_an_existing_type_is_refused(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    outcome = streamfactory("new-backend", "memory")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == (
        "error: [usage] "
        "Invalid value for 'NAME': there is a stream type 'memory' already, "
        "see streamfactory list. (see streamfactory new-backend --help)\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_existing_files_are_left_alone(
    streamfactory: Callable[..., Outcome], tmp_path: Path, kind: str
) -> None:
    there = tmp_path / "streamfactory-acme"
    if kind == "folder":
        there.mkdir()
    else:
        there.write_text("mine")
    outcome = streamfactory("new-backend", "acme")
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err == (
        "error: [usage] "
        "Invalid value for '--into': the folder 'streamfactory-acme' cannot be "
        "made: it exists already. (see streamfactory new-backend --help)\n"
    )
    assert files_of(tmp_path) == ([] if kind == "folder" else ["streamfactory-acme"])


@pytest.mark.slow("runs ruff")
@pytest.mark.parametrize("name", ["a", "acme", "abcdefghijklmnopqr-2"])
def test_what_it_makes_is_clean_whatever_its_name(
    streamfactory: Callable[..., Outcome], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / streamfactory("new-backend", name, "--json").json["folder"]
    tool(folder, sys.executable, "-m", "ruff", "format", "--no-cache", "--check", ".")
    tool(folder, sys.executable, "-m", "ruff", "check", "--no-cache", ".")


HERE = "tests/cli/test_new_backend.py"
CHOICES = [("--writing", "--envelopes"), ("--envelopes",), ("--writing",), ()]


@pytest.fixture(params=CHOICES, ids=" ".join)
def chosen(
    request: pytest.FixtureRequest, streamfactory: Callable[..., Outcome]
) -> Path:
    """The folder of a package, of each kind."""
    return Path(streamfactory("new-backend", "acme", *request.param).out.split(":")[0])


@pytest.mark.long("runs ruff and mypy for each kind")
def test_every_kind_is_clean_and_fully_typed(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    # Types of the framework are checked once, and kept.
    types = ("-m", "mypy", "--cache-dir", str(tmp_path / "types"))
    for number, words in enumerate(CHOICES):
        made = streamfactory("new-backend", "acme", *words, "--into", f"{number}")
        folder = tmp_path / made.out.split(":")[0]
        for path in files_of(folder):
            text = (folder / path).read_text()
            assert re.findall("@[A-Z]+@|^@(?:if|else|end)", text, re.MULTILINE) == []
        no_cache = ("--no-cache", ".")
        tool(folder, sys.executable, "-m", "ruff", "format", "--check", *no_cache)
        tool(folder, sys.executable, "-m", "ruff", "check", *no_cache)
        path = f"src{os.pathsep}{ROOT / 'src'}"
        found = tool(folder, sys.executable, *types, MYPYPATH=path)
        assert found.startswith("Success: no issues found in ")


def installed(folder: Path) -> dict[str, str]:
    """An environment in which a package is found, with its entry points."""
    build = ("-m", "hatchling", "build", "-t", "wheel", "-d", "dist")
    tool(folder, sys.executable, *build)
    [wheel] = (folder / "dist").glob("*.whl")
    site = folder.absolute() / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return {"PYTHONPATH": f"{site}{os.pathsep}{ROOT / 'src'}"}


@pytest.mark.repeated(
    "the command, which runs the same cases as pytest",
    shown_by=f"{HERE}::test_every_kind_passes_the_kit[--writing --envelopes]",
)
@pytest.mark.parametrize("chosen", [CHOICES[0]], indirect=True, ids=" ".join)
def test_messages_that_are_written_pass_the_quick_kit(chosen: Path) -> None:
    environment = installed(chosen)
    command = (sys.executable, "-m", "streamfactory", "conformance", "acme", "--quick")
    verdict = tool(chosen, *command, **environment).splitlines()[-1]
    assert re.match(r"acme: \d+ passed, \d+ skipped in ", verdict)
    mine = (sys.executable, "-m", "pytest", "-q", "tests/test_backend.py")
    assert "2 passed" in tool(chosen, *mine, **environment)


@pytest.mark.long("the whole kit")
@pytest.mark.parametrize(
    "chosen",
    sample(
        CHOICES,
        "the kit on parts of the package that has all",
        shown_by=f"{HERE}::test_every_kind_passes_the_kit[--writing --envelopes]",
    ),
    indirect=True,
    ids=" ".join,
)
def test_every_kind_passes_the_kit(chosen: Path) -> None:
    tested = tool(chosen, sys.executable, "-m", "pytest", "-q", **installed(chosen))
    assert re.search(r"\n\d+ passed, \d+ skipped in ", tested)


@pytest.mark.long("installs a virtual environment")
@pytest.mark.network
def test_what_it_makes_passes_where_nothing_else_is(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    folder = tmp_path / streamfactory("new-backend", "acme", "--json").json["folder"]
    wheels = tmp_path / "wheels"
    for tree in (ROOT, folder):
        build = ("-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels))
        tool(tree, sys.executable, *build)
    [ours] = wheels.glob("streamfactory-*.whl")
    [theirs] = wheels.glob("streamfactory_acme-*.whl")
    venv = tmp_path / "venv"
    tool(tmp_path, sys.executable, "-m", "venv", str(venv))
    python = str(venv / "bin" / "python")
    install(python, f"{ours}[conformance]", str(theirs))
    clean = {"PYTHONPATH": "", "PYTEST_ADDOPTS": ""}
    tested = tool(folder, python, "-m", "pytest", "-q", **clean)
    assert re.search(r"\n\d+ passed, \d+ skipped in ", tested)
    # What can be read again needs no source that sends again.
    assert set(re.findall(r"not claimed: (.*)", tested)) == {"redelivers"}
    command = str(venv / "bin" / "streamfactory")
    proved = tool(tmp_path, command, "conformance", "acme", "--quick", **clean)
    assert "acme: " in proved
    assert " failed" not in proved


def install(python: str, *wheels: str) -> None:
    """Install wheels and what they need; skip where no index can be reached."""
    pip = [python, "-m", "pip", "install", "--quiet", "--retries", "1", *wheels]
    done = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode and NO_NETWORK.search(done.stderr):
        reason = "no network: the packages that a fresh environment needs are elsewhere"
        skip_or_fail(reason)
    assert done.returncode == 0, done.stderr
