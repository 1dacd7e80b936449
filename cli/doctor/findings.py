"""Findings of ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OK: Final = "ok"
WARNING: Final = "warning"
ERROR: Final = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact about this machine or a stream; with a remedy if it is a problem."""

    area: str
    name: str
    level: str
    """``ok``, ``warning`` (something may not work) or ``error``."""
    what: str
    remedy: str | None = None
