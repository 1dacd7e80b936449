"""Receivers for tests, in this process and in one that is killed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.conformance.specimens import forgetful, redelivering
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager, default_manager
from streamfactory.wiring.receiving.receiver import StreamReceiver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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


def spooled(folder: Path, harness: Any, **options: str) -> dict[str, str]:
    given = {key.replace("__", "."): text for key, text in options.items()}
    return {
        **harness.properties(),
        "spool.path": str(folder / "spool"),
        "spool.fsync": "never",
        "retry.max.millis": "100",
        **given,
    }


def until(condition: Callable[[], object], shown: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.005)


def stored(receiver: StreamReceiver, rows: int) -> None:
    """Wait until a receiver has stored so many rows."""
    until(
        lambda: sum(report.rows for report in receiver.reports()) >= rows,
        receiver.reports,
    )


def in_state(receiver: StreamReceiver, state: str) -> None:
    until(lambda: [r for r in receiver.reports() if r.state == state], receiver.reports)
