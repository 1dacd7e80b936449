"""Step 5 of a configuration: a valid one, with its plug-ins loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamfactory.spi import Backend, ConfigError, Decoder, StreamConfig
from streamfactory.wiring.config.classification import StreamPlugins
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.plugins.manager import PluginManager, default_manager

if TYPE_CHECKING:
    from streamfactory.wiring.config.crosschecks import Checked


@dataclass(frozen=True, slots=True)
class Configured:
    """A validated configuration with its plug-ins, loaded."""

    config: StreamConfig
    backend: Backend
    decoder: Decoder | None
    key_decoder: Decoder | None = None
    """None if keys are not decoded."""


def settle(
    checked: Checked, plugins: PluginManager, *, reads: bool = True
) -> Configured:
    """Return a checked configuration with its plug-ins loaded.

    Args:
        checked: The configuration.
        plugins: Finds types and decoders.
        reads: Whether the stream is read; then through its spool, if it has one.

    Raises:
        ConfigError: config; with all problems.
        PluginError: plugin; the type or a decoder is not installed.
    """
    if checked.config is None:
        errors = [problem for problem in checked.problems if problem.level == "error"]
        msg = f"{len(errors)} problem{'s' * (len(errors) > 1)} in the configuration"
        raise ConfigError(msg, problems=errors, stream=checked.name or None)
    return load_plugins(checked.config, plugins, reads=reads, found=checked.plugins)


def load_plugins(
    config: StreamConfig,
    plugins: PluginManager | None = None,
    *,
    reads: bool = True,
    found: StreamPlugins | None = None,
) -> Configured:
    """Load the plug-ins of a valid configuration, which another process may have sent.

    Args:
        config: The configuration.
        plugins: Finds types and decoders; by default those of the process.
        reads: Whether the stream is read; then through its spool, if it has one.
        found: Plug-ins that are loaded already.

    Raises:
        PluginError: plugin; the type or a decoder is not installed here.
    """
    plugins, found = plugins or default_manager(), found or StreamPlugins()
    backend = found.backend or plugins.backend(config.type)
    decoder, key_decoder = found.decoder, found.key_decoder
    if decoder is None and config.decoder is not None:
        decoder = plugins.decoder(config.decoder)
    name = config.get("key.decoder.class.name")
    if key_decoder is None and name is not None:
        key_decoder = plugins.decoder(name.lower())
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
