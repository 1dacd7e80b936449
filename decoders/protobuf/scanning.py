"""Which of many messages are likely to be bad, found in steps of one field each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from streamfactory.decoders.arrow_scanning import Cursor

if TYPE_CHECKING:
    import pyarrow as pa

_STEPS: Final = 64
"""Fields of a message that are looked at."""
_NUMBER, _EIGHT, _LENGTH, _FOUR = _KINDS = (0, 1, 2, 5)


def suspects(values: pa.Array) -> np.ndarray:
    """The messages that look bad, as far as can be told without their fields' types."""
    cursor = Cursor(values)
    rows = cursor.all()
    for _ in range(_STEPS):
        rows = cursor.more(rows)
        if not len(rows):
            break
        tags, rows = cursor.number(rows)
        kinds = (tags & np.uint64(7)).astype(np.int64)
        # A group is hardly ever one: text that is no message begins like it.
        right = np.isin(kinds, _KINDS) & (tags >= np.uint64(8))
        rows, kinds = cursor.refuse(rows, right), kinds[right]
        passed = []
        for kind in _KINDS:
            here = rows[kinds == kind]
            if not len(here):
                continue
            if kind == _NUMBER:
                here = cursor.pass_number(here)
            elif kind == _LENGTH:
                lengths, here = cursor.number(here)
                # What is too large for a signed number is negative, and refused.
                here = cursor.skip(here, lengths.astype(np.int64))
            else:
                here = cursor.skip(here, 8 if kind == _EIGHT else 4)
            passed.append(here)
        rows = np.concatenate(passed) if passed else rows[:0]
    return np.flatnonzero(cursor.bad)
