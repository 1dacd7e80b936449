"""Tiers of the suite: which command runs a test, and what each tier costs.

``pytest --tier test`` runs every test that is marked neither ``long`` nor
``repeated``, ``--tier rest`` the long ones, and ``--tier repeated`` the repeated ones.
``--tier quick`` runs those of ``test`` that start no server and no Spark, use no
network and are not marked ``slow``. Without the option pytest runs all. The root
``conftest.py`` calls the functions here.

A test is long or slow because its author marked it, with the reason:
``@pytest.mark.long("40 kills of a broker")``. A repeated test shows a claim once more
that another test of ``test`` or ``rest`` shows, which its marker names:
``@pytest.mark.repeated("the kit over TLS", shown_by="tests/x/test_y.py::test_z")``.
Which real component a test starts follows from its fixtures.
"""

from __future__ import annotations

import json
import os
import re
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.proving.costs import figures_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT: Final = Path(__file__).parents[2]
COLLECTED: Final = pytest.StashKey[dict[str, Any]]()
"""What `describe` answers for all tests that pytest collected, of any tier."""
NAMED: Final = 200
"""Tests that a report names, which are the slowest and the dearest."""
PRINTED: Final = 15
"""Those of the slowest that are printed."""


@dataclass(frozen=True)
class Shared:
    """A fixture that is expensive to set up."""

    component: str | None = None
    """The real component that it starts."""
    group: str | None = None
    """The xdist group of the tests that use it, which run in one process."""


FIXTURES: Final = {
    "one_cluster": Shared("spark-cluster", "cluster"),
    "own_spark": Shared("spark", "runs"),
    "works": Shared(group="pipelines"),
    "spark": Shared("spark", "spark"),
    "kafka": Shared("kafka"),
    "apicurio": Shared("apicurio"),
    "mortal_cluster": Shared("kafka", "mortal"),
    "cluster_factory": Shared("kafka"),
    "object_server": Shared("object-store"),
    "flight_server": Shared("flight"),
    "arrow_java": Shared("arrow-java", "java"),
    "nats_server": Shared("nats", "wheel"),
    "postgres_server": Shared("postgres", "wheel"),
    "redis_server": Shared("redis", "wheel"),
    "stored_table": Shared(group="stored-tables"),
    "wheels": Shared(group="wheel"),
    "wheel": Shared(group="wheel"),
    "sdist": Shared(group="wheel"),
}
"""Tests that start a Spark of their own take turns: they are the group ``runs``, of
which there are `RUNS`. Those of pipelines are not in the group ``spark``: both series
are long, and a second session starts in seconds. Of several groups a test is in the
first."""
RUNS: Final = 2
"""Series of tests with a Spark of their own, by file. As one series they took longer
than all other tests of their tier together."""
COMPONENTS: Final = {
    name: one.component for name, one in FIXTURES.items() if one.component is not None
}
"""What each expensive fixture starts."""
_TIERS: Final = pytest.StashKey[frozenset[str]]()
"""The tiers that run a test."""
_MARKED: Final = re.compile(r"\bmark\.(?:long|repeated)\b|\bsample\(")
"""What a file has whose tests may be long or repeated."""
_GROUPS: Final = "|".join({one.group for one in FIXTURES.values() if one.group})
_GROUP: Final = re.compile(rf"@(?:{_GROUPS})(?:-\d)?$")
"""What xdist appends to the name of a test."""


@dataclass(frozen=True)
class Tier:
    """What one command runs."""

    command: str
    minutes: int
    """Its goal, on two idle cores; a report, never a failure."""


TIERS: Final = {
    "quick": Tier("make quick", 2),
    "test": Tier("make test", 8),
    "rest": Tier("make test-all", 20),
    "repeated": Tier("make prove PATHS=repeated", 30),
}


