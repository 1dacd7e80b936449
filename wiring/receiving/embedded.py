"""Receivers inside the process that reads: ``spool.receiver=embedded``, for trials."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import StreamTimeout
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.receiving.receiver import StreamReceiver
from streamfactory.wiring.spool.reading import transport_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.wiring.config.configure import Configured
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.testing.faults import Faults

_lock = threading.Lock()
_receivers: Final[dict[tuple[int, str], _Running]] = {}
"""One for each stream that this process reads, by process and configuration."""


def open_source(
    configured: Configured,
    *,
    plugins: PluginManager | None = None,
    columns: Sequence[str] | None = None,
    faults: Faults | None = None,
    aside: bool | None = None,
    raw_keys: bool = False,
) -> Source:
    """A source, with the receiver that its configuration asks for.

    Args:
        configured: Its configuration.
        plugins: Where types are found; the process's own by default.
        columns: Columns wanted, in this order; None means all.
        faults: Goes around the backend: the simulator for tests.
        aside: As of `Source`.
        raw_keys: As of `Source`.

    Raises:
        StreamError: As `receive_embedded`; nothing is left open.
    """
    source = Source(
        configured,
        fields=columns,
        clock=None if faults is None else faults.clock,
        wrap=None if faults is None else faults.around_consumers,
        aside=aside,
        raw_keys=raw_keys,
    )
    try:
        receive_embedded(source, configured, plugins)
    except BaseException:
        source.close()
        raise
    return source


def receive_embedded(
    source: Source, configured: Configured, plugins: PluginManager | None = None
) -> None:
    """Receive for as long as a source is open, where its configuration asks for it.

    Readers of one process that have the same configuration share a receiver.

    Args:
        source: It closes the receiver with itself.
        configured: Its configuration.
        plugins: Where types are found; the process's own by default.

    Raises:
        StreamTimeout: transient; no sender came within ``connection.timeout.millis``.
        StreamError: What ended the receiver.
    """
    config = configured.config
    wanted = transport_of(configured.backend) is not None
    if not wanted or config["spool.receiver"] != "embedded":
        return
    key = (os.getpid(), config.digest())
    with _lock:
        running = _receivers.get(key)
        if running is None:
            receiver = StreamReceiver(configured, plugins=plugins)
            receiver.start()
            running = _receivers[key] = _Running(
                receiver, lambda: _receivers.pop(key, None)
            )
        running.users += 1
    source.close_with(running.release)
    receiver = running.receiver
    timeout = config["connection.timeout.millis"] / 1000
    ready = receiver.wait_ready(timeout)
    if receiver.error is not None:
        raise receiver.error
    if not ready:
        msg = f"no sender came within {timeout:g} s"
        remedy = "start the sender, or set the option `schema`"
        raise StreamTimeout(msg, stream=config.name, remedy=remedy)


@final
class _Running:
    """A receiver and how many use it."""

    def __init__(self, receiver: StreamReceiver, forget: Callable[[], object]) -> None:
        self.receiver = receiver
        self.users = 0
        self._forget = forget

    def release(self) -> None:
        """Give one use back; the last one stops the receiver."""
        with _lock:
            self.users -= 1
            if self.users:
                return
            self._forget()
        self.receiver.close()
