"""Topics for Spark to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.proving.sessions import Topic

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path, "clicks", **{"stream.file.partitions": "3"})
