"""The conformance kit on ``shm``."""

from __future__ import annotations

from streamfactory.backends.shm.harness import ShmHarness
from streamfactory.conformance.suite import ConformanceSuite


class TestShm(ConformanceSuite):
    """Every case."""

    harness = ShmHarness
