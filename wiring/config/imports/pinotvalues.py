"""Values in Pinot's table configs that Pinot ignores."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streamfactory.spi import SIZE
from streamfactory.wiring.options.shared import SHARED_OPTIONS
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Collection

    from streamfactory.spi import Option

FLUSH: Final = "realtime.segment.flush.threshold."
_ROWS: Final = FRAMEWORK_OPTIONS[f"{FLUSH}rows"]
_SEGMENT_SIZE: Final = FRAMEWORK_OPTIONS[f"{FLUSH}segment.size"]
_THRESHOLDS: Final = {
    spelling: option
    for option in FRAMEWORK_OPTIONS.values()
    if option.key.startswith(FLUSH)
    for spelling in option.spellings
}
_TIMEOUTS: Final = {
    suffix: SHARED_OPTIONS[suffix]
    for suffix in (
        "connection.timeout.millis",
        "fetch.timeout.millis",
        "idle.timeout.millis",
    )
}
_DATA_SIZE: Final = re.compile(r"\d+(?:\.\d+)?[KMGTP]?B?", re.IGNORECASE)
"""Sizes that Pinot accepts (its DataSizeUtils)."""


def ignored_value(
    key: str, suffix: str | None, text: str, given: Collection[str]
) -> tuple[str, str] | None:
    """Return why Pinot ignores a value, and the remedy; None if Pinot uses it.

    Of several spellings of a threshold Pinot uses the newest only. For thresholds and
    timeouts that it cannot parse it uses the default (newer versions refuse the
    thresholds).

    Args:
        key: The key as written.
        suffix: The key after ``stream.<type>.``; None without that prefix.
        text: The value.
        given: All keys of the stream config.
    """
    option = _TIMEOUTS.get(suffix or "") or _THRESHOLDS.get(key)
    if option is None:
        return None
    spellings = option.spellings
    newer = spellings[: spellings.index(key)] if key in spellings else []
    used = next((other for other in newer if other in given), None)
    if used is not None:
        return f"Pinot uses {used} instead", ""
    if "${" in text:
        return None  # only the reading process can resolve a reference
    try:
        option.parse(text)
    except ValueError as error:
        if option.type is SIZE and _DATA_SIZE.fullmatch(text):
            return None  # Pinot uses it; the validator reports why it is invalid
        return f"{text!r} {error}; Pinot ignores such a value", _hint(option, text)
    return None


def _hint(option: Option, text: str) -> str:
    """Return the remedy if a number of rows is a size in bytes."""
    if option is _ROWS and _DATA_SIZE.fullmatch(text):
        return f"for a size in bytes write {_SEGMENT_SIZE.key}"
    return ""
