"""The conformance kit on ``file``, over the log in a folder."""

from __future__ import annotations

import pytest
from tests.conformance.parts import chapters, failures, run_part

from streamfactory.backends.file.harness import FileHarness, ParquetFileHarness
from streamfactory.conformance.suite import ConformanceSuite


class TestFile(ConformanceSuite):
    """Every case."""

    harness = FileHarness


@pytest.mark.long("large parts of the kit once more")
def test_a_log_of_parquet_segments_reads_and_commits_as_one_of_arrow() -> None:
    """The format of segments is seen where rows are read, kept and committed."""
    parts = ("reading", "holding", "metadata", "writing", "commits", "kills", "model")
    assert failures(run_part(ParquetFileHarness, chapters(*parts))) == {}
