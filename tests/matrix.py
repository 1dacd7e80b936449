"""Runs the suites that fit in environments of other versions, one after another.

    python tests/matrix.py [--only CELL ...] [--suites NAME ...] [--keep] [--reuse]
                           [--record]

Each environment is made with pip in ``.run/matrix/NAME``: other Pythons, other
versions of PySpark, the lowest versions that pyproject.toml allows, and the package
without any extra. The output of its suites is in ``.run/matrix/NAME.log``. Ends in a
table, also in ``.run/matrix.json``, and in the tests of ``make test`` that were left
out; status 1 if a suite failed or did not run, as for want of a Python. ``--record``
puts the results into ``docs/versions.json``, from which docs/versions.md is generated.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".run" / "matrix"
RECORD: Final = ROOT / "docs" / "versions.json"
LONGEST: Final = 5400
"""Seconds for one suite."""

PYTEST: Final = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
PARALLEL: Final = (*PYTEST, "-n", "2", "--dist", "loadgroup")
# Older versions of PySpark leave sockets to the garbage collector.
OLD_SPARK: Final = (
    "-W",
    "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning",
)
NOT_RUN: Final = "not run"
SHOWN: Final = ("pyspark", "pyarrow", "pandas", "numpy", "confluent-kafka")
"""Packages whose versions are recorded."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One command of a cell."""

    name: str
    arguments: tuple[str, ...]
    """Of the environment's Python."""


