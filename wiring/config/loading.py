"""Loads a stream's configuration by name or properties.

The first step of all openers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import StreamDefinition, from_mapping
from streamfactory.wiring.plugins.manager import PluginManager, default_manager

if TYPE_CHECKING:
    from streamfactory.spi import Role
    from streamfactory.wiring.config.settled import Configured

StreamLike = str | Mapping[str, Any] | StreamDefinition
"""The name of a stream in the catalogue, its properties, or its definition."""


def find_definition(named: StreamLike) -> StreamDefinition:
    """Return the definition of a name, of a map of properties, or itself.

    Raises:
        UnknownStream: config; no stream has that name.
        ConfigError: config; a property is not a string.
    """
    if isinstance(named, StreamDefinition):
        return named
    if isinstance(named, str):
        # Imported here: Spark's workers load a stream by its configuration.
        from streamfactory.wiring.config.catalogue import Catalogue

        return Catalogue().get(named)
    return from_mapping(named)


def load(
    named: StreamLike,
    use: str,
    *,
    options: Mapping[str, object] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
    role: Role | None = None,
    quiet: bool = False,
) -> Configured:
    """Find a stream and validate its configuration.

    Args:
        named: The stream.
        use: ``read``, ``write`` or ``spark``.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Finds types; by default those of the process.
        role: Whether Spark reads or writes the stream, if known.
        quiet: Whether warnings of the configuration are left out, because the caller
            shows them, or opens the stream again and again.

    Raises:
        ConfigError: config; with all problems.
        UnknownStream: config; no stream has that name.
        PluginError: plugin; the type is not installed, or broken.
    """
    found = configure(
        find_definition(named).with_overrides(options or {}),
        plugins or default_manager(),
        use=use,
        allow_class_paths=allow_class_paths,
        role=role,
    )
    if not quiet:
        return found
    return replace(found, config=replace(found.config, warnings=()))
