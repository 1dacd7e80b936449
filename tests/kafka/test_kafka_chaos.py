"""Three brokers fail under all clients at once; the oracle notices what they break."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.kafka.chaos_oracle import judge_group
from tests.kafka.chaos_proving import prove
from tests.kafka.chaos_roles import Place, number_of, value_of
from tests.proving.skipping import skip_or_fail

if TYPE_CHECKING:
    from pathlib import Path

OFFSETS = {0: [0, 1, 2, 4]}
"""Of the rows of a topic: offset 3 is the end of a transaction."""


def judged(folder: Path, *lines: str) -> tuple[int, int, int]:
    """Rows lost, there twice, and damaged, by what members wrote down."""
    (folder / "group-classic").write_text("".join(f"{line}\n" for line in lines))
    found = judge_group(Place(str(folder), "", None), "classic", OFFSETS)
    return found.lost, found.twice, found.findings


@pytest.mark.long("three brokers, Spark with executors, and disturbances of seconds")
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("own_spark")
def test_no_row_is_lost_or_there_twice_whatever_fails(tmp_path: Path) -> None:
    verdict = prove(3, 1, tmp_path)
    if not verdict.kills:
        skip_or_fail("; ".join(verdict.notes))
    assert verdict.good, "\n".join([str(verdict), *verdict.notes])
    assert verdict.kills == 3


def test_a_message_that_was_changed_is_noticed() -> None:
    written = value_of(17)
    assert number_of(written) == 17
    assert number_of(written[:-1]) is None
    assert number_of(written.replace(b"17:", b"18:")) is None
    assert number_of(None) is None


def test_a_group_may_read_again_what_it_did_not_commit(tmp_path: Path) -> None:
    rows = [f"row x 0 {offset} 1" for offset in (0, 1, 2)]
    again = [f"row y 0 {offset} 1" for offset in (2, 4)]
    lines = ["begin x", *rows, "commit 0 2", "begin y", *again, "commit 0 5"]
    assert judged(tmp_path, *lines) == (0, 0, 0)


def test_a_row_of_a_group_that_was_committed_before_it_was_read_is_lost(
    tmp_path: Path,
) -> None:
    lines = ["begin x", "row x 0 0 1", "commit 0 2", "begin y"]
    lines += ["row y 0 2 1", "row y 0 4 1"]
    assert judged(tmp_path, *lines) == (1, 0, 0)
    # It is lost at the commit, even if somebody reads it later.
    assert judged(tmp_path, *lines, "row x 0 1 1") == (1, 0, 0)


def test_a_row_of_a_group_that_nobody_reads_is_lost(tmp_path: Path) -> None:
    lines = ["begin x", "row x 0 0 1", "row x 0 1 1", "row x 0 2 1"]
    assert judged(tmp_path, *lines) == (1, 0, 0)


def test_a_member_that_reads_what_was_committed_when_it_began_reads_it_twice(
    tmp_path: Path,
) -> None:
    rows = [f"row x 0 {offset} 1" for offset in (0, 1, 2, 4)]
    lines = ["begin x", *rows, "commit 0 5", "begin y", "row y 0 4 1"]
    assert judged(tmp_path, *lines) == (0, 1, 0)


def test_a_damaged_row_of_a_group_is_a_finding(tmp_path: Path) -> None:
    rows = [f"row x 0 {offset} 1" for offset in (0, 1, 2)]
    assert judged(tmp_path, "begin x", *rows, "row x 0 4 None") == (0, 0, 1)
