"""The nesting depth of JSON, computed without parsing it."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

DEEPEST: Final = 256
"""Maximum nesting of objects and lists in a message or record.
A recursive parser would overflow the stack and end the process, or stop at a depth that
depends on its caller.
"""

_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STEPS: Final = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}
_OTHERS: Final = bytes(set(range(256)) - _STEPS.keys())


def json_depth(text: bytes) -> int:
    """Return the maximum number of objects and lists that are open at once.

    For text that is not JSON, it is correct up to the first syntax error.
    """
    brackets = _STRINGS.sub(b"", text).translate(None, _OTHERS)
    return max(accumulate(_STEPS[one] for one in brackets), default=0)
