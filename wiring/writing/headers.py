"""Headers of messages: those of an encoder, and those of the rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import headers_type


def merged_headers(given: pa.Array | None, made: pa.Array) -> pa.Array:
    """Return the headers of an encoder, followed by those of the rows.

    A header of the rows is left out if its name is that of one of the encoder.

    Args:
        given: Of the rows, of `headers_type`; None if they have none.
        made: Of the encoder, one entry per row; null for a tombstone, which keeps the
            headers of its row.
    """
    if given is None:
        return made
    names = made.flatten().field("key").unique()
    own = given.flatten()
    of_row = np.asarray(pc.list_parent_indices(given))
    replaced = np.asarray(pc.is_in(own.field("key"), value_set=names))
    kept = ~(replaced & np.asarray(made.is_valid())[of_row])
    first = made.flatten()
    rows = np.concatenate([np.asarray(pc.list_parent_indices(made)), of_row[kept]])
    order = np.argsort(rows, kind="stable")
    pairs = pa.concat_arrays([first, own.filter(pa.array(kept))])
    sizes = np.bincount(rows, minlength=len(made))
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())
    values = pairs.take(pa.array(order))
    return pa.ListArray.from_arrays(offsets, values, type=headers_type())
