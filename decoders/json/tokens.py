"""Conversion of JSON values, cut out of their messages as text, to columns.

Arrow converts numbers faster than any parser of JSON, but accepts more than JSON does
(``01``, ``1.``, ``+1``, ``inf``). So the texts are checked first: by a few comparisons
of whole columns, and by a regular expression where these are not enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import data_of, lengths_of, offsets_of

if TYPE_CHECKING:
    Converted = tuple[pa.Array, np.ndarray | None]
    """A column, and the mask of its valid rows; None if all are."""

_INTEGER: Final = "^-?(0|[1-9][0-9]{0,17})$"
_FRACTION: Final = r"\.[0-9]+"
_EXPONENT: Final = "[eE][+-]?[0-9]+"
# Not -0: msgspec returns 0.0 for it, Arrow -0.0.
_DOUBLE: Final = (
    f"^(-?(0|[1-9][0-9]*)({_FRACTION}({_EXPONENT})?|{_EXPONENT})|0|-?[1-9][0-9]*)$"
)
_ZERO, _NINE, _DOT, _MINUS = b"09.-"


def texts(tokens: pa.StringArray) -> Converted:
    """Strings without escapes."""
    return tokens, None


def booleans(tokens: pa.StringArray) -> Converted:
    """``true``, ``false`` and ``null``."""
    true = pc.equal(tokens, "true")
    valid = pc.or_(true, pc.equal(tokens, "false"))
    if pc.all(valid).as_py() is not False:
        return true, None
    fine = pc.or_(valid, pc.equal(tokens, "null"))
    return pc.if_else(valid, true, pa.scalar(None, pa.bool_())), np.asarray(fine)


def integers(tokens: pa.StringArray) -> Converted:
    """Integers of 64 bits, and ``null``."""
    return _numbers(tokens, pa.int64(), _INTEGER)


def doubles(tokens: pa.StringArray) -> Converted:
    """Finite numbers, and ``null``."""
    found, fine = _numbers(tokens, pa.float64(), _DOUBLE)
    finite = pc.is_finite(found)
    if pc.all(finite).as_py() is False:
        some = np.asarray(finite.fill_null(True))
        fine = some if fine is None else fine & some
    return found, fine


def _numbers(tokens: pa.StringArray, kind: pa.DataType, pattern: str) -> Converted:
    if _are_plain(tokens):
        try:
            return tokens.cast(kind), None
        except pa.ArrowInvalid:
            pass
    valid = pc.match_substring_regex(tokens, pattern)
    fine = np.asarray(pc.or_(valid, pc.equal(tokens, "null")))
    found = pc.if_else(valid, tokens, pa.scalar(None, pa.string()))
    return found.cast(kind), None if fine.all() else fine


def _are_plain(tokens: pa.StringArray) -> bool:
    """Whether every text that Arrow converts is a number of JSON without exponent."""
    data, offsets = data_of(tokens), offsets_of(tokens)
    if not lengths_of(tokens).all() or data.min() < _MINUS or data.max() > _NINE:
        return False
    starts, last = offsets[:-1] - offsets[0], offsets[1:] - offsets[0] - 1
    if (data[last] < _ZERO).any():
        return False
    leading = data[starts]
    if (leading > _ZERO).all():
        return True
    negative = leading == _MINUS
    head = np.minimum(starts + negative, last)
    leading = data[head]
    single = (head == last) & ~negative
    before_dot = data[np.minimum(head + 1, last)] == _DOT
    return bool(
        ((leading > _ZERO) | ((leading == _ZERO) & (single | before_dot))).all()
    )
