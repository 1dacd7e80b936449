"""Patterns of topic names, matched in time that grows with the length of a name only.

Python's own engine tries every way to match: ``(a+)+$`` and one name of 40 characters
take it years. Arrow has RE2, which Kafka's brokers use too (KIP-848); it knows neither
look-ahead nor back references.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_pattern(pattern: str) -> None:
    """Refuse what is no pattern.

    Raises:
        ValueError: What is wrong, in words that follow the pattern in a sentence.
    """
    try:
        # Alone: within `matching_topics` an unbalanced one could become balanced.
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
        matching_topics(pattern, [""])
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        if "(?" in reason or reason.startswith("invalid escape sequence"):
            reason += " (RE2 has neither look-ahead nor back references)"
        msg = f"is not a regular expression of RE2: {reason}"
        raise ValueError(msg) from None


def matching_topics(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern matches as a whole, in their order.

    Args:
        pattern: One that `check_pattern` accepts.
        names: Of topics.
    """
    listed = pa.array(names, pa.string())
    found = pc.match_substring_regex(listed, pattern=rf"\A(?:{pattern})\z")
    kept: list[str] = listed.filter(found).to_pylist()
    return kept
