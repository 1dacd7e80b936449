"""Patterns of topic names, matched in linear time.

Python's engine backtracks: ``(a+)+$`` and a name of 40 characters take it years. Arrow
has RE2, which Kafka's brokers use too (KIP-848); it supports neither look-ahead nor
back references.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.spi.computing import pc

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_pattern(pattern: str) -> None:
    """Refuse an invalid pattern.

    Raises:
        ValueError: The pattern is invalid. The message continues a sentence that begins
            with the pattern.
    """
    try:
        # Checked alone: the parentheses of `matching_topics` could balance it.
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
        matching_topics(pattern, [""])
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        if "(?" in reason or reason.startswith("invalid escape sequence"):
            reason += " (RE2 has neither look-ahead nor back references)"
        msg = f"is not a regular expression of RE2: {reason}"
        raise ValueError(msg) from None


def matching_topics(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that a pattern matches completely, in order.

    Args:
        pattern: One that `check_pattern` accepts.
        names: Names of topics.
    """
    listed = pa.array(names, pa.string())
    found = pc.match_substring_regex(listed, pattern=rf"\A(?:{pattern})\z")
    kept: list[str] = listed.filter(found).to_pylist()
    return kept
