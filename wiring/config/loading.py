"""From a name, or properties, to a configured stream: how every opener begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.configure import (
    Configured,
    configure,
    key_decoder_of,
    reading_backend,
)
from streamfactory.wiring.config.definition import StreamDefinition, from_mapping
from streamfactory.wiring.plugins.manager import PluginManager, default_manager

if TYPE_CHECKING:
    from streamfactory.spi import Role, StreamConfig

Named = str | Mapping[str, Any] | StreamDefinition
"""The name of a stream in the catalogue, its properties, or its definition."""


def find_definition(named: Named) -> StreamDefinition:
    """The definition behind a name, a map of properties, or itself.

    Raises:
        UnknownStream: config; no stream of that name.
        ConfigError: config; a property is not text.
    """
    if isinstance(named, StreamDefinition):
        return named
    if isinstance(named, str):
        return Catalogue().get(named)
    return from_mapping(named)


def load(
    named: Named,
    use: str,
    *,
    options: Mapping[str, str] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
    role: Role | None = None,
) -> Configured:
    """Find a stream, and validate its configuration for use.

    Args:
        named: The stream.
        use: ``read``, ``write`` or ``spark``.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Where types are found; the process's own by default.
        role: Which end the stream is on Spark, where it is known.

    Raises:
        ConfigError: config; every problem at once.
        UnknownStream: config; no stream of that name.
        PluginError: plugin; the type is not installed, or broken.
    """
    return configure(
        find_definition(named).with_overrides(options or {}),
        plugins or default_manager(),
        use=use,
        allow_class_paths=allow_class_paths,
        role=role,
    )


def load_again(config: StreamConfig, *, reads: bool = True) -> Configured:
    """What a configuration names, in the process that it was sent to.

    Args:
        config: Validated in another process.
        reads: Whether the stream is read, and so through its spool where it has one.

    Raises:
        PluginError: plugin; the type or a decoder is not installed here.
    """
    plugins = default_manager()
    backend = plugins.backend(config.type)
    if reads:
        backend = reading_backend(backend, config)
    decoder = None if config.decoder is None else plugins.decoder(config.decoder)
    return Configured(config, backend, decoder, key_decoder_of(config, plugins))
