"""The catalogue of the pages: read once for the many look-ups of one page."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from pathlib import Path

_FRESH: Final = 1.0
"""Seconds for which the files are not read again."""

_lock = threading.Lock()
_read: tuple[float, Path, Catalogue] | None = None


def catalogue() -> Catalogue:
    """The catalogue as it was within the last second.

    Raises:
        ConfigError: config; its folder cannot be listed.
    """
    global _read  # noqa: PLW0603 - one for the process, as its environment is
    found = Catalogue()
    place = found.folder.absolute()
    with _lock:
        now = time.monotonic()
        if _read is not None:
            at, where, kept = _read
            if now - at < _FRESH and where == place:
                return kept
        kept = found.snapshot()
        _read = now, place, kept
        return kept
