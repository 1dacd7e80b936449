"""Receivers within the reading process: ``spool.receiver=embedded``, for trials."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import StreamTimeout
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.plugins.manager import PluginManager
    from streamfactory.wiring.receiving.receiver import StreamReceiver
    from streamfactory.wiring.testing.faults import Faults

_lock = threading.Lock()
_receivers: Final[dict[tuple[int, str], _Running]] = {}
"""The running receivers, by process and configuration."""


def open_source(
    configured: Configured,
    *,
    plugins: PluginManager | None = None,
    columns: Sequence[str] | None = None,
    faults: Faults | None = None,
    aside: bool | None = None,
    raw_keys: bool = False,
    opening: bytes | None = None,
) -> Source:
    """Open a source, with an embedded receiver if configured.

    Args:
        configured: Its configuration.
        plugins: Finds types; by default those of the process.
        columns: Columns to read, in this order; None means all.
        faults: Injects faults, for tests.
        aside: See `Source`.
        raw_keys: See `Source`.
        opening: See `Source`.

    Raises:
        StreamError: See `receive_embedded`; nothing is left open.
    """
    source = Source(
        configured,
        fields=columns,
        clock=None if faults is None else faults.clock,
        wrap=None if faults is None else faults.around_consumers,
        aside=aside,
        raw_keys=raw_keys,
        opening=opening,
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
    """Run a receiver while a source is open, if configured.

    Readers of one process that have the same configuration share a receiver.

    Args:
        source: Closes the receiver when it is closed.
        configured: Its configuration.
        plugins: Finds types; by default those of the process.

    Raises:
        StreamTimeout: transient; no sender connected within
            ``connection.timeout.millis``.
        StreamError: The error that ended the receiver.
    """
    config = configured.config
    if SPOOL_PATH not in config or config["spool.receiver"] != "embedded":
        return
    # Imported here: Spark's workers open sources too, mostly of streams without spool.
    from streamfactory.wiring.receiving.receiver import StreamReceiver
    from streamfactory.wiring.spool.reading import transport_of

    if transport_of(configured.backend) is None:
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
        msg = f"no sender connected within {timeout:g} s"
        remedy = "start the sender, or set the option `schema`"
        raise StreamTimeout(msg, stream=config.name, remedy=remedy)


@final
class _Running:
    """A receiver and the number of its users."""

    def __init__(self, receiver: StreamReceiver, forget: Callable[[], object]) -> None:
        self.receiver = receiver
        self.users = 0
        self._forget = forget

    def release(self) -> None:
        """Release one use; the last one stops the receiver."""
        with _lock:
            self.users -= 1
            if self.users:
                return
            self._forget()
        self.receiver.close()
