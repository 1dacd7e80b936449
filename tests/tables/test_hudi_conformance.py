"""The kit passes for ``hudi``, on copy-on-write tables of version 6."""

from __future__ import annotations

from streamfactory.backends.hudi.harness import HudiHarness
from streamfactory.conformance.suite import ConformanceSuite


class TestHudi(ConformanceSuite):
    harness = HudiHarness
