"""How many cases Hypothesis generates: few in each run, many where it is asked for."""

from __future__ import annotations

import os
from typing import Final

FACTOR: Final = "TEST_CASES"
"""The variable that multiplies the cases: ``make prove PATHS=properties`` sets it."""
_SHARE: Final = 4
"""Of the cases of a property that is proved, one in so many is tried in each run."""
_LEAST: Final = 25


def cases(number: int) -> int:
    """How many cases of a property are generated in this run.

    Args:
        number: Enough to find a defect of a single type or value.
    """
    factor = int(os.environ.get(FACTOR, "0"))
    return number * factor if factor else max(_LEAST, number // _SHARE)
