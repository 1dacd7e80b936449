"""Turns a definition into a `StreamConfig`; reports all problems at once."""

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
    """A validated configuration with its plug-ins, loaded."""

    config: StreamConfig
    backend: Backend
    decoder: Decoder | None
    key_decoder: Decoder | None = None
    """None if keys are not decoded."""


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
        definition: The definition.
        plugins: Finds types and decoders.
        use: ``read``, ``write`` or ``spark``: options without effect there are
            reported.
        allow_class_paths: Whether ``module:NAME`` may name a descriptor.
        role: Whether Spark reads or writes the stream, if known; implied by the uses
            ``read`` and ``write``.

    Raises:
        ConfigError: config; with all problems.
        PluginError: plugin; the type or decoder is not installed, and there is no other
            problem.
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
    """Return an inspected configuration with its plug-ins loaded.

    Args:
        result: The result of `inspect`.
        plugins: Finds types and decoders.
        reads: Whether the stream is read; then through its spool, if it has one.

    Raises:
        ConfigError: config; with all problems.
        PluginError: plugin; the type or decoder is not installed.
    """
    config = result.config
    if config is None:
        count = len(result.errors)
        msg = f"{count} problem{'s' * (count > 1)} in the configuration"
        raise ConfigError(
            msg, problems=result.errors, stream=result.definition.name or None
        )
    # For `inspect` a missing plug-in is only a warning; here these two raise.
    backend = result.backend or plugins.backend(config.type)
    decoder = result.decoder
    if config.decoder is not None and decoder is None:
        decoder = plugins.decoder(config.decoder)
    key_decoder = result.key_decoder or key_decoder_of(config, plugins)
    if reads:
        backend = reading_backend(backend, config)
    return Configured(config, backend, decoder, key_decoder)


def reading_backend(backend: Backend, config: StreamConfig) -> Backend:
    """Return the backend that reads a stream: that of its spool, if it has one."""
    if SPOOL_PATH not in config:
        return backend
    # Imported here: Arrow is loaded only to read through a spool.
    from streamfactory.wiring.spool.reading import read_through_spool

    return read_through_spool(backend, config)


def key_decoder_of(config: StreamConfig, plugins: PluginManager) -> Decoder | None:
    """Return the key decoder of a configuration; None if keys are not decoded."""
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
    """Validate a definition offline; problems are returned, not raised.

    A known type or decoder that is not installed is a warning, and its options are not
    checked. If the use is not known, a reference that cannot be resolved here is a
    warning too; its setting has the value None.
    """
    validator = ConfigValidator(
        definition, plugins, use=use, allow_class_paths=allow_class_paths, role=role
    )
    return validator.validate()
