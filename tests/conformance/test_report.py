"""What a run found, in four forms."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from streamfactory.conformance.case import Case
from streamfactory.conformance.report import (
    FORMATS,
    Report,
    shortened,
    support_table,
    text_lines,
    to_json,
    to_junit,
    to_markdown,
    to_plain,
)
from streamfactory.conformance.runner import Outcome, Result
from streamfactory.conformance.subject import find_subject

if TYPE_CHECKING:
    from streamfactory.conformance.bench import Bench


def body(bench: Bench) -> None:
    """Rows come back as they were.

    More of it is nobody's business.
    """


READ = Case("rows_come_back", "R1", body, hint="rows are sorted")
SPLIT = Case("a_range_splits", "R3", body)
GROW = Case("growth_is_found", "M4", body)
KEEP = Case("epochs_are_kept", "W3", body)

FAILED = Result(
    READ,
    Outcome.FAILED,
    0.25,
    "rows: expected [1], got [2] | or\nnothing",
    ("create(partitions=1)", "fetch(0)", "fetch(0)", "fetch(1)"),
    "Traceback",
)
WAIVED = Result(
    KEEP, Outcome.WAIVED, 0.1, "epoch 3 came twice", waiver="until 2999-01-31: issue 7"
)
SKIPPED = Result(GROW, Outcome.SKIPPED, reason="not claimed: replayable")
PASSED = Result(SPLIT, Outcome.PASSED, 0.5)


@pytest.fixture
def report() -> Report:
    results = (FAILED, PASSED, SKIPPED, WAIVED)
    return Report("tiny", results, 1.23, 7, "streamfactory conformance tiny --seed 7")


def test_text_reports_all_that_is_known_of_a_failure(report: Report) -> None:
    assert list(text_lines(report)) == [
        "failed   R1   rows_come_back     0.25 s",
        "passed   R3   a_range_splits     0.50 s",
        "skipped  M4   growth_is_found  not claimed: replayable",
        "waived   W3   epochs_are_kept    0.10 s",
        "",
        "failed: rows_come_back (rule R1)",
        "  expected   Rows come back as they were.",
        "  happened   rows: expected [1], got [2] | or",
        "             nothing",
        "  script     create(partitions=1)",
        "             fetch(0)  # 2 times",
        "             fetch(1)",
        "  usually    rows are sorted",
        "  run again  streamfactory conformance tiny --seed 7 --only rows_come_back",
        "",
        "waived: epochs_are_kept (rule W3)",
        "  waiver     until 2999-01-31: issue 7",
        "  happened   epoch 3 came twice",
        "",
        "not proved:",
        "  1 case: not claimed: replayable",
        "",
        "tiny: 1 passed, 1 failed, 1 skipped, 1 waived in 1.2 s (seed 7)",
    ]


def test_text_shows_how_a_long_script_began_and_ended() -> None:
    script = tuple(f"step {n} {'x' * 200}" for n in range(40))
    result = Result(READ, Outcome.FAILED, reason="no", script=script)
    lines = list(text_lines(Report("tiny", (result,), 0.0, 0, "again")))
    steps = [line.split()[-3] for line in lines if "xxx" in line]
    assert steps == [*map(str, range(8)), *map(str, range(32, 40))]
    assert "             ... 24 steps, which --report json has" in lines
    assert max(map(len, lines)) < 150
    assert shortened(script) == list(script)


def test_json_has_every_fact(report: Report) -> None:
    plain = json.loads(to_json(report))
    assert plain == to_plain(report)
    assert (plain["type"], plain["ok"], plain["seed"]) == ("tiny", False, 7)
    assert plain["claims"] == {}
    counts = {"passed": 1, "failed": 1, "narrowed": 0, "skipped": 1, "waived": 1}
    assert plain["counts"] == counts
    assert plain["not_proved"] == [
        {"reason": "not claimed: replayable", "cases": ["growth_is_found"]}
    ]
    failed, passed, skipped, waived = plain["cases"]
    assert failed == {
        "case": "rows_come_back",
        "rule": "R1",
        "expected": "Rows come back as they were.",
        "outcome": "failed",
        "reason": "rows: expected [1], got [2] | or\nnothing",
        "seconds": 0.25,
        "script": ["create(partitions=1)", "fetch(0)  # 2 times", "fetch(1)"],
        "usually": "rows are sorted",
        "by_harness": False,
        "waiver": None,
        "again": "streamfactory conformance tiny --seed 7 --only rows_come_back",
    }
    assert (passed["outcome"], passed["reason"], passed["script"]) == (
        "passed",
        None,
        [],
    )
    assert skipped["reason"] == "not claimed: replayable"
    assert waived["waiver"] == "until 2999-01-31: issue 7"


def test_junit_counts_and_keeps_the_words_apart(report: Report) -> None:
    suites = ET.fromstring(to_junit(report))
    [suite] = suites
    counted = {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")}
    assert counted == {"tests": "4", "failures": "1", "errors": "0", "skipped": "2"}
    [seed] = suite.findall("properties/property")
    assert (seed.get("name"), seed.get("value")) == ("seed", "7")
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["rows_come_back"].get("classname") == "tiny.R1"
    failure = cases["rows_come_back"].find("failure")
    assert failure is not None
    assert failure.get("message") == "rows: expected [1], got [2] | or"
    assert "usually    rows are sorted" in str(failure.text)
    assert len(cases["a_range_splits"]) == 0
    messages = {
        name: skipped.get("message")
        for name, case in cases.items()
        for skipped in case.findall("skipped")
    }
    assert messages == {
        "growth_is_found": "not claimed: replayable",
        "epochs_are_kept": "waived until 2999-01-31: issue 7",
    }


@pytest.mark.parametrize("hostile", ["\x00\x1b[31m", "\ufffe", "\udc80", "]]>&<"])
def test_junit_survives_what_xml_cannot_write(hostile: str) -> None:
    result = Result(READ, Outcome.FAILED, reason=f"got {hostile}", trace=hostile)
    text = to_junit(Report("tiny", (result,), 0.0, 0, "again"))
    [failure] = ET.fromstring(text.encode()).iter("failure")
    assert str(failure.get("message")).startswith("got ")


def test_markdown_is_a_table_of_words(report: Report) -> None:
    assert to_markdown(report) == (
        "| rule | case | tiny |\n"
        "| --- | --- | --- |\n"
        "| R1 | `rows_come_back` | **failed** |\n"
        "| R3 | `a_range_splits` | passed |\n"
        "| M4 | `growth_is_found` | skipped: not claimed: replayable |\n"
        "| W3 | `epochs_are_kept` | waived until 2999-01-31: issue 7 |\n"
    )


def test_a_table_of_several_backends_reports_what_was_not_run(report: Report) -> None:
    other = Report("other", (PASSED,), 0.0, 0, "again")
    table = support_table([to_plain(report), to_plain(other)])
    assert "| rule | case | tiny | other |" in table
    assert "| R1 | `rows_come_back` | **failed** | not run |" in table
    assert "| R3 | `a_range_splits` | passed | passed |" in table


def test_a_bar_does_not_end_a_cell() -> None:
    result = Result(GROW, Outcome.SKIPPED, reason="a | b\nc")
    table = to_markdown(Report("tiny", (result,), 0.0, 0, "again"))
    assert table.endswith("| M4 | `growth_is_found` | skipped: a \\| b c |\n")


@pytest.mark.parametrize("form", FORMATS)
def test_a_run_without_cases_can_be_written(form: str) -> None:
    text = FORMATS[form](Report("tiny", (), 0.0, 0, "again"))
    assert "tiny" in text


def test_a_report_has_what_the_backend_claims() -> None:
    claims = find_subject("memory").claims
    assert set(claims) == {"source", "sink"}
    assert claims["sink"]["idempotent"] is True
    assert claims["sink"]["epoch_visibility"] == "whole"
    assert set(find_subject("hudi").claims) == {"source"}
    assert to_plain(Report("memory", (), 0.0, 0, "again", claims))["claims"] == claims
    json.dumps(claims)
