"""Runs the suites that fit in environments of other versions, one after another.

    python tests/matrix.py [--only CELL ...] [--suites NAME ...] [--tier quick]
                           [--minutes N] [--keep] [--reuse] [--record]

Each environment is made with pip in ``.run/matrix/NAME``: other Pythons, other
versions of PySpark, the lowest versions that pyproject.toml allows, and the package
without any extra. A suite is a folder of tests, or a command; its output is in
``.run/matrix/NAME.log``. A cell starts no suite after its minutes. Ends in a table,
also in ``.run/matrix.json``, and in what of ``make test`` was left out; status 1 if a
suite failed or did not run, as for want of a Python. ``--record`` puts the results
into ``docs/versions.json``, from which docs/versions.md is generated.
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
import time
import tomllib
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".run" / "matrix"
RECORD: Final = ROOT / "docs" / "versions.json"
LONGEST: Final = 5400
"""Seconds for one suite."""

PYTEST: Final = (
    *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
    *("-n", "2", "--dist", "loadgroup"),
)
# In PySpark 4.0 and 4.1 `DataFrame.collect` leaves its socket to the garbage collector
# (`local_connect_and_auth` of pyspark/util.py), which warns of it in whichever test it
# runs. No `-W` can name the socket: the message has a colon before it.
OLD_SPARK: Final = (
    "-W",
    "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning",
)
NO_TESTS: Final = 5
"""pytest's status where a tier has no tests of a folder."""
NOT_RUN: Final = "not run"
SHOWN: Final = ("pyspark", "pyarrow", "pandas", "numpy", "confluent-kafka")
"""Packages whose versions are recorded."""


@dataclass(frozen=True, slots=True)
class Suite:
    """One command of a cell."""

    name: str
    arguments: tuple[str, ...]
    """Of the environment's Python."""
    tiers: bool = True
    """Whether it has an option for the tier of tests."""


def folders(names: Iterable[str], *arguments: str) -> tuple[Suite, ...]:
    """The tests of folders, each a suite."""
    return tuple(Suite(name, (*PYTEST, *arguments, f"tests/{name}")) for name in names)


FIRST: Final = ("kafka", "flight", "zeromq", "spark", "pipelines", "tables")
"""Folders whose components differ most between versions."""
FOLDERS: Final = sorted({path.parent.name for path in ROOT.glob("tests/*/test_*.py")})
EVERY: Final = (*FIRST, *(name for name in FOLDERS if name not in FIRST))
ON_SPARK: Final = ("spark", "pipelines")
_KIT: Final = ("-m", "streamfactory", "conformance")
KITS: Final = (
    Suite("list", ("-m", "streamfactory", "list"), tiers=False),
    *(
        Suite(f"kit of {name}", (*_KIT, name, "--quick"), tiers=False)
        for name in ("memory", "file", "socket", "flight", "push")
    ),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One environment, and what runs in it."""

    name: str
    suites: tuple[Suite, ...]
    python: str = "3.11"
    packages: tuple[str, ...] = ()
    """Beside the package."""
    extras: str = "dev"
    lowest: bool = False

    def left_out(self, tier: str) -> list[str]:
        """What of ``make test`` has no suite in this cell."""
        names = [suite.name for suite in self.suites]
        found = [] if names == list(EVERY) else [f"all but {', '.join(names)}"]
        return [*found, "slow tests, servers, Spark"] if tier == "quick" else found


CELLS: Final = (
    Cell("python-3.12", folders(EVERY), python="3.12"),
    Cell("python-3.13", folders(EVERY), python="3.13"),
    *(
        Cell(
            f"pyspark-{version}",
            folders(ON_SPARK, *arguments),
            packages=(f"pyspark[connect]=={version}.*",),
        )
        for version, arguments in (("4.0", OLD_SPARK), ("4.1", OLD_SPARK), ("4.2", ()))
    ),
    Cell("lowest", folders(EVERY, *OLD_SPARK), lowest=True),
    Cell("no-extras", KITS, extras="conformance"),
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
    tier: str = ""
    """Of the tests; empty where a suite has no tiers."""
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
        msg = f"there is no Python {cell.python} on this machine"
        raise LookupError(msg)
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
    cell: Cell, suites: tuple[Suite, ...], asked: argparse.Namespace
) -> Iterator[Outcome]:
    """Build an environment and run suites in it."""
    log = FOLDER / f"{cell.name}.log"
    log.write_bytes(b"")
    end = time.monotonic() + 60 * asked.minutes
    try:
        made = build(cell, reuse=asked.reuse)
        found = versions(made)
        for suite in suites:
            if time.monotonic() > end:
                why = f"after {asked.minutes} minutes"
                yield Outcome(cell.name, suite.name, NOT_RUN, why)
                continue
            outcome = run_suite(cell, suite, asked.tier, made, log)
            outcome.versions = found
            yield outcome
    except (LookupError, subprocess.CalledProcessError) as error:
        for suite in suites:
            yield Outcome(cell.name, suite.name, NOT_RUN, str(error))
    finally:
        if not asked.keep:
            shutil.rmtree(FOLDER / cell.name, ignore_errors=True)


def run_suite(cell: Cell, suite: Suite, tier: str, python: Path, log: Path) -> Outcome:
    """Run one suite; its output is added to the log."""
    tiers = ("--tier", tier) if suite.tiers else ()
    start = log.stat().st_size
    with log.open("ab") as output:
        process = subprocess.Popen(
            [str(python), *suite.arguments, *tiers],
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
    passed = status == 0 or (suite.tiers and status == NO_TESTS)
    state = "passed" if passed else "failed"
    today = datetime.now(UTC).date().isoformat()
    return Outcome(cell.name, suite.name, state, line, "".join(tiers[1:]), today)


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
    asked = _arguments()
    FOLDER.mkdir(parents=True, exist_ok=True)
    outcomes = []
    left_out = []
    for cell in CELLS:
        if asked.only and cell.name not in asked.only:
            continue
        chosen = tuple(s for s in cell.suites if s.name in (asked.suites or [s.name]))
        omitted = cell.left_out(asked.tier)
        omitted += [suite.name for suite in cell.suites if suite not in chosen]
        for outcome in run(cell, chosen, asked) if chosen else ():
            outcomes.append(outcome)
            print(_row(outcome), flush=True)
            omitted += [outcome.suite] if outcome.state == NOT_RUN else []
            if asked.record:
                record([outcome])
        left_out += [f"{cell.name}: {'; '.join(omitted)}"] if omitted else []
    print("\nIn short:", *map(_row, outcomes), sep="\n")
    print("\nLeft out of `make test`:", *left_out, sep="\n")
    report = ROOT / ".run" / "matrix.json"
    report.write_text(json.dumps([asdict(one) for one in outcomes], indent=2))
    return any(outcome.state != "passed" for outcome in outcomes)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    suites = sorted({suite.name for cell in CELLS for suite in cell.suites})
    parser.add_argument("--only", nargs="*", choices=[cell.name for cell in CELLS])
    parser.add_argument("--suites", nargs="*", choices=suites)
    parser.add_argument("--tier", choices=("quick", "test"), default="test")
    parser.add_argument("--minutes", type=float, default=90, help="of each cell")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    parser.add_argument("--reuse", action="store_true", help="those that were kept")
    parser.add_argument("--record", action="store_true", help=f"write {RECORD.name}")
    return parser.parse_args()


def _row(outcome: Outcome) -> str:
    name = f"{outcome.cell:12}  {outcome.suite:14}  {outcome.tier:5}"
    return f"{name}  {outcome.state:7}  {outcome.line}"


if __name__ == "__main__":
    sys.exit(main())
