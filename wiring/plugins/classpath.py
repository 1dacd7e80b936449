"""Descriptors by class path: only from configuration that somebody chose to trust."""

from __future__ import annotations

import importlib
from typing import TypeVar

from streamfactory.spi import Backend, Decoder, PluginError
from streamfactory.wiring.plugins.descriptors import checked

D = TypeVar("D", Backend, Decoder)
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
    # Whatever a stranger's module does at import, it must not end the host.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        return f"{path!r} cannot be loaded: {type(error).__name__}: {error}"
    if not isinstance(found, kind):
        return f"{path!r} is a {type(found).__name__}, wanted a {kind.__name__}"
    try:
        checked(kind, path, found)
    except PluginError as error:
        return f"{path!r} cannot be used: {error.what}"
    return found
