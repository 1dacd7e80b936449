"""The option ``mask.columns``: which columns are hidden, hashed or cut, and how."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, final

from streamfactory.spi import OptionType

HIDE, HASH, CUT, SHOW = "hide", "hash", "cut", "show"
_ACTIONS: Final = (HIDE, HASH, CUT, SHOW)
_REMEDY: Final = "write for instance email=hash, card.number=hide, phone=cut:4"


@final
@dataclass(frozen=True, slots=True)
class Mask:
    """What is done with one column, or with a part of its values."""

    path: str
    """A column, or one and the members within it, with dots."""
    action: str
    """``hide``, ``hash``, ``cut`` or ``show``."""
    length: int = 0
    """Of ``cut``: the characters that are kept."""


def _masks(text: str) -> tuple[Mask, ...]:
    found: dict[str, Mask] = {}
    for part in text.split(","):
        path, _, action = (one.strip() for one in part.rpartition("="))
        action, colon, length = action.partition(":")
        if not path or action not in _ACTIONS:
            msg = f"has {part.strip()[:80]!r}, which is no mask: {_REMEDY}"
            raise ValueError(msg)
        is_length = re.fullmatch("[1-9][0-9]{0,3}", length) is not None
        if is_length is not (action == CUT) or (colon and not is_length):
            msg = f"has {part.strip()[:80]!r}: only cut has a length, of at least 1"
            raise ValueError(msg)
        if path in found:
            msg = f"names {path[:80]!r} twice"
            raise ValueError(msg)
        found[path] = Mask(path, action, int(length or 0))
    return tuple(found.values())


MASKS: Final = OptionType("masks", _masks, {"type": "string"}, longest=10_000)
