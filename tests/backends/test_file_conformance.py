"""The conformance kit on ``file``, over the log in a folder."""

from __future__ import annotations

import pytest

from streamfactory.backends.file.harness import FileHarness, ParquetFileHarness
from streamfactory.conformance.suite import ConformanceSuite


class TestFile(ConformanceSuite):
    """Every case."""

    harness = FileHarness


@pytest.mark.long("the whole kit again; the log below it is tested in tests/disklog")
class TestFileOfParquet(ConformanceSuite):
    """Every case."""

    harness = ParquetFileHarness
