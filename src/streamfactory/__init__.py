"""Streams as plug-ins, configured by strings, read by partition and offset.

``streamfactory.open("clicks")`` opens a stream of the catalogue for reading, `open_sink`
for writing. `copy`, `backfill`, `publish`, `export` and `replay_dead_letters` are whole jobs, `serve` runs a server,
`metrics` counts what this process did; `serve_metrics` shows it to Prometheus, and
`export_opentelemetry` sends it with traces to a collector,
`push_table` lets a program push rows into a query of this process, and `engines` has
streams in DuckDB, Polars, DataFusion and pandas. `Faults` makes streams fail now and then,
for tests. `Stream` and `Sink` are the classes of what is opened. The errors here are the classes of what all of them raise; `streamfactory.spi`
has each error.
Authors of backends import from `streamfactory.spi`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streamfactory import engines
    from streamfactory.spi import (
        ConfigError,
        DataLossError,
        DecodeError,
        MisuseError,
        Partition,
        PermanentError,
        PluginError,
        Position,
        StreamConfig,
        StreamError,
        TransientError,
        hookimpl,
    )
    from streamfactory.push.table import push_table
    from streamfactory.transfer.jobs import (
        backfill,
        copy,
        export,
        publish,
        replay_dead_letters,
    )
    from streamfactory.wiring.metrics.endpoint import serve_metrics
    from streamfactory.wiring.metrics.opentelemetry import export_opentelemetry
    from streamfactory.wiring.metrics.snapshot import metrics
    from streamfactory.wiring.serving.process import serve
    from streamfactory.wiring.streams.opening import open_sink
    from streamfactory.wiring.streams.stream import Stream
    from streamfactory.wiring.streams.stream import open_stream as open
    from streamfactory.wiring.testing.faults import Faults
    from streamfactory.wiring.writing.sink import Sink

__all__ = [
    "ConfigError",
    "DataLossError",
    "DecodeError",
    "Faults",
    "MisuseError",
    "Partition",
    "PermanentError",
    "PluginError",
    "Position",
    "Sink",
    "Stream",
    "StreamConfig",
    "StreamError",
    "TransientError",
    "backfill",
    "copy",
    "engines",
    "export",
    "export_opentelemetry",
    "hookimpl",
    "metrics",
    "open",
    "open_sink",
    "publish",
    "push_table",
    "replay_dead_letters",
    "serve",
    "serve_metrics",
]

_ELSEWHERE: Final = {
    "Faults": ("streamfactory.wiring.testing.faults", "Faults"),
    "Sink": ("streamfactory.wiring.writing.sink", "Sink"),
    "Stream": ("streamfactory.wiring.streams.stream", "Stream"),
    "backfill": ("streamfactory.transfer.jobs", "backfill"),
    "copy": ("streamfactory.transfer.jobs", "copy"),
    "export": ("streamfactory.transfer.jobs", "export"),
    "export_opentelemetry": (
        "streamfactory.wiring.metrics.opentelemetry",
        "export_opentelemetry",
    ),
    "metrics": ("streamfactory.wiring.metrics.snapshot", "metrics"),
    "open": ("streamfactory.wiring.streams.stream", "open_stream"),
    "open_sink": ("streamfactory.wiring.streams.opening", "open_sink"),
    "publish": ("streamfactory.transfer.jobs", "publish"),
    "push_table": ("streamfactory.push.table", "push_table"),
    "replay_dead_letters": ("streamfactory.transfer.jobs", "replay_dead_letters"),
    "serve": ("streamfactory.wiring.serving.process", "serve"),
    "serve_metrics": ("streamfactory.wiring.metrics.endpoint", "serve_metrics"),
}
"""Of the names that `streamfactory.spi` does not have."""


def __getattr__(name: str) -> Any:
    # Lazily: `streamfactory list` and every plug-in's import stay quick.
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    if name == "engines":
        return import_module("streamfactory.engines")
    module, attribute = _ELSEWHERE.get(name, ("streamfactory.spi", name))
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
