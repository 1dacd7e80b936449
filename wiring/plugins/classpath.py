"""Loads descriptors by class path, only from trusted configuration."""

from __future__ import annotations

import importlib
from typing import TypeVar

from streamfactory.spi import Backend, Decoder, PluginError
from streamfactory.wiring.plugins.descriptors import checked

D = TypeVar("D", Backend, Decoder)
"""The kind of descriptor."""


def load_descriptor(path: str, kind: type[D], *, allowed: bool) -> D | str:
    """Load ``module:NAME``; return the cause of a failure instead of raising.

    Args:
        path: A module and the name of a descriptor in it.
        kind: `Backend` or `Decoder`.
        allowed: Importing runs code: nothing is imported without it.
    """
    if not allowed:
        return f"{path!r} is a class path, which requires --allow-class-paths"
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    # A foreign module must not end the process at import.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return f"{path!r} cannot be loaded: {type(error).__name__}: {error}"
    if not isinstance(found, kind):
        return f"{path!r} is a {type(found).__name__}, expected a {kind.__name__}"
    try:
        checked(kind, path, found)
    except PluginError as error:
        return f"{path!r} cannot be used: {error.what}"
    return found
