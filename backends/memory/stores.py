"""What this process holds, and what both halves of the backend know of it."""

from __future__ import annotations

import os
from typing import Final

import pyarrow as pa

from streamfactory.arrowlog import MemoryLogStore
from streamfactory.spi import (
    Claims,
    EpochVisibility,
    headers_type,
)

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


def message_schema() -> pa.Schema:
    """What a topic of undecoded messages stores; the rest is known by its place."""
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("headers", headers_type()),
        ]
    )