QUICK: Final = Suite("quick", (*PARALLEL, "--tier", "quick"))
OTHERS: Final = "component or slow or network"
"""What the tier ``test`` has and ``quick`` has not."""
SERVERS: Final = Suite("servers", (*PARALLEL, "--tier", "test", "-m", OTHERS))
OLD_SERVERS: Final = Suite("servers", (*SERVERS.arguments, *OLD_SPARK))
SPARK: Final = Suite(
    "spark", (*PYTEST, "--tier", "test", "tests/spark", "tests/pipelines")
)
OLDER: Final = Suite("spark", (*SPARK.arguments, *OLD_SPARK))
LIST: Final = Suite("list", ("-m", "streamfactory", "list"))
KITS: Final = tuple(
    Suite(f"kit {name}", ("-m", "streamfactory", "conformance", name, "--quick"))
    for name in ("memory", "file", "socket", "flight", "push")
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One environment, and what runs in it."""

    name: str
    suites: tuple[Suite, ...]
    left_out: str = ""
    """What of ``make test`` does not run in it."""
    python: str = "3.11"
    packages: tuple[str, ...] = ()
    """Beside the package."""
    extras: str = "dev"
    lowest: bool = False


NO_SPARK: Final = "tests outside of tests/spark and tests/pipelines"
CELLS: Final = (
    Cell("python-3.12", (QUICK, SERVERS), python="3.12"),
    Cell("python-3.13", (QUICK, SERVERS), python="3.13"),
    Cell("pyspark-4.0", (OLDER,), NO_SPARK, packages=("pyspark[connect]==4.0.*",)),
    Cell("pyspark-4.1", (OLDER,), NO_SPARK, packages=("pyspark[connect]==4.1.*",)),
    Cell("pyspark-4.2", (SPARK,), NO_SPARK, packages=("pyspark[connect]==4.2.*",)),
    Cell("lowest", (QUICK, OLD_SERVERS), lowest=True),
    Cell("no-extras", (LIST, *KITS), "all but the kit", extras="conformance"),
)


@dataclass(slots=True)
class Outcome:
    """The result of one suite."""

    cell: str
    suite: str
    state: str
    """passed, failed, or not run."""
    line: str
    """Its last line, or why it did not run."""
    date: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    """Of Python and of `SHOWN`."""


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


def build(cell: Cell, *, reuse: bool) -> Path:
    """Make the environment; returns its Python.

    Raises:
        LookupError: The machine has no such Python.
        subprocess.CalledProcessError: pip could not install the packages.
    """
    folder = FOLDER / cell.name
    made = folder / "bin" / "python"
    if reuse and made.exists():
        return made
    python = interpreter(cell.python)
    if python is None:
        raise LookupError(f"there is no Python {cell.python} on this machine")
    subprocess.run([python, "-m", "venv", "--clear", str(folder)], check=True)
    command = [str(made), "-m", "pip", "install", "--quiet"]
    if cell.lowest:
        constraints = FOLDER / f"{cell.name}.txt"
        constraints.write_text("\n".join(lowest_versions()))
        command += ["--constraint", str(constraints)]
    command += ["--editable", f"{ROOT}[{cell.extras}]", *cell.packages]
    subprocess.run(command, check=True)
    return made


def variables() -> dict[str, str]:
    """The environment variables of a suite: Java, and no packages of another Python."""
    names = ("PYTHON", "PYSPARK_", "SPARK_", "VIRTUAL_ENV")
    found = {name: at for name, at in os.environ.items() if not name.startswith(names)}
    inside = Path(sys.prefix, "java")  # of `make java`
    if shutil.which("java") is None and inside.is_dir():
        found.setdefault("JAVA_HOME", str(inside))
    return found


def versions(python: Path) -> dict[str, str]:
    """The versions of Python and of `SHOWN` in an environment."""
    program = (
        "import importlib.metadata as m, json, platform, sys\n"
        "found = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        "shown = {n: found[n] for n in sys.argv[1:] if n in found}\n"
        "print(json.dumps({'python': platform.python_version(), **shown}))"
    )
    asked = subprocess.run(
        [str(python), "-c", program, *SHOWN],
        stdout=subprocess.PIPE,
        env=variables(),
        check=True,
    )
    found: dict[str, str] = json.loads(asked.stdout)
    return found


def run(
    cell: Cell, suites: tuple[Suite, ...], *, keep: bool, reuse: bool
) -> Iterator[Outcome]:
    """Build an environment and run suites in it."""
    log = FOLDER / f"{cell.name}.log"
    log.write_bytes(b"")
    try:
        made = build(cell, reuse=reuse)
        found = versions(made)
        for suite in suites:
            yield run_suite(cell, suite, made, found, log)
    except (LookupError, subprocess.CalledProcessError) as error:
        for suite in suites:
            yield Outcome(cell.name, suite.name, NOT_RUN, str(error))
    finally:
        if not keep:
            shutil.rmtree(FOLDER / cell.name, ignore_errors=True)


def run_suite(
    cell: Cell, suite: Suite, python: Path, found: dict[str, str], log: Path
) -> Outcome:
    """Run one suite; its output is added to the log."""
    start = log.stat().st_size
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(python), *suite.arguments],
            cwd=ROOT,
            env=variables(),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(LONGEST)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            status = None
    line = _last_line(log.read_bytes()[start:].decode(errors="replace"))
    if status is None:
        line = f"ended after {LONGEST} s: {line}"
    state = "passed" if status == 0 else "failed"
    today = datetime.now(UTC).date().isoformat()
    return Outcome(cell.name, suite.name, state, line, today, found)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip("= ") if lines else ""


def record(outcomes: list[Outcome]) -> None:
    """Write the last result of each suite that ran, and which ones never did."""
    before = json.loads(RECORD.read_text()) if RECORD.exists() else []
    found = {(one["cell"], one["suite"]): one for one in before}
    ran = [one for one in outcomes if one.state != NOT_RUN]
    found |= {(one.cell, one.suite): asdict(one) for one in ran}
    for cell in CELLS:
        for suite in cell.suites:
            none = Outcome(cell.name, suite.name, NOT_RUN, "")
            found.setdefault((cell.name, suite.name), asdict(none))
    known = [(cell.name, suite.name) for cell in CELLS for suite in cell.suites]
    RECORD.write_text(json.dumps([found[key] for key in known], indent=1) + "\n")


def main() -> int:
    """Run the matrix; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    suites = sorted({suite.name for cell in CELLS for suite in cell.suites})
    parser.add_argument("--only", nargs="*", choices=[cell.name for cell in CELLS])
    parser.add_argument("--suites", nargs="*", choices=suites)
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--reuse", action="store_true", help="those that were kept")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    asked = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    outcomes = []
    left_out = []
    for cell in CELLS:
        if asked.only and cell.name not in asked.only:
            continue
        chosen = tuple(
            suite
            for suite in cell.suites
            if not asked.suites or suite.name in asked.suites
        )
        if not chosen:
            continue
        for outcome in run(cell, chosen, keep=asked.keep, reuse=asked.reuse):
            outcomes.append(outcome)
            print(_row(outcome), flush=True)
        others = [suite.name for suite in cell.suites if suite not in chosen]
        omitted = [*others, cell.left_out] if cell.left_out else others
        if omitted:
            left_out.append(f"{cell.name:12}  {'; '.join(omitted)}")
    print("\nIn short:", *map(_row, outcomes), sep="\n")
    if left_out:
        print("\nLeft out of `make test`:", *left_out, sep="\n")
    report = ROOT / ".run" / "matrix.json"
    report.write_text(json.dumps([asdict(one) for one in outcomes], indent=2))
    if asked.record:
        record(outcomes)
    return any(outcome.state != "passed" for outcome in outcomes)


def _row(outcome: Outcome) -> str:
    name = f"{outcome.cell:12}  {outcome.suite:10}"
    return f"{name}  {outcome.state:7}  {outcome.line}"


if __name__ == "__main__":
    sys.exit(main())
