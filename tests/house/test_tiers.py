"""The tiers of the suite: who is in which, and the report of their times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.proving import tiers

from streamfactory.conformance.runner import all_cases

ROOT = Path(__file__).parents[2]
OF_THE_REST = {"spark-cluster", "apicurio"}
"""Only `make test-all` starts these: `make test` has Spark without a cluster, and the
registry's client with a server of its own."""
COMPONENTS = {one.component for one in tiers.FIXTURES.values()} - {None} - OF_THE_REST
KITS = {
    "delta": "tests/tables/test_delta_conformance.py",
    "file": "tests/backends/test_file_conformance.py",
    "flight": "tests/flight/test_flight_conformance.py",
    "hudi": "tests/tables/test_hudi_conformance.py",
    "iceberg": "tests/tables/test_iceberg_conformance.py",
    "kafka": "tests/kafka/test_kafka_reading_conformance.py",
    "memory": "tests/conformance/test_suite.py",
    "shm": "tests/shm/test_shm_conformance.py",
    "push": "tests/push/test_push_conformance.py",
    "socket": "tests/sockets/test_socket_conformance.py",
    "zeromq": "tests/zeromq/test_zeromq_conformance.py",
}
LISTING = """
import json, sys
import pytest
from tests.proving import tiers

class Listing:
    def pytest_collection_finish(self, session):
        with open(sys.argv[1], "w") as file:
            json.dump(session.config.stash[tiers.COLLECTED], file)

arguments = ["--collect-only", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
sys.exit(pytest.main(arguments, plugins=[Listing()]))
"""


