"""The known word that a misspelt one is nearest to, for suggestions in messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

LIKELY: Final = 0.75
"""Lowest ratio for long keys: most of them have a common prefix."""


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Return the known word most similar to another one.

    Args:
        word: What was written.
        known: What could have been meant.
        likeness: Lowest ratio of common characters, of 1.

    Returns:
        None if no known word is that similar.
    """
    import difflib  # starting commands does not wait for what only mistakes need

    near = difflib.get_close_matches(word, list(known), n=1, cutoff=likeness)
    return near[0] if near else None