@dataclass(frozen=True)
class Share:
    """One of several parts of a tier, which together have each test once."""

    number: int
    """From 1."""
    of: int

    @classmethod
    def parse(cls, text: str) -> Share:
        """Read ``2/3``.

        Raises:
            ValueError: It is no such text.
        """
        found = re.fullmatch(r"(\d{1,3})/(\d{1,3})", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            msg = f"{text!r} is no share such as 1/3"
            raise ValueError(msg)
        return cls(int(found[1]), int(found[2]))

    def has(self, path: str) -> bool:
        """Whether the tests of a file are in this share: they use the same fixtures."""
        return zlib.crc32(path.encode()) % self.of == self.number - 1


def add_options(parser: pytest.Parser) -> None:
    """Declare ``--tier`` and ``--share``."""
    parser.addoption("--tier", choices=TIERS, help="run the tests of one tier")
    parser.addoption(
        "--share", type=Share.parse, help="run a share of the tests: 1/3, 2/3 or 3/3"
    )


def mark(items: Iterable[pytest.Item]) -> None:
    """Derive each test's components and its xdist group from its fixtures.

    Raises:
        pytest.UsageError: A test is marked long, slow or repeated without a reason,
            or repeated without the test that it repeats.
    """
    for item in items:
        markers = list(item.iter_markers())
        for marker in markers:
            _check(item, marker)
        names = getattr(item, "fixturenames", ())
        shared = [one for name, one in FIXTURES.items() if name in names]
        components = {one.component for one in shared} - {None}
        for component in sorted(filter(None, components)):
            item.add_marker(pytest.mark.component(component))
        item.stash[_TIERS] = _tiers({one.name for one in markers}, components)
        # A test has one group; every process has to come to the same one.
        groups = [one.group for one in shared if one.group is not None]
        if groups and item.config.pluginmanager.hasplugin("xdist"):
            item.add_marker(pytest.mark.xdist_group(_series(groups[0], item.path)))


def _check(item: pytest.Item, marker: pytest.Mark) -> None:
    if marker.name in {"long", "slow"} and not has_reason(marker):
        msg = f"{item.nodeid}: @pytest.mark.{marker.name} needs a reason, a text"
        raise pytest.UsageError(msg)
    if marker.name == "repeated" and repeats(marker) is None:
        msg = f"{item.nodeid}: @pytest.mark.repeated needs a reason, and shown_by=TEST"
        raise pytest.UsageError(msg)


def _series(group: str, path: Path) -> str:
    if group != "runs":
        return group
    return f"{group}-{zlib.crc32(path.name.encode()) % RUNS}"


def _tiers(markers: set[str], components: set[str | None]) -> frozenset[str]:
    if "repeated" in markers:
        return frozenset({"repeated"})
    if "long" in markers:
        return frozenset({"rest"})
    if components or markers & {"network", "slow"}:
        return frozenset({"test"})
    return frozenset({"quick", "test"})


def name_groups(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Append the group of each test to its name, by which xdist's controller groups.

    pytest-xdist 3.8 does so itself, but to a field that pytest 9.2 no longer reads
    (pytest-dev/pytest-xdist#1386): tests of a group would run anywhere.
    """
    if not config.getoption("loadgroup", default=False):
        return
    for item in items:
        for marker in item.iter_markers("xdist_group"):
            suffix = f"@{marker.args[0]}"
            if not item.nodeid.endswith(suffix):
                item._id = type(item.id).parse(item.nodeid + suffix)


def has_reason(marker: pytest.Mark) -> bool:
    """Whether a marker states one reason."""
    match marker.args:
        case (str(reason),):
            return bool(reason.strip()) and not marker.kwargs
    return False


def repeats(marker: pytest.Mark) -> str | None:
    """The test that shows what a repeated test shows once more.

    Returns:
        Its name, as pytest writes it, with or without the brackets of a case; None if
        the marker has no reason or names no test.
    """
    match marker.args, marker.kwargs:
        case (str(reason),), {"shown_by": str(test), **others} if not others:
            return test if reason.strip() and "::" in test else None
    return None


def describe(items: Iterable[pytest.Item]) -> dict[str, Any]:
    """Of each test that `mark` has seen: its file, its tiers, its components, and what
    it repeats."""
    return {
        item.nodeid: {
            "file": file,
            "tiers": [tier for tier in TIERS if tier in item.stash[_TIERS]],
            "components": [one.args[0] for one in item.iter_markers("component")],
            "repeats": [repeats(one) for one in item.iter_markers("repeated")],
        }
        for item in items
        if (file := _relative(item.path)) is not None
    }


@cache
def _relative(path: Path) -> str | None:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else None


def sample(
    values: Iterable[Any], reason: str, keep: int = 1, *, shown_by: str | None = None
) -> list[Any]:
    """Parameters of a test, of which all but the first few are long.

    Args:
        values: The parameters.
        reason: Why the others are left out.
        keep: So many keep the tier of their test.
        shown_by: The others are repeated instead, and this test shows the same.
    """
    marker = pytest.mark.long(reason)
    if shown_by is not None:
        marker = pytest.mark.repeated(reason, shown_by=shown_by)
    first, *others = values
    kept, rest = [first, *others[: keep - 1]], others[keep - 1 :]
    return [*kept, *(pytest.param(one, marks=marker) for one in rest)]


def may_have(tier: str | None, path: Path) -> bool:
    """Whether a file of tests may have some of a tier: others are not imported.

    A test is long or repeated by a marker or by `sample`, in its file or for a fixture
    of its folder; ``tests/house/test_tiers.py`` checks that this finds every such test.
    """
    if tier not in {"rest", "repeated"} or not path.name.startswith("test_"):
        return True
    files = (path, path.with_name("conftest.py"))
    return any(_MARKED.search(one.read_text()) for one in files if one.exists())


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of other tiers and shares than those asked for."""
    tier, share = config.getoption("tier"), config.getoption("share")
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        runs = tier is None or tier in item.stash[_TIERS]
        if share is not None:
            runs &= share.has(_relative(item.path) or item.path.as_posix())
        (chosen if runs else left_out).append(item)
    items[:] = chosen
    if left_out:
        config.hook.pytest_deselected(items=left_out)


class Times:
    """Reports what a tier took, by folder and by test; a pytest plug-in.

    The report is printed at the end and written to ``.run/times-<tier>.json``.
    """

    def __init__(self, tier: str) -> None:
        self._tier = tier
        self._begin = time.monotonic()
        self._busy = busy_seconds()
        self._seconds: dict[str, float] = defaultdict(float)
        self._groups: dict[str, float] = defaultdict(float)
        self._costs: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the set-up, the call or the tear-down of a test."""
        test = _GROUP.sub("", report.nodeid)
        self._seconds[test] += report.duration
        if test != report.nodeid:
            self._groups[report.nodeid.removeprefix(f"{test}@")] += report.duration
        if figures := figures_of(report):
            self._costs[test] = figures

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the report, and write it."""
        wall = time.monotonic() - self._begin
        found = report(self._tier, wall, self._seconds, self._costs)
        found |= {
            "busy_seconds": round(busy_seconds() - self._busy, 1),
            "groups": {name: round(one, 1) for name, one in self._groups.items()},
        }
        path = ROOT / ".run" / f"times-{self._tier}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        terminalreporter.section(f"times of {TIERS[self._tier].command}")
        for line in lines(found):
            terminalreporter.write_line(line)


def busy_seconds() -> float:
    """What all processors of the machine have spent on anything; 0 where unknown."""
    path = Path("/proc/stat")
    if not path.exists():
        return 0.0
    user, nice, system, _, _, *interrupts = path.read_text().splitlines()[0].split()[1:]
    ticks = map(int, (user, nice, system, *interrupts[:2]))
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def report(
    tier: str,
    wall: float,
    seconds: Mapping[str, float],
    costs: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """The report of a run: in all, by folder, by component, and the slowest tests."""
    folders: dict[str, dict[str, float]] = {}
    components: dict[str, dict[str, float]] = {}
    for test, taken in seconds.items():
        used = costs.get(test, {})
        folder = "/".join(test.split("/")[:2])
        sums = folders.setdefault(folder, {"seconds": 0, "cpu": 0, "processes": 0})
        sums["seconds"] += taken
        sums["cpu"] += used.get("cpu", 0)
        sums["processes"] += used.get("processes", 0)
        for component, set_up in used.get("set_up", {}).items():
            starts = components.setdefault(component, {"started": 0, "seconds": 0})
            starts["started"] += 1
            starts["seconds"] += set_up
    return {
        "tier": tier,
        "goal_seconds": 60 * TIERS[tier].minutes,
        "wall_seconds": round(wall, 1),
        "tests": len(seconds),
        "test_seconds": round(sum(seconds.values()), 1),
        "cpu_seconds": round(sum(one["cpu"] for one in folders.values()), 1),
        "processes": round(sum(one["processes"] for one in folders.values())),
        "components": _slowest(components),
        "folders": _slowest(folders),
        "slowest": {
            test: round(seconds[test], 1)
            for test in sorted(seconds, key=lambda test: -seconds[test])[:NAMED]
        },
        "dearest": {
            test: costs[test]["cpu"]
            for test in sorted(costs, key=lambda test: -costs[test]["cpu"])[:NAMED]
        },
    }


def _slowest(figures: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name: {key: round(value, 1) for key, value in figures[name].items()}
        for name in sorted(figures, key=lambda name: -figures[name]["seconds"])
    }


def lines(found: dict[str, Any]) -> list[str]:
    """A report as text."""
    wall, goal = found["wall_seconds"], found["goal_seconds"]
    slowest = list(found["slowest"].items())[:PRINTED]
    top = f"{found['tests']} tests, {found['test_seconds']:.0f} s in tests, "
    top += f"{found['cpu_seconds']:.0f} s of processors, "
    top += f"{found['processes']} processes; "
    top += f"{wall:.0f} s in all; goal on 2 idle cores: {goal} s"
    return [
        top,
        *(
            f"{one['seconds']:8.1f} s  {name}: started {one['started']:.0f} times"
            for name, one in found["components"].items()
        ),
        *(
            f"{one['seconds']:8.1f} s  {name}: {one['cpu']:.0f} s of processors, "
            f"{one['processes']:.0f} processes"
            for name, one in found["folders"].items()
        ),
        *(f"{seconds:8.1f} s  {name}" for name, seconds in slowest),
    ]
