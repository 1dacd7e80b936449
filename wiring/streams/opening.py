"""Opens sinks by name or properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi.arguments import takes
from streamfactory.wiring.config.loading import FAULTS, StreamLike, load
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.testing.faults import Faults


@takes(faults=FAULTS)
def open_sink(
    stream: StreamLike,
    *,
    options: Mapping[str, object] | None = None,
    allow_class_paths: bool = False,
    plugins: PluginManager | None = None,
    faults: Faults | None = None,
) -> Sink:
    """Open a stream for writing.

    Args:
        stream: The name of a stream in the catalogue, the path of its file, or its
            properties.
        options: Properties that replace those of the definition.
        allow_class_paths: Whether the configuration may name Python objects.
        plugins: Finds types; by default those of the process.
        faults: A `streamfactory.Faults`: injects faults, for tests.

    Raises:
        ConfigError: config; with all problems.
        UnknownStream: config; no stream has that name.
        PluginError: plugin; the type is not installed, or broken.
        Unsupported: misuse; the type cannot be written.
    """
    configured = load(
        stream,
        "write",
        options=options,
        allow_class_paths=allow_class_paths,
        plugins=plugins,
    )
    wrap = None if faults is None else faults.around_producers
    clock = None if faults is None else faults.clock
    return Sink(configured, clock=clock, wrap=wrap)
