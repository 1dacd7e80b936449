"""Limits on clients, and counts of open calls."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

from streamfactory.spi import ConnectionFailed, StorageFailed

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
        """Number of calls that were refused."""

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
        """Open calls that write, and changes within others."""
        return self._changing

    @contextmanager
    def call(self, peer: str, *, changes: bool) -> Iterator[None]:
        """Count a call while it is open.

        Raises:
            ConnectionFailed: transient; too many calls are open.
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

    @contextmanager
    def change(self) -> Iterator[None]:
        """Count a change within a longer call."""
        with self._lock:
            self._changing += 1
        try:
            yield
        finally:
            with self._lock:
                self._changing -= 1


class StagedBytes:
    """Counts uploaded bytes that are neither committed nor discarded. Thread-safe.

    Args:
        most: Bytes in all.
        most_per_client: Bytes of one client.
    """

    def __init__(self, most: int, most_per_client: int) -> None:
        self._most, self._per_client = most, most_per_client
        self._lock = threading.Lock()
        self._staged: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """Of all clients."""
        return self._staged.total()

    def reserve(self, client: str, size: int) -> None:
        """Count bytes before they are staged.

        Raises:
            StorageFailed: permanent; a limit would be exceeded. Nothing was counted.
        """
        with self._lock:
            own, total = self._staged[client] + size, self._staged.total() + size
            for whose, number, most, option in (
                ("this client", own, self._per_client, "staged.bytes.per.client"),
                ("all clients", total, self._most, "staged.bytes"),
            ):
                if number > most:
                    self._drop_unused(client)
                    msg = (
                        f"the uploads of {whose} that are not committed would have "
                        f"{number} bytes; {most} are allowed"
                    )
                    remedy = f"commit smaller epochs, or raise {option} of the server"
                    raise StorageFailed(msg, remedy=remedy)
            self._staged[client] = own

    def release(self, client: str, size: int) -> None:
        """Stop counting bytes."""
        with self._lock:
            self._staged[client] -= size
            self._drop_unused(client)

    def _drop_unused(self, client: str) -> None:
        if not self._staged[client]:
            del self._staged[client]
