"""Finds the plug-ins of a definition; reports why one cannot be found."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from streamfactory.spi import Backend, Decoder, NotInstalled, PluginError, UnknownPlugin
from streamfactory.wiring.config.imports.pinotnames import PINOT_DECODERS, pinot_name
from streamfactory.wiring.config.resolution import clip
from streamfactory.wiring.plugins.classpath import load_descriptor
from streamfactory.wiring.plugins.known import KNOWN_BACKENDS, KNOWN_DECODERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi.config import Setting
    from streamfactory.wiring.config.resolution import Resolver
    from streamfactory.wiring.plugins.manager import PluginManager

D = TypeVar("D", Backend, Decoder)
"""The kind of descriptor."""


class Finder:
    """Finds descriptors. If there is none, it reports a problem and returns None.

    Args:
        plugins: The installed plug-ins.
        resolver: Collects the problems.
        allow_class_paths: Whether a plug-in may be named by its module path.
    """

    def __init__(
        self, plugins: PluginManager, resolver: Resolver, *, allow_class_paths: bool
    ) -> None:
        self._plugins = plugins
        self._resolver = resolver
        self._allowed = allow_class_paths

    def backend(self, name: str, origin: str) -> Backend | None:
        """Return the backend of a type; ``origin`` is that of the type's name."""
        try:
            return self._plugins.backend(name)
        except PluginError as error:
            known = KNOWN_BACKENDS.get(name)
            self._absent_plugin("streamType", origin, error, known)
        return None

    def decoder(self, word: Setting) -> tuple[str, Decoder | None]:
        """Return the decoder of a setting, and the decoder's name."""
        name = str(word.value)
        if ":" in name:
            found = self.by_path(word.full_key, name, word.origin, Decoder, None)
            return (name, None) if found is None else (str(found.name), found)
        name = name.lower()
        try:
            return name, self._plugins.decoder(name)
        except PluginError as error:
            known = KNOWN_DECODERS.get(name)
            hint = java_hint(str(word.value), PINOT_DECODERS)
            if hint is not None:
                what = f"names {clip(str(word.value))}"
                self._resolver.error(word.full_key, what, word.origin, hint)
            else:
                self._absent_plugin(word.full_key, word.origin, error, known)
        return name, None

    def by_path(
        self, key: str, path: str, origin: str, kind: type[D], name: str | None
    ) -> D | None:
        """Return the descriptor of a class path.

        Args:
            key: The property with the class path.
            path: ``module:NAME`` of a descriptor.
            origin: Origin of the property.
            kind: The expected kind of descriptor.
            name: The expected name; None for any.
        """
        found = load_descriptor(path, kind, allowed=self._allowed)
        if isinstance(found, str):
            self._resolver.error(key, found, origin)
            return None
        if name is not None and found.name != name:
            what = f"{path} is of type {found.name!r}, not {name!r}"
            self._resolver.error(key, what, origin)
        return found

    def _absent_plugin(
        self, key: str, origin: str, error: PluginError, known: str | None
    ) -> None:
        if isinstance(error, UnknownPlugin) and known is not None:
            self._resolver.warn(key, "is not installed here", origin, known)
        elif isinstance(error, NotInstalled):
            self._resolver.warn(key, error.what, origin, error.remedy)
        else:
            self._resolver.error(key, error.what, origin, error.remedy)


def java_hint(text: str, names: Mapping[str, str]) -> str | None:
    """Return the remedy for the name of a Java class; None for other text."""
    if "." not in text.strip(".") or ":" in text:
        return None
    ours = pinot_name(text, names)
    if ours is not None:
        return f"the equivalent is {ours}"
    return "a Java class cannot run here: docs/spi.md shows how to write a plug-in"
