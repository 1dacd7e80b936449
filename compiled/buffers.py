"""What the compiled core returns in place of bytes."""

from __future__ import annotations

from typing import Protocol


class Bytes(Protocol):
    """Bytes that are read without a copy, by Python's buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """Called by Python."""
