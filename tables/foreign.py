"""JSON that other programs wrote."""

from __future__ import annotations

import json
import re
from typing import Any, Final

_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape that may be half of a character."""


def parse_json(content: bytes) -> Any:
    """The value that JSON states; its text can be encoded: names, paths, keys.

    Raises:
        ValueError: It is no JSON, or has half of a character, which is in no UTF-8.
        RecursionError: It is too deep.
    """
    found = json.loads(content)
    if _HALF.search(content):
        json.dumps(found, ensure_ascii=False).encode()
    return found
