"""Waiting between attempts: the one back-off of the framework and the backends."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter and a cap. Immutable."""

    initial: float
    """Seconds: the longest pause after the first failure; each further one doubles
    it."""
    longest: float
    """Seconds: the cap."""

    def pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row; 0 before the first."""
        if failures < 1:
            return 0.0
        ceiling = min(self.longest, self.initial * 2.0 ** min(failures - 1, 60))
        return random.uniform(0, ceiling)  # noqa: S311 - jitter keeps no secret
