"""Receivers for tests, in this process and in one that is killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.conformance.specimens import forgetful, redelivering
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager, default_manager
from streamfactory.wiring.receiving.receiver import StreamReceiver

if TYPE_CHECKING:
    from collections.abc import Mapping

DEADLINE: Final = 120.0


def receiving(
    properties: Mapping[str, str], plugins: PluginManager | None = None
) -> StreamReceiver:
    """A receiver that has begun. The caller closes it."""
    plugins = plugins or default_manager()
    made = configure(from_mapping(properties), plugins, use="read")
    receiver = StreamReceiver(made, plugins=plugins)
    receiver.start()
    return receiver


def receive(root: str, properties: Mapping[str, str]) -> None:
    """Receive until the folder has a file `stop`: the role of a child."""
    receiver = receiving(properties, specimens())
    while not Path(root, "stop").exists():
        assert receiver.error is None, receiver.error
        time.sleep(0.02)
    receiver.close()


def specimens() -> PluginManager:
    """The types of this package, and the kit's transports that forget."""
    manager = PluginManager()
    manager.register(forgetful)
    manager.register(redelivering)
    return manager


def quick_spool(folder: Path) -> dict[str, str]:
    """Options of a spool in a folder, for receivers that are killed."""
    return {
        "spool.path": str(folder / "spool"),
        "spool.fsync": "never",
        "retry.initial.millis": "5",
        "retry.max.millis": "50",
    }
