"""The back-off between attempts, used by the framework and all backends."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter and a cap. Immutable.

    Args:
        initial: Upper bound of the pause after the first failure, in seconds; each
            further failure doubles it.
        longest: Upper bound of every pause, in seconds.
    """

    initial: float
    longest: float

    def pause(self, failures: int) -> float:
        """Seconds to wait after ``failures`` consecutive failures; 0 for none."""
        if failures < 1:
            return 0.0
        ceiling = min(self.longest, self.initial * 2.0 ** min(failures - 1, 60))
        return random.uniform(0, ceiling)  # noqa: S311 - jitter is not cryptographic
