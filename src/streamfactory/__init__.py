"""Streams as plug-ins, configured by strings, read by partition and offset.

``streamfactory.open("clicks")`` opens a stream of the catalogue; `StreamConfig` is a
stream's configuration, and `hookimpl` marks the hook of a plug-in. Authors of backends
import from `streamfactory.spi`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig, hookimpl
    from streamfactory.wiring.serving.process import serve
    from streamfactory.wiring.streams.stream import open_stream as open

__all__ = ["StreamConfig", "hookimpl", "open", "serve"]

_WHERE: Final = {
    "open": ("streamfactory.wiring.streams.stream", "open_stream"),
    "StreamConfig": ("streamfactory.spi", "StreamConfig"),
    "hookimpl": ("streamfactory.spi", "hookimpl"),
    "serve": ("streamfactory.wiring.serving.process", "serve"),
}


def __getattr__(name: str) -> Any:
    # Lazily: `streamfactory list` and every plug-in's import stay quick.
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
