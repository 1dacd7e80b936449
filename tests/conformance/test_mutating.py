"""Mutants: each is one change of a backend, and is caught by a case or survives."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from tests.proving.commands import command_of

from streamfactory.conformance.mutant import Coverage
from streamfactory.conformance.mutating import (
    Equivalent,
    Examined,
    Mutant,
    Mutated,
    PackageCopy,
    Plan,
    Tried,
    mutate,
    read_equivalents,
)
from streamfactory.conformance.mutations import mutations_of
from streamfactory.conformance.runner import all_cases
from streamfactory.conformance.subject import find_subject
from streamfactory.spi import ConfigError

ROOT = Path(__file__).parents[2]
HARNESS = "lines_harness:LinesHarness"
QUICK = ("a_start_is_inclusive", "bounds_are_true")

MODULE = '''
"""A text < another."""
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
LEAST: Final[int] = 1
LIMIT = Option("limit", minimum=1)


@cached(maxsize=3)
def half(values: "Sequence[int] | None" = None, é=True) -> bool:
    """Not 1."""
    for value in values or ():
        if not value:
            continue
        total = value + 2 if value in (
            4, 5
        ) else f"{value - 6}"
        log(total)
    raise ValueError


class Reader:
    def fetch(self, start, limits):
        self.limits = limits
        if start > min(self.end, limits):
            return read(start, self.end, before=start, whole=True)
        return {"start": start}
'''


def test_each_change_of_what_is_computed_is_a_mutation_and_no_declaration() -> None:
    found = [(m.line, m.kind, m.before, m.after) for m in mutations_of(MODULE)]
    condition, one = "other condition", "off by one"
    suppressed = 'with __import__("contextlib").suppress(Exception): '
    read = "read(start, self.end, before=start, whole=True)"
    chosen = 'value + 2 if value in (\n            4, 5\n        ) else f"{value - 6}"'
    assert found == [
        (7, one, "1", "(2)"),
        (12, "other constant", "True", "(False)"),
        (14, condition, "values or ()", "(values and ())"),
        (15, condition, "not value", "(value)"),
        (16, "dropped statement", "continue", "break"),
        (17, "other operation", "value + 2", "(value - 2)"),
        (17, condition, chosen, "(f'{value - 6}' if value in (4, 5) else value + 2)"),
        (17, one, "2", "(3)"),
        (
            17,
            condition,
            "value in (\n            4, 5\n        )",
            "(value not in (4, 5))",
        ),
        (18, one, "4", "(5)"),
        (18, one, "5", "(6)"),
        (20, "dropped call", "log(total)", "pass"),
        (20, "caught error", "log(total)", f"{suppressed}log(total)"),
        (21, "caught error", "raise ValueError", "pass"),
        (26, "constant for a field", "limits", "(None)"),
        (
            27,
            one,
            "start > min(self.end, limits)",
            "(start >= min(self.end, limits))",
        ),
        (27, "dropped call", "min(self.end, limits)", "(limits)"),
        (27, "dropped call", "min(self.end, limits)", "(self.end)"),
        (28, "other constant", f"return {read}", "return None"),
        (
            28,
            "swapped arguments",
            read,
            "(read(self.end, start, before=start, whole=True))",
        ),
        (28, "constant for a field", "start", "(None)"),
        (28, "other constant", "True", "(False)"),
        (29, "other constant", 'return {"start": start}', "return None"),
        (29, "constant for a field", "start", "(None)"),
    ]
    assert {m.where for m in mutations_of(MODULE)} == {"", "half", "Reader.fetch"}


SHOWN = """
class Reader(Base):
    def __init__(self, config):
        super().__init__(config)

    def __repr__(self):
        return f"{self.name}" or "reader"

    def fetch(self, row, found):
        msg = f"row {row}" if row > 1 else "no row"
        msg += str(found - 1)
        remedy, count = "wait", found + 1
        log.warning("%s rows", found - 2)
        raise Refused(msg, count, remedy=remedy.strip())
"""


USED = """
def key(row):
    part = row + 1
    return f"{part}"

def check(row):
    at = row + 1
    if at > row:
        raise Refused(f"row {at}")
    return at

def refuse(row):
    latest = row + 1
    raise Refused("out of range", latest)

def show(row):
    shown = row + 1
    msg = f"row {shown}"
    raise Refused(msg)
