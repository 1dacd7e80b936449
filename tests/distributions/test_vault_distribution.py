"""``streamfactory-vault`` from its wheel: its own tests, and the kit within them.

OpenBao is in no package registry: the tests that start it run where the program ``bao``
is installed, and are chosen only there.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tests.distributions import journeys

if TYPE_CHECKING:
    from tests.distributions.installing import Installed

TREE = Path(__file__).parents[2] / "distributions" / "streamfactory-vault"


def test_its_own_tests_pass(vault_client: Installed, tmp_path: Path) -> None:
    real = shutil.which("bao") is not None
    chosen = "test" if real else "not bao and not real"
    out = journeys.run_own_tests(vault_client, TREE, tmp_path, kills=0, chosen=chosen)
    assert " passed" in out
    assert "skipped" not in out
