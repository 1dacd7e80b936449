"""What tests cost beside time: processor time, processes started, fixtures set up.

Each worker measures its own tests, and sends the figures with the report of a test's
tear-down. The controller adds them up: ``tiers.Times`` prints them.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

PROPERTY: Final = "costs"
"""The name of the figures among a report's user properties."""
_STARTS: Final = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork"})
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_started: Counter[str] = Counter()


def _count(event: str, _: tuple[Any, ...]) -> None:
    if event in _STARTS:
        _started["processes"] += 1


def processor_seconds() -> float:
    """Of this process and of all that it has started, whether they run or ended.

    What a process used whose parent was killed is not known: it counts until then.
    """
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    ended = sum(one.ru_utime + one.ru_stime for one in used)
    return ended + sum(map(_running_seconds, _children("self")))


def _running_seconds(pid: str) -> float:
    """Of a process, of its children that ended, and of those that run; Linux only."""
    with suppress(OSError):  # it ends meanwhile
        # After the name, which may have blanks; see proc_pid_stat(5).
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = sum(map(int, fields[11:15]))
        return ticks / _TICKS + sum(map(_running_seconds, _children(pid)))
    return 0.0


def _children(pid: str) -> list[str]:
    found: list[str] = []
    for task in Path("/proc", pid, "task").glob("*"):
        with suppress(OSError):  # it ends meanwhile
            found += (task / "children").read_text().split()
    return found


class Costs:
    """Measures the tests of one process; a pytest plug-in.

    Args:
        components: The real component that each expensive fixture starts, by its name.
    """

    def __init__(self, components: dict[str, str]) -> None:
        self._components = components
        self._set_up: dict[str, float] = {}
        self._cpu = processor_seconds()
        sys.addaudithook(_count)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Time the set-up of what starts a real component."""
        begun = time.monotonic()
        result = yield
        component = self._components.get(fixturedef.argname)
        if component is not None:
            self._set_up[component] = time.monotonic() - begun
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item
    ) -> Generator[None, object, object]:
        """Measure one test, with its set-up."""
        self._set_up = {}
        begun = _started["processes"]
        figures: dict[str, Any] = {}
        item.user_properties.append((PROPERTY, figures))
        item.stash[_MEASURE] = lambda: figures.update(
            cpu=self._spent(),
            processes=_started["processes"] - begun,
            set_up=dict(self._set_up),
        )
        return (yield)

    def _spent(self) -> float:
        """Seconds of processors since the end of the test before."""
        before, self._cpu = self._cpu, processor_seconds()
        return round(max(0.0, self._cpu - before), 3)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, object, object]:
        """Complete the figures once the tear-down has ended."""
        if call.when == "teardown":
            item.stash[_MEASURE]()
        return (yield)


_MEASURE: Final = pytest.StashKey[Any]()


def figures_of(report: pytest.TestReport) -> dict[str, Any]:
    """The costs that a report of a tear-down carries; empty for other reports."""
    if report.when != "teardown":
        return {}
    found = dict(report.user_properties).get(PROPERTY)
    return found if isinstance(found, dict) else {}
