"""Headers of messages: those of an encoder, and those of the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamfactory.conversion.arrays import list_parts
from streamfactory.spi import headers_type


def merged_headers(given: pa.Array | None, made: pa.Array) -> pa.Array:
    """Return the headers of an encoder, followed by those of the rows.

    A header of a row is left out if the encoder made one of the same name for this row.

    Args:
        given: Of the rows, of `headers_type`; None if they have none.
        made: Of the encoder, one entry per row; null for a tombstone, which keeps the
            headers of its row.
    """
    if given is None:
        return made
    sizes = [np.asarray(list_parts(one)[0]) for one in (made, given)]
    pairs = pa.concat_arrays([list_parts(one)[1] for one in (made, given)])
    rows = np.concatenate([np.repeat(np.arange(len(made)), size) for size in sizes])
    names = pairs.field("key").dictionary_encode()
    # One number for each row and name.
    codes = rows * (len(names.dictionary) + 1) + np.asarray(names.indices)
    count = int(sizes[0].sum())
    kept = np.ones(len(rows), bool)
    kept[count:] = ~np.isin(codes[count:], codes[:count])
    order = np.argsort(rows, kind="stable")
    order = order[kept[order]]
    lengths = np.bincount(rows[kept], minlength=len(made))
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    values = pairs.take(pa.array(order))
    return pa.ListArray.from_arrays(offsets, values, type=headers_type())
