"""A few kills of senders and readers; `make prove PATHS=zeromq` makes more."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from tests.zeromq.proving import prove


@pytest.mark.slow("12 kills of processes")
def test_kills_lose_nothing_that_is_acknowledged_and_name_the_rest() -> None:
    # Paths of Unix sockets have to be short.
    with tempfile.TemporaryDirectory(prefix="sf-") as folder:
        verdict = prove(12, 5, Path(folder))
    assert verdict.good, verdict.notes
    assert verdict.kills == 12
