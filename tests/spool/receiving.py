"""Receivers for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.wiring.configure import configure
from streamfactory.wiring.definition import from_mapping
from streamfactory.wiring.plugins import PluginManager, default_manager
from streamfactory.wiring.spool.receiving import StreamReceiver

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE: Final = 30.0


def receiving(
    properties: Mapping[str, str], plugins: PluginManager | None = None
) -> StreamReceiver:
    """A receiver that has begun. The caller closes it."""
    plugins = plugins or default_manager()
    made = configure(from_mapping(properties), plugins, use="read")
    receiver = StreamReceiver(made, plugins=plugins)
    receiver.start()
    return receiver
