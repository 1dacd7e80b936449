"""Casts between decimal types, for the conversion of rows and the decoders."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import pyarrow as pa

from streamfactory.spi.computing import pc

_WIDE: Final = 128


def rescale(column: pa.Array, want: pa.DataType) -> pa.Array:
    """Return decimals as another decimal type, for which `can_rescale` is true.

    Arrow 26 computes the digits of a value that is too large for the type modulo
    2**128, and then accepts what is left. It cuts them to the width of a narrower type
    before it removes digits.

    Raises:
        pa.ArrowInvalid: A value has digits that the type does not have.
    """
    have = column.type
    room = want.precision - want.scale
    if have.precision - have.scale > room:
        limit = pa.scalar(Decimal(1).scaleb(max(room, -have.scale)), have)
        least = pa.scalar(-limit.as_py(), have)
        fits = pc.and_(pc.less(column, limit), pc.greater(column, least))
        if pc.all(fits).as_py() is False:
            msg = "some values have more digits"
            raise pa.ArrowInvalid(msg)
    if want.bit_width < have.bit_width:
        make = pa.decimal256 if have.bit_width > _WIDE else pa.decimal128
        column = column.cast(make(want.precision, want.scale))
    return column.cast(want)
