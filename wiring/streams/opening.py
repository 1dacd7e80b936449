"""From a name, or properties, to an open stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.plugins.manager import PluginManager, default_manager
from streamfactory.wiring.streams.stream import find_definition
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.testing.faults import Faults


def open_sink(
    stream: str | Mapping[str, Any] | StreamDefinition,
    *,
    options: Mapping[str, str] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
    faults: Faults | None = None,
) -> Sink:
    """Open a stream for writing.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Where types are found; the process's own by default.
        faults: Goes around the backend: the simulator for tests.

    Raises:
        ConfigError: config; every problem at once.
        UnknownStream: config; no stream of that name.
        PluginError: plugin; the type is not installed, or broken.
        Unsupported: misuse; the type cannot be written.
    """
    plugins = plugins or default_manager()
    definition = find_definition(stream).with_overrides(options or {})
    configured = configure(
        definition, plugins, use="write", allow_class_paths=allow_class_paths
    )
    wrap = None if faults is None else faults.around_producers
    clock = None if faults is None else faults.clock
    return Sink(configured, clock=clock, wrap=wrap)
