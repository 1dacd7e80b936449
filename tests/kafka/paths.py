"""Marks for tests of modules that run on both paths, in Python and compiled.

The compiled part copies rows from the client's queue, and into it. What happens before,
options, connections and their refusals, is one code for both paths, and tried on one.
"""

from __future__ import annotations

from typing import Final

import pytest

BEFORE_READING: Final = pytest.mark.parametrize("each_path", ["off"], indirect=True)
"""For a test that fetches no row, or none that another test does not."""
BEFORE_WRITING: Final = pytest.mark.parametrize("each_way", ["off"], indirect=True)
"""The same for a test that sends none."""