@pytest.fixture(scope="module")
def suite(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """All tests: the file of each, its tiers, and the components that it uses."""
    found: dict[str, Any] = request.config.stash[tiers.COLLECTED]
    files = {str(path.relative_to(ROOT)) for path in ROOT.glob("tests/*/test_*.py")}
    if files <= {one["file"] for one in found.values()}:
        return found
    # This run has a part of them: another process collects all.
    path = tmp_path_factory.mktemp("suite") / "tests.json"
    done = subprocess.run(
        [sys.executable, "-c", LISTING, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = json.loads(path.read_text())
    assert files <= {one["file"] for one in found.values()}
    return found


def test_each_test_is_in_one_of_the_three_tiers(suite: dict[str, Any]) -> None:
    counts = {
        name: sum(tier != "quick" for tier in one["tiers"])
        for name, one in suite.items()
    }
    assert {name for name, count in counts.items() if count != 1} == set()


def test_what_a_test_repeats_is_shown_by_a_test_of_continuous_integration(
    suite: dict[str, Any],
) -> None:
    run = {name for name, one in suite.items() if {"test", "rest"} & {*one["tiers"]}}
    run |= {name.partition("[")[0] for name in run}
    repeated = {
        name: test for name, one in suite.items() for test in one.get("repeats", ())
    }
    assert {name: test for name, test in repeated.items() if test not in run} == {}


@pytest.mark.parametrize("tier", ["rest", "repeated"])
def test_no_file_with_tests_of_a_tier_is_left_out(
    suite: dict[str, Any], tier: str
) -> None:
    files = {one["file"] for one in suite.values() if tier in one["tiers"]}
    assert {file for file in files if not tiers.may_have(tier, ROOT / file)} == set()
    others = {one["file"] for one in suite.values()} - files
    left_out = {file for file in others if not tiers.may_have(tier, ROOT / file)}
    assert len(left_out) > len(others) / 2


def test_the_default_tier_has_every_real_component(suite: dict[str, Any]) -> None:
    used: Counter[str] = Counter()
    for one in suite.values():
        if "test" in one["tiers"]:
            used.update(one["components"])
    assert COMPONENTS - set(used) == set()


def test_the_quick_tier_starts_none(suite: dict[str, Any]) -> None:
    quick = {name: one for name, one in suite.items() if "quick" in one["tiers"]}
    assert len(quick) > len(suite) / 2
    assert {name for name, one in quick.items() if one["components"]} == set()
    assert all("test" in one["tiers"] for one in quick.values())


def test_the_default_tier_has_the_kit_on_every_built_in(suite: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(KITS) == set(project["entry-points"]["streamfactory.conformance"])
    kit = len(all_cases())
    # Extensions whose writers are slow: the whole kit takes minutes, and is long.
    long = {KITS["delta"], KITS["iceberg"], KITS["kafka"]}
    for file in long:
        assert "test" in suite[f"{file}::test_the_quick_kit_passes"]["tiers"]
    for file in set(KITS.values()) - long:
        found = [one["tiers"] for one in suite.values() if one["file"] == file]
        # A file may have the kit twice, over TLS for one: that one may be long.
        assert sum("test" in tiers for tiers in found) >= kit, file


GROUPED = """
import os
import pytest
from tests.proving import tiers

@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config, items):
    yield
    tiers.name_groups(config, items)

@pytest.fixture(autouse=True)
def _(request):
    with open({file!r}, "a") as file:
        file.write(f"{{request.node.originalname}} {{os.getpid()}}\\n")
"""
TESTS = """
import pytest

@pytest.mark.xdist_group("one")
@pytest.mark.parametrize("n", range(12))
def test_one(n): pass

@pytest.mark.parametrize("n", range(12))
def test_any(n): pass
"""


@pytest.mark.slow("runs pytest with workers of its own")
def test_tests_of_a_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(GROUPED.format(file=str(tmp_path / "ran")))
    (tmp_path / "test_grouped.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "3", "--dist", "loadgroup"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    assert Counter(name for name, _ in ran) == {"test_one": 12, "test_any": 12}
    assert len({process for name, process in ran if name == "test_one"}) == 1
    assert len({process for _, process in ran}) > 1


@pytest.mark.parametrize(
    ("marker", "good"),
    [
        (pytest.mark.long("40 kills of a broker"), True),
        (pytest.mark.long, False),
        (pytest.mark.long(" "), False),
        (pytest.mark.long(3), False),
        (pytest.mark.long("a", "b"), False),
        (pytest.mark.long("a", reason="b"), False),
    ],
)
def test_a_long_or_slow_test_states_its_reason(
    *, marker: pytest.MarkDecorator, good: bool
) -> None:
    assert tiers.has_reason(marker.mark) is good


@pytest.mark.parametrize(
    ("marker", "test"),
    [
        (pytest.mark.repeated("over TLS", shown_by="a.py::test_a"), "a.py::test_a"),
        (pytest.mark.repeated("over TLS"), None),
        (pytest.mark.repeated(" ", shown_by="a.py::test_a"), None),
        (pytest.mark.repeated(shown_by="a.py::test_a"), None),
        (pytest.mark.repeated("over TLS", shown_by="another test"), None),
        (pytest.mark.repeated("over TLS", shown_by="a.py::test_a", n=1), None),
    ],
)
def test_a_repeated_test_names_what_it_repeats(
    marker: pytest.MarkDecorator, test: str | None
) -> None:
    assert tiers.repeats(marker.mark) == test


def test_shares_have_each_file_once(suite: dict[str, Any]) -> None:
    shares = [tiers.Share.parse(f"{number}/3") for number in (1, 2, 3)]
    files = {one["file"] for one in suite.values()}
    parts = [{file for file in files if share.has(file)} for share in shares]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(files)
    assert all(len(part) > len(files) / 5 for part in parts)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", ""])
def test_other_shares_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no share such as 1/3"):
        tiers.Share.parse(text)


def test_the_report_adds_up() -> None:
    seconds = {"tests/a/test_x.py::one": 2.0, "tests/b/test_y.py::two": 5.0}
    costs = {
        "tests/a/test_x.py::one": {"cpu": 1.5, "processes": 3, "set_up": {}},
        "tests/b/test_y.py::two": {"cpu": 4, "processes": 1, "set_up": {"kafka": 3.0}},
    }
    found = tiers.report("test", 4.0, seconds, costs)
    assert found["goal_seconds"] == 480
    assert tiers.lines(found) == [
        (
            "2 tests, 7 s in tests, 6 s of processors, 4 processes; "
            "4 s in all; goal on 2 idle cores: 480 s"
        ),
        "     3.0 s  kafka: started 1 times",
        "     5.0 s  tests/b: 4 s of processors, 1 processes",
        "     2.0 s  tests/a: 2 s of processors, 3 processes",
        "     5.0 s  tests/b/test_y.py::two",
        "     2.0 s  tests/a/test_x.py::one",
    ]
