"""The catalogue of the pages: read once for the many look-ups of one page."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from streamfactory.wiring.config.catalogue import Catalogue, active_profile

if TYPE_CHECKING:
    from pathlib import Path

_FRESH: Final = 1.0
"""Seconds for which the files are not read again, at least."""
_SHARE: Final = 10
"""The same, as a multiple of the seconds that reading took: thousands of files."""

_lock = threading.Lock()
_read: tuple[float, tuple[Path, str | None], Catalogue] | None = None


def forget() -> None:
    """Have the files read again: one of them was changed here."""
    global _read  # noqa: PLW0603
    with _lock:
        _read = None


def catalogue() -> Catalogue:
    """The catalogue as it was a moment ago; its errors name no other streams.

    Users with different rights see the answers of one look-up.

    Raises:
        ConfigError: config; its folder cannot be listed.
    """
    global _read  # noqa: PLW0603 - one for the process, as its environment is
    found = Catalogue()
    place = found.folder.absolute(), active_profile()
    with _lock:
        if _read is not None:
            until, where, kept = _read
            if time.monotonic() < until and where == place:
                return kept
        kept, begin = found.snapshot(lists_names=False), time.monotonic()
        kept.names()  # reads it
        end = time.monotonic()
        _read = end + max(_FRESH, _SHARE * (end - begin)), place, kept
        return kept
