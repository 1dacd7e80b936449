"""What this process holds, and what both halves of the backend know of it."""

from __future__ import annotations

import os
from typing import Final

from streamfactory.arrowlog import MemoryLogStore
from streamfactory.spi import Claims, EpochVisibility

_stores: Final[dict[tuple[int, str], MemoryLogStore]] = {}
"""By process, too: what a fork copies was perhaps half written, its locks taken."""

CLAIMS: Final = Claims(
    replayable=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)


def store(name: str = "default") -> MemoryLogStore:
    """The store of that name in this process, made on first use."""
    return _stores.setdefault((os.getpid(), name), MemoryLogStore())
