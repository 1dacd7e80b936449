"""SECURITY.md names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def test_each_row_of_the_table_is_shown_by_a_test_that_exists() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = NAMED.findall(text)
    assert len(named) >= 10
    for file, test in named:
        code = (ROOT / "tests" / "flight" / file).read_text(encoding="utf-8")
        assert f"def {test}(" in code, (file, test)
