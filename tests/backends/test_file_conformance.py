"""The conformance kit on ``file``, over the log in a folder."""

from __future__ import annotations

from streamfactory.backends.file.harness import FileHarness
from streamfactory.conformance.suite import ConformanceSuite


class TestFile(ConformanceSuite):
    """Every case."""

    harness = FileHarness
