"""What a new user types in the first hour, in an empty folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome

ROW = "1,ann,1.5,2026-03-01T00:00:00Z"


@pytest.fixture(autouse=True)
def project(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    streamfactory: Callable[..., Outcome],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert streamfactory("init").status == 0


def test_help_and_version_are_found_in_each_spelling(
    streamfactory: Callable[..., Outcome],
) -> None:
    for words in (["help", "tail"], ["tail", "-h"]):
        assert streamfactory(*words).out == streamfactory("tail", "--help").out
    assert streamfactory("version").out == streamfactory("--version").out


def test_fresh_project_has_no_findings(streamfactory: Callable[..., Outcome]) -> None:
    lag = streamfactory("lag")
    assert (lag.status, lag.err) == (0, "")
    for _ in "before", "after":
        found = streamfactory("doctor", "--json").json["findings"]
        streams = [one for one in found if one["area"] == "stream"]
        assert [one["level"] for one in streams] == ["ok", "ok"], streams
        assert streamfactory("publish", "orders", "orders.csv").status == 0


def test_pipeline_is_known_by_its_name(streamfactory: Callable[..., Outcome]) -> None:
    outcome = streamfactory("checkpoint", "lag", "spent")
    assert "the pipeline 'spent' has not run yet" in outcome.err
    Path("spent").mkdir()  # what is here has precedence
    assert "has not run yet" not in streamfactory("checkpoint", "lag", "spent").err


def test_rows_are_read_from_a_date(streamfactory: Callable[..., Outcome]) -> None:
    assert streamfactory("publish", "orders", "orders.csv").status == 0
    for date, rows in (("2026-03-01", 6), ("2999-01-01", 0)):
        outcome = streamfactory(
            "tail", "orders", "--from", date, "--no-follow", "--json"
        )
        assert len(outcome.out.splitlines()) == rows
    refused = streamfactory("tail", "orders", "--from", "2026-02-30", "--no-follow")
    assert "is not a valid date" in refused.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"id,customer,amount,at\n\n{ROW}\n2,bob,zz,\n", "line 4, row 2, bytes"),
        (f"id;customer;amount;at\n{ROW.replace(',', ';')}\n", "--delimiter ';'"),
    ],
)
def test_bad_file_is_refused_with_what_helps(
    text: str, said: str, streamfactory: Callable[..., Outcome]
) -> None:
    assert streamfactory("publish", "orders", "orders.csv").status == 0
    Path("bad.csv").write_text(text)
    outcome = streamfactory("publish", "orders", "bad.csv")
    assert outcome.status == 1
    assert said in outcome.err


def test_column_that_a_file_lacks_is_noted(
    streamfactory: Callable[..., Outcome],
) -> None:
    assert streamfactory("publish", "orders", "orders.csv").status == 0
    Path("few.csv").write_text("id,customer\n7,ann\n")
    outcome = streamfactory("publish", "orders", "few.csv")
    assert outcome.status == 0
    assert "the inputs have no column amount, at, which is null" in outcome.err


def test_folder_is_no_input(streamfactory: Callable[..., Outcome]) -> None:
    outcome = streamfactory("publish", "orders", "configs")
    assert (outcome.status, "configs is a folder; pass its files" in outcome.err) == (
        2,
        True,
    )


def test_full_disk_is_no_internal_error(
    streamfactory: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("streamfactory.cli.printing.TextPrinter.show", full)
        outcome = streamfactory("list")
    assert outcome.status == 1
    assert "[storage_failed] the output cannot be written: No space left" in outcome.err
