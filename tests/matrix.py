"""Runs the suites that fit in environments of other versions, one after another.

    python tests/matrix.py [--only NAME ...] [--keep]

Each environment is made with pip in ``.run/matrix/NAME``: other Pythons, other
versions of PySpark, the lowest versions that pyproject.toml allows, and the package
without any extra. Ends in a table, also in ``.run/matrix.json``; status 1 if a suite
failed or did not run, as for want of a Python.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".run" / "matrix"

PYTEST: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
QUICK: Final = (*PYTEST, "-n", "2", "--dist", "loadgroup", "--tier", "quick")
SPARK: Final = (*PYTEST, "--tier", "test", "tests/spark", "tests/pipelines")
# Older versions of PySpark leave sockets to the garbage collector.
OLD_SPARK: Final = (
    *SPARK,
    "-W",
    "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning",
)
BARE: Final = tuple(
    ("-m", "streamfactory", "conformance", name, "--quick")
    for name in ("memory", "file", "socket", "flight", "push")
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One environment, and what runs in it."""

    name: str
    suites: tuple[tuple[str, ...], ...]
    """Arguments of its Python."""
    python: str = "3.11"
    packages: tuple[str, ...] = ()
    """Beside the package."""
    extras: str = "dev"
    lowest: bool = False


CELLS: Final = (
    Cell("python-3.12", (QUICK, SPARK), python="3.12"),
    Cell("python-3.13", (QUICK, SPARK), python="3.13"),
    Cell("pyspark-4.0", (OLD_SPARK,), packages=("pyspark[connect]==4.0.*",)),
    Cell("pyspark-4.1", (OLD_SPARK,), packages=("pyspark[connect]==4.1.*",)),
    Cell("pyspark-4.2", (SPARK,), packages=("pyspark[connect]==4.2.*",)),
    Cell("lowest", (QUICK,), lowest=True),
    Cell("no-extras", (("-m", "streamfactory", "list"), *BARE), extras="conformance"),
)


@dataclass(slots=True)
class Result:
    """The result of one cell."""

    name: str
    state: str
    """passed, failed, or not run."""
    lines: list[str] = field(default_factory=list)
    """The last line of each suite, or why it did not run."""


def lowest_versions() -> list[str]:
    """A constraint for each dependency of the package and its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [
        needed
        for name, needed in project["optional-dependencies"].items()
        if name not in ("all", "dev", "conformance")
    ]
    found = {}
    for line in (*project["dependencies"], *(one for group in groups for one in group)):
        parsed = re.match(r"([\w-]+)(?:\[[\w,-]+\])?>=([\d.]+)", line)
        assert parsed is not None, line
        found[parsed[1]] = parsed[2]
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def interpreter(version: str) -> str | None:
    """A Python of this version on the machine."""
    if sys.version.startswith(f"{version}."):
        return sys.executable
    own = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for path in (f"python{version}", *map(str, own)):
        if shutil.which(path) is None:
            continue
        asked = subprocess.run(
            [path, "-c", "import sys; print(sys.version)"],
            capture_output=True,
            text=True,
            check=False,
        )
        if asked.stdout.startswith(f"{version}."):
            return path
    return None


def build(cell: Cell, python: str) -> Path:
    """Make the environment; returns its Python."""
    folder = FOLDER / cell.name
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    made = folder / "bin" / "python"
    command = [str(made), "-m", "pip", "install", "--quiet"]
    if cell.lowest:
        constraints = FOLDER / f"{cell.name}.txt"
        constraints.write_text("\n".join(lowest_versions()))
        command += ["--constraint", str(constraints)]
    command += ["--editable", f"{ROOT}[{cell.extras}]", *cell.packages]
    subprocess.run(command, check=True)
    return made


def run(cell: Cell, *, keep: bool) -> Result:
    """Build an environment and run its suites; their output is in a log beside it."""
    python = interpreter(cell.python)
    if python is None:
        why = f"there is no Python {cell.python} on this machine"
        return Result(cell.name, "not run", [why])
    result = Result(cell.name, "passed")
    log = FOLDER / f"{cell.name}.log"
    try:
        made = build(cell, python)
        with log.open("w") as output:
            for suite in cell.suites:
                done = subprocess.run(
                    [str(made), *suite],
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    check=False,
                )
                output.write(done.stdout)
                output.flush()
                result.lines.append(_last_line(done.stdout))
                if done.returncode:
                    result.state = "failed"
    except subprocess.CalledProcessError as error:
        result.state = "failed"
        result.lines.append(f"{error.cmd[1:4]} ended with {error.returncode}")
    finally:
        if not keep:
            shutil.rmtree(FOLDER / cell.name, ignore_errors=True)
    return result


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip("= ") if lines else ""


def main() -> int:
    """Run the matrix; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=[cell.name for cell in CELLS])
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    asked = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    results = []
    for cell in CELLS:
        if asked.only and cell.name not in asked.only:
            continue
        results.append(run(cell, keep=asked.keep))
        print(_row(results[-1]), flush=True)
    print("\nIn short:")
    for result in results:
        print(_row(result))
    report = ROOT / ".run" / "matrix.json"
    report.write_text(json.dumps([asdict(one) for one in results], indent=2))
    return any(result.state != "passed" for result in results)


def _row(result: Result) -> str:
    return f"{result.name:12}  {result.state:7}  {'; '.join(result.lines)}"


if __name__ == "__main__":
    sys.exit(main())
