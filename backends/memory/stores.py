"""The stores of this process, shared by consumers and producers."""

from __future__ import annotations

import os
from typing import Final

from streamfactory.arrowlog import MemoryLogStore
from streamfactory.spi import Claims, EpochVisibility

_stores: Final[dict[tuple[int, str], MemoryLogStore]] = {}
"""Keyed by process id too: a fork may copy a half-written store with locks held."""

CLAIMS: Final = Claims(
    replayable=True,
    idempotent=True,
    epoch_visibility=EpochVisibility.WHOLE,
)


def store(name: str = "default") -> MemoryLogStore:
    """The store of this name in this process, created on first use."""
    return _stores.setdefault((os.getpid(), name), MemoryLogStore())
