"""Known failures: each with a reason and a last day, and none longer than needed."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import pytest

from streamfactory.conformance.case import Case
from streamfactory.conformance.runner import Outcome, Result
from streamfactory.conformance.waivers import Waiver, read_waivers, waived
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.conformance.bench import Bench

NAMES = ["rows_come_back", "growth_is_found"]
TODAY = date(2026, 5, 2)


def body(bench: Bench) -> None:
    """Rows come back."""


def result(outcome: Outcome, reason: str = "") -> Result:
    return Result(Case("rows_come_back", "R1", body), outcome, reason=reason)


def apply(found: Result, expires: date) -> Result:
    waiver = Waiver("rows_come_back", "issue 7", expires)
    [answer] = waived([found], {"rows_come_back": waiver}, TODAY)
    return answer


def test_reads_waivers_by_case(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(
        "[[waiver]]\ncase = 'rows_come_back'\nreason = 'issue 7'\n"
        "expires = 2027-01-31\n"
    )
    [(name, waiver)] = read_waivers(path, NAMES).items()
    assert name == "rows_come_back"
    assert str(waiver) == "until 2027-01-31: issue 7"


def test_an_empty_file_waives_nothing(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text("# none\n")
    assert read_waivers(path, NAMES) == {}


def test_everything_that_is_wrong_is_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(
        "until = 3\n"
        "[[waiver]]\ncase = 'rows_come_bak'\nreason = ' '\nexpires = '2027-01-31'\n"
        "[[waiver]]\nbecause = 'x'\n"
        "[[waiver]]\ncase = 7\nreason = 'x'\nexpires = 2027-01-31T00:00:00\n"
        "[[waiver]]\ncase = 'growth_is_found'\nreason = 'x'\nexpires = 2027-01-31\n"
        "[[waiver]]\ncase = 'growth_is_found'\nreason = 'y'\nexpires = 2027-01-31\n"
    )
    with pytest.raises(ConfigError) as caught:
        read_waivers(path, NAMES)
    texts = [f"{p.key}: {p.what}; {p.suggestion}" for p in caught.value.problems]
    day = "write the last day, as expires = 2027-01-31"
    assert texts == [
        "until: means nothing here; write [[waiver]]",
        (
            "waiver 1, case: 'rows_come_bak' is no case of the kit; "
            "did you mean rows_come_back?"
        ),
        "waiver 1, reason: says nothing; None",
        f"waiver 1, expires: '2027-01-31' is not a date; {day}",
        "waiver 2, because: means nothing here; known are case, reason, expires",
        "waiver 2, case: is missing; None",
        "waiver 2, reason: is missing; None",
        f"waiver 2, expires: is missing; {day}",
        "waiver 3, case: is not a string; None",
        (
            "waiver 3, expires: datetime.datetime(2027, 1, 31, 0, 0) is not a date; "
            f"{day}"
        ),
        "waiver 5, case: 'growth_is_found' is waived twice; None",
    ]


@pytest.mark.parametrize("text", ["waiver = 3\n", "waiver = [3]\n", "[waiver]\nx = 1"])
def test_other_shapes_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "waivers.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_waivers(path, NAMES)
    assert caught.value.problems[0].suggestion == "write [[waiver]]"


@pytest.mark.parametrize("content", [None, b"[[waiver", b"\xff"])
def test_a_file_that_cannot_be_read_is_reported(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "waivers.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_waivers(path, NAMES)
    assert caught.value.what.startswith(f"the waivers {str(path)!r} cannot be read: ")


@pytest.mark.parametrize("expires", [TODAY, date(2027, 1, 31)])
def test_a_known_failure_is_waived_through_its_last_day(expires: date) -> None:
    answer = apply(result(Outcome.FAILED, "boom"), expires)
    assert answer.outcome is Outcome.WAIVED
    assert answer.reason == "boom"
    assert answer.waiver == f"until {expires}: issue 7"


def test_an_expired_waiver_fails_and_reports_it() -> None:
    answer = apply(result(Outcome.FAILED, "boom"), date(2026, 5, 1))
    assert answer.outcome is Outcome.FAILED
    assert answer.reason == "the waiver expired on 2026-05-01 (issue 7); boom"


def test_a_waiver_of_a_case_that_passes_is_stale() -> None:
    answer = apply(result(Outcome.PASSED), date(2027, 1, 31))
    assert answer.outcome is Outcome.FAILED
    assert answer.reason == (
        "the waiver is stale: the case passes; take it out of the file"
    )


def test_a_waiver_of_a_case_that_is_skipped_is_stale() -> None:
    found = result(Outcome.SKIPPED, "not claimed: shared")
    answer = apply(found, date(2027, 1, 31))
    assert answer.outcome is Outcome.FAILED
    assert answer.reason == (
        "the waiver is stale: the case is skipped (not claimed: shared); "
        "take it out of the file"
    )


def test_results_without_a_waiver_stay_as_they_are() -> None:
    found = [result(Outcome.FAILED, "boom"), result(Outcome.PASSED)]
    assert list(waived(found, {}, TODAY)) == found
