"""Runs the suites that fit in environments of other versions, one after another.

    python tests/matrix.py [--only CELL ...] [--suites NAME ...] [--tier quick]
                           [--minutes N] [--keep] [--reuse] [--record]

Each environment is made with pip in ``.run/matrix/NAME``: other Pythons, other
versions of PySpark, the lowest versions that pyproject.toml allows, and the package
without any extra. A suite is a folder of tests, or a command; one run of pytest has all
folders of an environment. The output is in ``.run/matrix/NAME.log``. Ends in a table,
also in ``.run/matrix.json``, and in what of ``make test`` was left out; status 1 if a
suite failed or did not run, as for want of a Python. ``--record`` puts the results
into ``docs/versions.json``, from which docs/versions.md is generated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".run" / "matrix"
RECORD: Final = ROOT / "docs" / "versions.json"
ENDING: Final = 60
"""Seconds that a run has to end after an interrupt."""
WORKERS: Final = os.environ.get("WORKERS", "4")

PYTEST: Final = (
    *("-m", "pytest", "-q", "-p", "no:cacheprovider"),
    *("-n", WORKERS, "--dist", "loadgroup"),
)
# In PySpark 4.0 and 4.1 `DataFrame.collect` leaves its socket to the garbage collector
# (`local_connect_and_auth` of pyspark/util.py), which warns of it in whichever test it
# runs. No `-W` can name the socket: the message has a colon before it.
OLD_SPARK: Final = (
    "-W",
    "ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning",
)
COMPLETE: Final = (0, 1, 5)
"""pytest's status where all tests ran: passed, some failed, there are none."""
NOT_RUN: Final = "not run"
SHOWN: Final = ("pyspark", "pyarrow", "pandas", "numpy", "confluent-kafka")
"""Packages whose versions are recorded."""


@dataclass(frozen=True, slots=True)
class Command:
    """A suite that is no folder of tests."""

    name: str
    arguments: tuple[str, ...]
    """Of the environment's Python."""


