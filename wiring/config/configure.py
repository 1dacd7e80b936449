"""From strings to a `StreamConfig`: every problem at once, each in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamfactory.spi import Backend, ConfigError, Decoder, Role, StreamConfig
from streamfactory.wiring.config.validation import (
    ConfigValidator,
    Inspection,
    stream_options,
)
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH

if TYPE_CHECKING:
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.plugins.manager import PluginManager

__all__ = ["Configured", "Inspection", "configure", "inspect", "stream_options"]


@dataclass(frozen=True, slots=True)
class Configured:
    """A configuration with the plug-ins that it names, loaded."""

    config: StreamConfig
    backend: Backend
    decoder: Decoder | None
    key_decoder: Decoder | None = None
    """None where keys stay bytes."""


def configure(
    definition: StreamDefinition,
    plugins: PluginManager,
    *,
    use: str,
    allow_class_paths: bool = False,
    role: Role | None = None,
) -> Configured:
    """Validate a definition for use.

    Args:
        definition: Names and strings.
        plugins: Where types and decoders are found.
        use: ``read``, ``write`` or ``spark``: options without effect there are told.
        allow_class_paths: Whether ``module:NAME`` may name a descriptor.
        role: Which end the stream is on Spark, where it is known; reading and writing
            say it by themselves.

    Raises:
        ConfigError: config; with every problem.
        PluginError: plugin; the type or decoder is not installed, and nothing else is
            wrong.
    """
    result = inspect(
        definition, plugins, use=use, allow_class_paths=allow_class_paths, role=role
    )
    return configured_of(
        result, plugins, reads=use != "write" and role is not Role.WRITE
    )


def configured_of(
    result: Inspection, plugins: PluginManager, *, reads: bool = True
) -> Configured:
    """What was inspected, with its plug-ins loaded.

    Args:
        result: Of `inspect`.
        plugins: Where types and decoders are found.
        reads: Whether the stream is read, and so through its spool where it has one.

    Raises:
        ConfigError: config; with every problem.
        PluginError: plugin; the type or decoder is not installed.
    """
    config = result.config
    if config is None:
        count = len(result.errors)
        msg = f"{count} problem{'s' * (count > 1)} in the configuration"
        raise ConfigError(
            msg, problems=result.errors, stream=result.definition.name or None
        )
    # To `inspect` an absent plug-in is only a warning; here these two raise.
    backend = result.backend or plugins.backend(config.type)
    decoder = result.decoder
    if config.decoder is not None and decoder is None:
        decoder = plugins.decoder(config.decoder)
    key_decoder = result.key_decoder or key_decoder_of(config, plugins)
    if reads:
        backend = reading_backend(backend, config)
    return Configured(config, backend, decoder, key_decoder)


def reading_backend(backend: Backend, config: StreamConfig) -> Backend:
    """The backend that reads a stream: that of its spool, where it has one."""
    if SPOOL_PATH not in config:
        return backend
    # Imported here: only who reads through a spool pays for loading Arrow.
    from streamfactory.wiring.spool.reading import read_through_spool

    return read_through_spool(backend, config)


def key_decoder_of(config: StreamConfig, plugins: PluginManager) -> Decoder | None:
    """The decoder of keys that a configuration names; None where keys stay bytes."""
    name = config.get("key.decoder.class.name")
    return None if name is None else plugins.decoder(name.lower())


def inspect(
    definition: StreamDefinition,
    plugins: PluginManager,
    *,
    use: str | None = None,
    allow_class_paths: bool = False,
    role: Role | None = None,
) -> Inspection:
    """Validate a definition offline; never raises for what a user wrote.

    A type or decoder that is known but not installed is a warning, and its own options
    stay unchecked. Where the use is not known, so is a reference that cannot be
    resolved here; its setting has the value None.
    """
    validator = ConfigValidator(
        definition, plugins, use=use, allow_class_paths=allow_class_paths, role=role
    )
    return validator.validate()
