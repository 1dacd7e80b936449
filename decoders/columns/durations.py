"""Durations as text: ISO 8601 with days and smaller units, such as ``-P1DT2H3.5S``."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_TEXT: Final = (
    "^(?P<sign>-?)P(?:(?P<days>[0-9]+)D)?(?P<time>T(?:(?P<hours>[0-9]+)H)?"
    r"(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+)(?:\.(?P<fraction>[0-9]{1,9}))?S)?)?$"
)
_SECONDS: Final = {"days": 86_400, "hours": 3600, "minutes": 60, "seconds": 1}
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_NANO: Final = 9


def from_iso(texts: pa.StringArray, kind: pa.DurationType) -> pa.DurationArray:
    """Parse a column; null of null.

    Raises:
        pyarrow.ArrowInvalid: A text is no duration, or one that the unit lacks.
    """
    parts = pc.extract_regex(texts, _TEXT)
    if parts.null_count != texts.null_count or _any(pc.ends_with(texts, "T")):
        _refuse()
    if _any(pc.ends_with(texts, "P")):
        _refuse()
    digits = _DIGITS[kind.unit]
    fraction = pc.utf8_rpad(_part(parts, "fraction"), _NANO, "0")
    if _any(pc.match_substring_regex(fraction, f"^.{{{digits}}}.*[1-9]")):
        _refuse()
    # Signed from the start: the least number has no positive counterpart.
    sign = pc.if_else(pc.equal(_part(parts, "sign"), "-"), -1, 1)
    total = pc.utf8_slice_codeunits(fraction, 0, max(1, digits)).cast(pa.int64())
    total = pc.multiply(total, sign) if digits else pc.multiply(total, 0)
    for name, seconds in _SECONDS.items():
        numbers = _part(parts, name)
        whole = pc.if_else(pc.equal(numbers, ""), "0", numbers).cast(pa.int64())
        each = pc.multiply_checked(pc.multiply(whole, sign), seconds * 10**digits)
        total = pc.add_checked(total, each)
    return pc.if_else(texts.is_valid(), total, None).cast(kind)


def _part(parts: pa.StructArray, name: str) -> pa.StringArray:
    return parts.field(parts.type.get_field_index(name))


def _any(flags: pa.BooleanArray) -> bool:
    return pc.any(flags).as_py() is True


def _refuse() -> None:
    msg = "a text is no duration of the unit"
    raise pa.ArrowInvalid(msg)
