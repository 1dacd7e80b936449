"""Finds the plug-in that a configuration names; returns why one cannot be used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, TypeVar

from streamfactory.spi import (
    Backend,
    Decoder,
    NotInstalled,
    PluginError,
    Problem,
    UnknownPlugin,
)
from streamfactory.wiring.plugins.descriptors import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

D = TypeVar("D", Backend, Decoder)
"""The kind of descriptor."""


def find_by_name(
    load: Callable[[str], D], known: Mapping[str, str], name: str, key: str, origin: str
) -> D | Problem:
    """Return an installed plug-in; a known one that is not installed is a warning.

    Args:
        load: Loads a plug-in by name: `PluginManager.backend` or `decoder`.
        known: Known plug-ins, each with how to install it.
        name: Its name, in lower case.
        key: The property that names it.
        origin: Origin of the property.
    """
    try:
        return load(name)
    except PluginError as error:
        if isinstance(error, UnknownPlugin) and name in known:
            what, remedy = "is not installed here", known[name]
            return Problem(key, what, origin, remedy, "warning")
        level = "warning" if isinstance(error, NotInstalled) else "error"
        return Problem(key, error.what, origin, error.remedy, level)


def find_by_path(
    path: str, kind: type[D], key: str, origin: str, *, allowed: bool
) -> D | Problem:
    """Return the descriptor ``module:NAME``, or why it cannot be used.

    Args:
        path: A module and the name of a descriptor in it.
        kind: `Backend` or `Decoder`.
        key: The property that names it.
        origin: Origin of the property.
        allowed: Importing runs code: nothing is imported without it.
    """
    if not allowed:
        what = "is a class path, which requires `allow_class_paths=True`"
        return Problem(key, f"{path!r} {what}", origin)
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    # A foreign module must not end the process at import.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        what = f"cannot be loaded: {type(error).__name__}: {error}"
        return Problem(key, f"{path!r} {what}", origin)
    if not isinstance(found, kind):
        what = f"is a {type(found).__name__}, expected a {kind.__name__}"
        return Problem(key, f"{path!r} {what}", origin)
    try:
        return checked(kind, path, found)
    except PluginError as error:
        return Problem(key, f"{path!r} cannot be used: {error.what}", origin)
