"""How deep messages are nested, without decoding them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import lengths_of

if TYPE_CHECKING:
    import pyarrow as pa

DEEPEST: Final = 256
"""Objects and lists within each other that a message may have."""

_STRINGS: Final = r'"(?:[^"\\]|\\.)*"'
_STEPS: Final = np.zeros(256, np.int64)
_STEPS[list(b"[{")] = 1
_STEPS[list(b"]}")] = -1


def too_deep(texts: pa.StringArray) -> np.ndarray:
    """The indices of messages that are nested deeper than `DEEPEST`.

    A library that decodes them one call a level would end the process, or stop at a
    depth that its caller's own depth decides.
    """
    at = np.flatnonzero(lengths_of(texts) > DEEPEST)
    if not len(at):
        return at
    some = texts.take(at)
    opening = pc.add(pc.count_substring(some, "{"), pc.count_substring(some, "["))
    at = at[np.asarray(opening) > DEEPEST]
    if not len(at):
        return at
    bare = pc.replace_substring_regex(texts.take(at), _STRINGS, "")
    depths = [_depth(text) for text in bare.to_pylist()]
    return at[np.array(depths) > DEEPEST]


def _depth(text: str) -> int:
    steps = _STEPS[np.frombuffer(text.encode(), np.uint8)]
    return int(np.cumsum(steps).max(initial=0))
