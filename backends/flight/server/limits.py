"""How much clients may ask of the server, and what is under way."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamfactory.spi import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator


class Limits:
    """Counts calls. Thread-safe.

    Args:
        calls: Open calls in all.
        calls_per_client: Open calls of one client, by its connection.
        batch_bytes: Of one batch.
    """

    def __init__(self, calls: int, calls_per_client: int, batch_bytes: int) -> None:
        self.batch_bytes = batch_bytes
        self._calls, self._per_client = calls, calls_per_client
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()
        self._changing = 0
        self.refused = 0
        """Calls beyond the limits so far."""

    @property
    def open_calls(self) -> int:
        """In all."""
        return self._open.total()

    @property
    def clients(self) -> int:
        """Connections with an open call."""
        return len(self._open)

    @property
    def changing(self) -> int:
        """Open calls that write."""
        return self._changing

    @contextmanager
    def call(self, peer: str, *, changes: bool) -> Iterator[None]:
        """Count a call while it is open.

        Raises:
            ConnectionFailed: transient; there are too many.
        """
        with self._lock:
            total, own = self._open.total(), self._open[peer]
            if total >= self._calls or own >= self._per_client:
                self.refused += 1
                if not own:
                    del self._open[peer]
                whose, most = ("this client", self._per_client)
                if total >= self._calls:
                    whose, most = ("all clients", self._calls)
                msg = f"the open calls of {whose} reached their limit of {most}"
                raise ConnectionFailed(msg, remedy="close readers, or retry later")
            self._open[peer] += 1
            self._changing += changes
        try:
            yield
        finally:
            with self._lock:
                self._changing -= changes
                self._open[peer] -= 1
                if not self._open[peer]:
                    del self._open[peer]
