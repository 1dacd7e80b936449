"""Nesting depth of JSON messages, measured without decoding them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import lengths_of
from streamfactory.spi.nesting import DEEPEST, json_depth

if TYPE_CHECKING:
    import pyarrow as pa


def too_deep(texts: pa.StringArray) -> np.ndarray:
    """The indices of messages that are nested deeper than `DEEPEST`.

    They are detected before a library decodes them and are never decoded.
    """
    at = np.flatnonzero(lengths_of(texts) > DEEPEST)
    if not len(at):
        return at
    some = texts.take(at)
    opening = pc.add(pc.count_substring(some, "{"), pc.count_substring(some, "["))
    at = at[np.asarray(opening) > DEEPEST]
    if not len(at):
        return at
    depths = [json_depth(text.encode()) for text in texts.take(at).to_pylist()]
    return at[np.array(depths) > DEEPEST]
