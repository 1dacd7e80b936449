"""Prepares Spark's Python workers: their log, and their garbage collection."""

from __future__ import annotations

import gc
import os
import sys
from typing import Final

from streamfactory.wiring.core.logs import log_in_worker

_REUSED: Final = "SPARK_REUSE_WORKER"
"""Spark sets it in the environment of workers that it reuses."""
_FULL: Final = 2
"""The oldest generation of the collector."""

_exempted = 0
"""Modules that were imported when objects were exempted last."""


def prepare_worker() -> None:
    """Prepare this process, if it is one of Spark's workers; repetition is allowed."""
    log_in_worker()
    if os.environ.get(_REUSED) and _exempt_modules not in gc.callbacks:
        gc.callbacks.append(_exempt_modules)


def _exempt_modules(phase: str, info: dict[str, int]) -> None:
    """Exempt from collections what a full one has left, if modules were imported since.

    Spark collects the garbage of a worker after each task and each call, and the next
    task of this worker waits: 25 ms for the modules of PySpark, 60 ms for ours and
    those of pandas too. What a full collection leaves is in use.
    """
    global _exempted  # noqa: PLW0603 - of the process, as the collector is
    if phase == "stop" and info["generation"] == _FULL:
        imported = len(sys.modules)
        if imported > _exempted:
            _exempted = imported
            gc.freeze()
