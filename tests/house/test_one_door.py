"""Rows enter a log as `SoundRows` only, which few modules make.

That mypy refuses every other way is checked by ``make check``: see ``ways_around.py``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OWNERS = {
    r"object\.__new__\(SoundRows": {"spi/soundness/__init__.py"},
    r"\b_sound\(": {"spi/soundness/__init__.py"},
    r"\bUncheckedRows\(": {"backends/flight/server/batches.py"},
    r"\.append_sound\(": {
        "arrowlog/stages.py",
        "backends/flight/server/plain.py",
        "backends/flight/server/uploads.py",
        "backends/flight/server/writing.py",
    },
}


@pytest.mark.parametrize("pattern", OWNERS)
def test_these_modules_alone_handle_rows_on_their_way_into_a_log(pattern: str) -> None:
    folders = {path.parent for path in ROOT.glob("*/__init__.py")} - {ROOT / "tests"}
    found = {
        str(path.relative_to(ROOT))
        for folder in folders
        for path in folder.rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }
    assert found == OWNERS[pattern]
