"""Texts of values and keys, as files and programs write them."""

from __future__ import annotations

import json
from typing import Final

_LONGEST_INTEGER: Final = 256
"""Maximum bits of a number. Python refuses to format thousands of digits."""


def canonical_text(value: object) -> str | None:
    """Return the text of a string, an integer or a boolean; None for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > _LONGEST_INTEGER:
        return None
    return str(value) if isinstance(value, str | int) else None


def not_text(value: object) -> str:
    """Return why a value has no canonical text, as the end of a sentence."""
    if value is None:
        return "is null: omit the key"
    if isinstance(value, dict):
        return "is an object, expected a string"
    if isinstance(value, list):
        return "is an array: write a string, a,b,c"
    if isinstance(value, int):
        return "is a number of more than 256 bits: put it in quotes"
    if isinstance(value, float):
        return "is a number with a fraction or exponent: put it in quotes"
    return f"is a {type(value).__name__}: put it in quotes"


def pointer_of(*keys: str) -> str:
    """Return the JSON pointer (RFC 6901) of a path of keys."""
    return "".join(f"/{k.replace('~', '~0').replace('/', '~1')}" for k in keys)


def toml_string(text: str) -> str:
    """Return a text as a string of TOML."""
    # TOML, unlike JSON, has no surrogates and no bare delete.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_key(name: str) -> str:
    """Return a name as a key of TOML, in quotes where it needs them."""
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else toml_string(name)
