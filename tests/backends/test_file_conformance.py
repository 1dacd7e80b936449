"""The conformance kit on ``file``, over the log in a folder."""

from __future__ import annotations

import pytest
from tests.conformance.parts import chapters, failures, run_part

from streamfactory.backends.file.harness import FileHarness, ParquetFileHarness
from streamfactory.conformance.suite import ConformanceSuite


class TestFile(ConformanceSuite):
    """Every case."""

    harness = FileHarness


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(
            ("reading", "metadata", "commits"),
            id="rows",
            marks=pytest.mark.long("parts of the kit once more"),
        ),
        pytest.param(
            ("holding", "writing", "kills", "model"),
            id="more",
            marks=pytest.mark.repeated(
                "cases that read and commit segments as others do",
                shown_by="tests/backends/test_file_conformance.py::"
                "test_a_log_of_parquet_segments_reads_and_commits_as_one_of_arrow[rows]",
            ),
        ),
    ],
)
def test_a_log_of_parquet_segments_reads_and_commits_as_one_of_arrow(
    parts: tuple[str, ...],
) -> None:
    """The format of segments is seen where rows are read, kept and committed."""
    assert failures(run_part(ParquetFileHarness, chapters(*parts))) == {}
