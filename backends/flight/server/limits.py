"""Limits on clients, and counts of open calls."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from streamfactory.spi import ConnectionFailed, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator


class ServerBusy(ConnectionFailed):
    """Too many calls are open; another attempt may succeed soon."""

    retry_after_ms = 1000
    """Sent to the client."""


class Kind(Enum):
    """How long a call may be open, which says how much of the reserve it may take."""

    READ = "read"
    """As long as the client likes: none of the reserve."""
    WRITE = "write"
    """As long as the client likes: half of the reserve."""
    SHORT = "short"
    """Health, metadata, commits: all of it."""


class Limits:
    """Counts calls. Thread-safe.

    Args:
        calls: Open calls in all.
        calls_per_client: Open readers and uploads of one client: a user or an address.
        reserved: The reserve: of ``calls``, those that are left free for calls of other
            kinds, and by a client with many short ones for others. At most the half.
    """

    def __init__(self, calls: int, calls_per_client: int, reserved: int) -> None:
        reserved = min(reserved, calls // 2)
        self._most = {
            Kind.READ: calls - reserved,
            Kind.WRITE: calls - reserved // 2,
            Kind.SHORT: calls,
        }
        self._share = reserved // 4
        self._per_client = calls_per_client
        self._lock = threading.Lock()
        self._open: dict[str, Counter[Kind]] = {}
        self._total = 0
        self._changing = 0
        self.refused = 0
        """Number of calls that were refused."""

    @property
    def open_calls(self) -> int:
        """In all."""
        return self._total

    @property
    def clients(self) -> int:
        """Clients with an open call."""
        return len(self._open)

    @property
    def changing(self) -> int:
        """Open calls that write, and changes within others."""
        return self._changing

    @contextmanager
    def call(self, client: str, kind: Kind, *, changes: bool) -> Iterator[None]:
        """Count a call while it is open.

        Args:
            client: A user or an address.
            kind: Of the call.
            changes: Whether it writes.

        Raises:
            ServerBusy: transient; too many calls are open.
        """
        with self._lock:
            own = self._open.get(client, Counter())
            self._check(own, kind)
            self._open[client] = own
            own[kind] += 1
            self._total += 1
            self._changing += changes
        try:
            yield
        finally:
            with self._lock:
                self._changing -= changes
                self._total -= 1
                own[kind] -= 1
                if not own.total():
                    del self._open[client]

    def _check(self, own: Counter[Kind], kind: Kind) -> None:
        """Refuse one more call; with the lock held."""
        most = self._most[kind]
        if kind is Kind.SHORT:
            if own[kind] >= max(1, self._share):
                most -= self._share
        elif own[Kind.READ] + own[Kind.WRITE] >= self._per_client:
            self._refuse("this client", self._per_client)
        if self._total >= most:
            self._refuse(f"all clients for another {kind.value} call", most)

    def _refuse(self, whose: str, most: int) -> None:
        self.refused += 1
        msg = f"the open calls of {whose} reached their limit of {most}"
        remedy = "close readers, or retry after a second"
        raise ServerBusy(msg, remedy=remedy)

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


@dataclass(frozen=True, slots=True)
class UploadRules:
    """Settings of uploads and commits."""

    timeout: float
    """Seconds after which an upload that is not continued or decided is removed."""
    batch_bytes: int
    """Maximum bytes of the rows that travel with a commit, decompressed."""
    writer_memory: float
    """Seconds for which an idle writer is remembered."""


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