"""


def test_what_is_more_than_a_text_is_a_mutation() -> None:
    found = [m.where for m in mutations_of(USED) if m.before == "row + 1"]
    assert sorted(found) == ["check", "key", "refuse"]


def test_what_people_read_is_no_mutation() -> None:
    found = {(m.line, m.kind, m.before) for m in mutations_of(SHOWN)}
    refused = "Refused(msg, count, remedy=remedy.strip())"
    assert found == {
        (4, "dropped call", "super().__init__(config)"),
        (12, "other operation", "found + 1"),
        (12, "off by one", "1"),
        (14, "swapped arguments", refused),
        (14, "caught error", f"raise {refused}"),
    }


def test_a_mutation_changes_nothing_else() -> None:
    for one in mutations_of(MODULE):
        changed = one.apply(MODULE)
        ast.parse(changed)
        encoded = one.after.encode()
        text, whole = changed.encode(), MODULE.encode()
        assert text[: one.begin] == whole[: one.begin]
        assert text[one.begin : one.begin + len(encoded)] == encoded
        assert text[one.begin + len(encoded) :] == whole[one.end :]


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    folders = (ROOT / "examples", ROOT / "tests" / "examples")
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, folders)))
    for folder in folders:
        monkeypatch.syspath_prepend(str(folder))
    subject = find_subject("lines", HARNESS)
    cases = [case for case in all_cases() if case.name in QUICK]
    return Plan(subject, cases, HARNESS)


def test_a_mutant_is_caught_by_a_case_or_survives(plan: Plan, tmp_path: Path) -> None:
    copy = PackageCopy(plan, tmp_path)
    examined = copy.examine()
    assert {*examined.seconds} == {*QUICK}
    whole = (tmp_path / "lines.py").read_text()
    mutants = {m.mutation.after: m for m in copy.mutants(examined)}
    behind = copy.attempt(mutants["(start + 1)"], examined)
    assert behind.caught_by in QUICK
    assert behind.reason
    # A block of another size reads the same lines.
    unseen = mutants["(65)"]
    assert copy.attempt(unseen, examined).caught_by is None
    assert unseen.reached_by == len(QUICK)
    assert (tmp_path / "lines.py").read_text() == whole
    assert (ROOT / "examples" / "lines.py").read_text() == whole


def test_a_mutant_is_tried_with_the_cases_of_each_harness(
    plan: Plan, tmp_path: Path
) -> None:
    copy = PackageCopy(replace(plan, more={HARNESS: plan.subject}), tmp_path)
    examined = copy.examine(HARNESS)
    assert examined.harness == HARNESS
    other = replace(examined, seconds={}, reached={}, with_children=())
    mutants = copy.mutants(other, examined)
    behind = next(m for m in mutants if m.mutation.after == "(start + 1)")
    assert behind.reached_by == len(QUICK)
    assert copy.attempt(behind, other).caught_by is None
    assert copy.attempt(behind, other, examined).caught_by in QUICK


def test_no_harness_is_changed(plan: Plan, tmp_path: Path) -> None:
    """Also not a further one, here beside the factories."""
    copy = PackageCopy(plan, tmp_path)
    classes = {m.mutation.where.partition(".")[0] for m in copy.mutants()}
    assert classes >= {"LinesConsumer", "LinesMetadata"}
    beside = replace(plan.subject, harness=import_module("lines").LinesMetadata)
    more = replace(plan, more={"lines:LinesMetadata": beside})
    found = PackageCopy(more, tmp_path).mutants()
    assert {m.mutation.where.partition(".")[0] for m in found} == classes - {
        "LinesMetadata"
    }


def test_a_mutant_that_narrows_a_case_is_caught(plan: Plan, tmp_path: Path) -> None:
    name = "what_the_framework_cuts_is_counted"
    cases = [case for case in all_cases() if case.name == name]
    copy = PackageCopy(replace(plan, cases=cases), tmp_path)
    examined = copy.examine()
    assert examined.narrowed == [name]
    unseen = next(m for m in copy.mutants(examined) if m.mutation.after == "(65)")
    assert copy.attempt(unseen, examined).caught_by is None
    tried = copy.attempt(unseen, replace(examined, narrowed=()))
    assert tried.caught_by == name
    assert tried.reason.startswith("narrowed: the consumer returned")


def test_appending_a_known_value_raises_nothing() -> None:
    def caught(source: str) -> int:
        return sum(m.kind == "caught error" for m in mutations_of(source))

    assert [caught(f"found.append({a})") for a in ("row", "row.id", "1", "f(row)")] == [
        0,
        0,
        0,
        1,
    ]


def test_a_case_that_is_skipped_examines_no_mutant(plan: Plan, tmp_path: Path) -> None:
    unable = "a_fetch_of_the_authors_ends_by_wake"
    cases = [case for case in all_cases() if case.name in (*QUICK, unable)]
    copy = PackageCopy(replace(plan, cases=cases), tmp_path)
    examined = copy.examine()
    assert {*examined.seconds} == {*QUICK}
    for mutant in copy.mutants(examined):
        assert {*examined.order(mutant)} <= {*QUICK}


def test_a_mutant_that_cannot_be_loaded_is_caught(plan: Plan, tmp_path: Path) -> None:
    copy = PackageCopy(plan, tmp_path)
    every = Examined({}, {}, (), harness=HARNESS)
    mutant = Mutant("lines.py", mutations_of("LEAST = 1")[0])
    (tmp_path / "lines.py").write_text("LEAST = 1 / (2 - 2)\n")
    tried = copy.attempt(mutant, every)
    assert tried.caught_by == "loading it"
    assert "ZeroDivisionError" in tried.reason


def test_a_mutant_that_claims_less_is_caught_by_what_it_is_not_asked_any_more(
    plan: Plan, tmp_path: Path
) -> None:
    copy = PackageCopy(plan, tmp_path)
    examined = copy.examine()
    claim = next(
        mutant
        for mutant in copy.mutants(examined)
        if mutant.mutation.where == "LinesConsumerFactory"
        and mutant.mutation.before == "True"
    )
    tried = copy.attempt(claim, examined)
    assert tried.caught_by in QUICK
    assert tried.reason == "skipped: not claimed: replayable"


def test_mutants_say_nothing_of_a_backend_that_fails(
    plan: Plan, tmp_path: Path
) -> None:
    copy = PackageCopy(plan, tmp_path)
    broken = (tmp_path / "lines.py").read_text().replace("start - 1", "start")
    (tmp_path / "lines.py").write_text(broken)
    with pytest.raises(ConfigError, match="of a backend that fails a_start_is"):
        copy.examine()


def test_survivors_are_listed_by_the_cases_that_execute_them() -> None:
    first, second, third = (
        Mutant("a.py", mutation, reached)
        for mutation, reached in zip(mutations_of(MODULE), (2, 40, 7), strict=False)
    )
    tried = [Tried(first), Tried(third, "a_case"), Tried(second)]
    found = Mutated(3, 0, tried).survivors
    assert [one.mutant for one in found] == [second, first]


def test_no_mutant_is_tried_when_the_time_is_over(plan: Plan) -> None:
    late = Plan(plan.subject, plan.cases, HARNESS, count=2, seconds=0.001)
    found = mutate(late, lambda _: None)
    assert (found.tried, found.left_out) == ([], 2)


def test_equivalent_mutants_are_left_out_and_have_to_exist(
    plan: Plan, tmp_path: Path
) -> None:
    path = tmp_path / "equivalents.toml"
    entry = (
        "[[equivalent]]\nmodule = 'lines.py'\nwhere = ''\nreason = 'any block does'\n"
    )
    path.write_text(f"{entry}before = '64 * 1024'\nafter = '(64 // 1024)'\n")
    (named,) = read_equivalents(path)
    mutation = next(
        m
        for m in mutations_of((ROOT / "examples" / "lines.py").read_text())
        if m.before == "64 * 1024"
    )
    assert named.names("lines.py", mutation)
    gone = Equivalent("lines.py", "", "63", "(64)", "there is none")
    late = Plan(plan.subject, plan.cases, HARNESS, 1, seconds=0.001, equivalents=[gone])
    with pytest.raises(ConfigError, match=r"has no mutant lines\.py"):
        mutate(late, lambda _: None)
    twice = Equivalent("lines.py", *_twice())
    late = replace(late, equivalents=[replace(twice, line="")])
    with pytest.raises(ConfigError, match=r"has \d mutants lines\.py.*state its line"):
        mutate(late, lambda _: None)
    assert mutate(replace(late, equivalents=[twice]), lambda _: None).equivalent == 1
    path.write_text(entry)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_equivalents(path)


def _twice() -> tuple[str, str, str, str, str]:
    """A mutant of the example whose function has its text on several lines."""
    every = mutations_of((ROOT / "examples" / "lines.py").read_text())
    places = Counter((m.where, m.before, m.after) for m in every)
    lines = Counter((m.where, m.before, m.after, m.text) for m in every)
    one = next(
        m
        for m in every
        if places[m.where, m.before, m.after] > 1
        and lines[m.where, m.before, m.after, m.text] == 1
    )
    return one.where, one.before, one.after, "a reason", one.text


def test_the_command_reports_survivors_with_status_1(
    plan: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("conformance", "lines", "--harness", HARNESS, "--only", "M5", "--json")
    done = command_of(capsys)(*words, "--mutate", "1", "--seed", "3")
    found = done.json
    assert found["tried"] == 1
    assert done.status == bool(found["survivors"])


def test_the_equivalent_mutants_of_redis_exist_once() -> None:
    package = ROOT / "examples" / "backends" / "streamfactory-redis"
    for one in read_equivalents(package / "equivalents.toml"):
        source = (package / "src" / one.module).read_text(encoding="utf-8")
        named = [m for m in mutations_of(source) if one.names(one.module, m)]
        assert len(named) == 1


def test_threads_that_cases_left_behind_count_while_a_case_is_forgotten() -> None:
    coverage = Coverage("/")
    for n in range(300):
        coverage.lines["a.py"][n].add("kept")

    class Counts(set[str]):
        def discard(self, case: object, /) -> None:
            coverage.lines["a.py"][300 + len(coverage.lines["a.py"])].add("late")
            coverage.lines[f"{case}{len(coverage.lines)}.py"][1].add("late")

    coverage.lines["a.py"][0] = Counts({"kept"})
    coverage.forget("skipped")
    assert len(coverage.plain()) == 2
