"""How deep JSON is nested, without parsing it."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

DEEPEST: Final = 256
"""Objects and lists within each other that a message, or a record, may have.

A library that parses them one call a level would end the process, or stop at a depth
that its caller's own depth decides.
"""

_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STEPS: Final = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}
_OTHERS: Final = bytes(set(range(256)) - _STEPS.keys())


def json_depth(text: bytes) -> int:
    """How many objects and lists of a text are open at once, at most.

    Of text that is no JSON, it is right up to the first place that no parser accepts.
    """
    brackets = _STRINGS.sub(b"", text).translate(None, _OTHERS)
    return max(accumulate(_STEPS[one] for one in brackets), default=0)
