"""Texts of errors that other libraries raise, for the messages of our own errors."""

from __future__ import annotations


def first_line(error: BaseException, most: int = 500) -> str:
    """Return the first line of an error's text; the name of its type if it has none.

    Args:
        error: Of another library, whose text may be long, or hostile.
        most: Maximum number of characters.
    """
    lines = str(error).strip().splitlines()
    return lines[0][:most] if lines else type(error).__name__
