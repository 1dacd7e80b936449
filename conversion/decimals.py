"""Text as decimals, for the decoders and for values of tables' logs."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from streamfactory.spi.computing import pc
from streamfactory.spi.soundness.schemas import most_digits

_NEAR: Final = 1e-9
_PARTS: Final = (
    r"^[+-]?[0-9]*[.]?(?P<fraction>[0-9]*)(?:[eE][+]?(?P<exponent>-?[0-9]{1,9}))?$"
)


def decimals_of_texts(texts: pa.StringArray, want: pa.DataType) -> pa.Array:
    """Return the numbers that texts are as decimals.

    Arrow 26 removes the digits behind the point by a table that ends at the most digits
    of the type: it reads other memory, or ends the process, for ``1e-1000000000``. It
    computes large numbers modulo 2**128, or 2**256. Both are refused here.

    Args:
        texts: Numbers, and nulls.
        want: A decimal type.

    Raises:
        pa.ArrowInvalid: A text is no number, or one that the type does not have.
    """
    longest = pc.max(pc.binary_length(texts)).as_py() or 0
    plain = longest + abs(want.scale) <= most_digits(want) and not _exponents(texts)
    if plain:
        return texts.cast(want)
    _check_places(texts, want)
    found = texts.cast(want)
    _check_magnitude(texts, found)
    return found


def _exponents(texts: pa.StringArray) -> bool:
    """Whether the buffer of texts has an ``e``: may be true where no text has."""
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    return bool(((data | 0x20) == ord("e")).any())


def _check_places(texts: pa.Array, want: pa.DataType) -> None:
    """Refuse numbers with more places behind the point than Arrow can remove."""
    parts = pc.extract_regex(texts, _PARTS)
    if parts.null_count > texts.null_count:
        _refuse()
    exponent = pc.struct_field(parts, "exponent")
    exponent = pc.if_else(pc.equal(exponent, ""), "0", exponent).cast(pa.int64())
    fraction = pc.binary_length(pc.struct_field(parts, "fraction"))
    places = pc.subtract(fraction.cast(pa.int64()), exponent)
    if pc.any(pc.greater(places, most_digits(want) + want.scale)).as_py():
        _refuse()


def _check_magnitude(texts: pa.Array, decimals: pa.Array) -> None:
    """Refuse numbers that Arrow computes modulo 2**128, or 2**256, or makes 0.

    What remains of a number is then a small part of it, or of the other sign.
    """
    kind, about = decimals.type, texts.cast(pa.float64())
    size, limit = pc.abs(about), 10.0 ** (kind.precision - kind.scale)
    off = pc.abs(pc.subtract(decimals.cast(pa.float64()), about))
    near = pc.less_equal(off, pc.multiply(size, _NEAR))
    if pc.all(pc.and_(pc.less_equal(size, limit), near)).as_py() is False:
        _refuse()
    tiny = texts.filter(pc.equal(about, 0))  # a double may be 0 where a text is not
    if pc.any(pc.match_substring_regex(tiny, "^[^eE]*[1-9]")).as_py():
        _refuse()


def _refuse() -> None:
    msg = "a number has more digits than its type allows"
    raise pa.ArrowInvalid(msg)