FOLDERS: Final = tuple(sorted({p.parent.name for p in ROOT.glob("tests/*/test_*.py")}))
ON_SPARK: Final = ("spark", "pipelines", "realtime")
_KIT: Final = ("-m", "streamfactory", "conformance")
KITS: Final = (
    Command("list", ("-m", "streamfactory", "list")),
    *(
        Command(f"kit of {name}", (*_KIT, name, "--quick"))
        for name in ("memory", "file", "socket", "flight", "push")
    ),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One environment, and what runs in it."""

    name: str
    folders: tuple[str, ...] = FOLDERS
    """Of tests; each is a suite."""
    commands: tuple[Command, ...] = ()
    options: tuple[str, ...] = ()
    """Of pytest."""
    python: str = "3.11"
    packages: tuple[str, ...] = ()
    """Beside the package."""
    extras: str = "dev"
    lowest: bool = False

    @property
    def suites(self) -> tuple[str, ...]:
        """The names of all suites."""
        return (*self.folders, *(command.name for command in self.commands))

    def left_out(self, tier: str) -> list[str]:
        """What of ``make test`` has no suite in this cell."""
        whole = self.folders == FOLDERS
        found = [] if whole else [f"all but {', '.join(self.suites)}"]
        return [*found, "slow tests, servers, Spark"] if tier == "quick" else found


CELLS: Final = (
    Cell("python-3.12", python="3.12"),
    Cell("python-3.13", python="3.13"),
    *(
        Cell(
            f"pyspark-{version}",
            ON_SPARK,
            options=options,
            packages=(f"pyspark[connect]=={version}.*",),
        )
        for version, options in (("4.0", OLD_SPARK), ("4.1", OLD_SPARK), ("4.2", ()))
    ),
    Cell("lowest", options=OLD_SPARK, lowest=True),
    Cell("no-extras", (), KITS, extras="conformance"),
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
    """Of the tests; empty for a command."""
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
    cell: Cell, suites: Collection[str], asked: argparse.Namespace
) -> Iterator[Outcome]:
    """Build an environment and run suites in it."""
    log = FOLDER / f"{cell.name}.log"
    log.write_bytes(b"")
    try:
        made = build(cell, reuse=asked.reuse)
        found = versions(made)
        runs = Runs(cell, made, log, time.monotonic() + 60 * asked.minutes)
        outcomes = []
        if folders := [name for name in cell.folders if name in suites]:
            outcomes += runs.tests(folders, asked.tier)
        commands = [one for one in cell.commands if one.name in suites]
        for outcome in (*outcomes, *map(runs.command, commands)):
            outcome.versions = found if outcome.state != NOT_RUN else {}
            yield outcome
    except (LookupError, subprocess.CalledProcessError) as error:
        for name in suites:
            yield Outcome(cell.name, name, NOT_RUN, str(error))
    finally:
        if not asked.keep:
            shutil.rmtree(FOLDER / cell.name, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of suites in one environment."""

    cell: Cell
    python: Path
    log: Path
    """Their output is added to it."""
    end: float
    """By the monotonic clock; a run that takes longer is ended."""

    def tests(self, folders: Sequence[str], tier: str) -> list[Outcome]:
        """Run the tests of folders together; one outcome for each folder."""
        report = self.log.with_suffix(".xml")
        report.unlink(missing_ok=True)
        places = [f"tests/{name}" for name in folders]
        options = (*self.cell.options, "--tier", tier, f"--junitxml={report}")
        status, line = self._run((*PYTEST, *options, *places))
        if status not in COMPLETE or not report.exists():
            return [self._outcome(name, NOT_RUN, line) for name in folders]
        counts = read_report(report)
        outcomes = []
        for name in folders:
            state, text = "passed", f"no tests in the tier {tier}"
            if name in counts:
                state, text = judge(counts[name])
            outcomes.append(self._outcome(name, state, text, tier))
        return outcomes

    def command(self, command: Command) -> Outcome:
        """Run one command."""
        status, line = self._run(command.arguments)
        if status is None:
            return self._outcome(command.name, NOT_RUN, line)
        return self._outcome(command.name, "failed" if status else "passed", line)

    def _outcome(self, suite: str, state: str, line: str, tier: str = "") -> Outcome:
        if state == NOT_RUN:
            return Outcome(self.cell.name, suite, state, line)
        today = datetime.now(UTC).date().isoformat()
        return Outcome(self.cell.name, suite, state, line, tier, today)

    def _run(self, arguments: Sequence[str]) -> tuple[int | None, str]:
        """The status, None for a run that was ended, and the last line."""
        start = self.log.stat().st_size
        with self.log.open("ab") as output:
            process = subprocess.Popen(
                [str(self.python), *arguments],
                cwd=ROOT,
                env=variables(),
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(max(0, self.end - time.monotonic()))
            except subprocess.TimeoutExpired:
                return None, "ended for want of time"
            finally:
                end(process)
        return status, _last_line(
            self.log.read_bytes()[start:].decode(errors="replace")
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, and then all that it started."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_report(path: Path) -> dict[str, Counter[str]]:
    """How many tests of each folder passed, failed and were skipped, from JUnit XML."""
    found: dict[str, Counter[str]] = {}
    for case in ET.parse(path).iter("testcase"):
        # A file that cannot be imported has no class name, but its own as a name.
        _, folder, *_ = str(case.get("classname") or case.get("name")).split(".")
        kinds = {child.tag for child in case}
        failed = kinds & {"failure", "error"}
        kind = "failed" if failed else "skipped" if "skipped" in kinds else "passed"
        found.setdefault(folder, Counter())[kind] += 1
    return found


def judge(counts: Counter[str]) -> tuple[str, str]:
    """The state of a suite, and its counts in words."""
    words = [
        f"{n} {kind}" for kind in ("passed", "failed", "skipped") if (n := counts[kind])
    ]
    return "failed" if counts["failed"] else "passed", ", ".join(words)


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
        for name in cell.suites:
            none = Outcome(cell.name, name, NOT_RUN, "")
            found.setdefault((cell.name, name), asdict(none))
    known = [(cell.name, name) for cell in CELLS for name in cell.suites]
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
        chosen = [name for name in cell.suites if name in (asked.suites or [name])]
        omitted = cell.left_out(asked.tier)
        omitted += [name for name in cell.suites if name not in chosen]
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
    suites = sorted({name for cell in CELLS for name in cell.suites})
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
