"""Descriptors by class path: only from configuration that somebody chose to trust."""

from __future__ import annotations

import importlib
from typing import TypeVar

D = TypeVar("D")
"""The kind of descriptor wanted."""


def load_descriptor(path: str, kind: type[D], *, allowed: bool) -> D | str:
    """Load ``module:NAME``; answer what is wrong, in words, instead of raising.

    Args:
        path: Names a module and in it a descriptor.
        kind: `Backend` or `Decoder`.
        allowed: Importing runs code: nothing is imported without it.
    """
    if not allowed:
        return f"{path!r} is a class path, and those need --allow-class-paths"
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        return f"{path!r} cannot be loaded: {error}"
    if not isinstance(found, kind):
        return f"{path!r} is a {type(found).__name__}, wanted a {kind.__name__}"
    return found
