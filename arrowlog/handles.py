"""Stores that all users in a process share: the first one opens it, the last closes it.

Writers of one process that share a store also share its group commits.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from streamfactory.arrowlog.disk import forks

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from streamfactory.spi import StreamConfig

S = TypeVar("S")
"""The type of a store."""
_lock = forks.Lock()
_stores: Final[dict[tuple[int, Hashable], _Shared]] = {}
"""By process and key: a child does not use the stores of its parent."""


class _Shared:
    """A store, what closes it, and the number of its users."""

    def __init__(self, store: Any, close: Callable[[], object]) -> None:
        self.store, self.close, self.users = store, close, 0


class StoreHandle(Generic[S]):
    """One user's handle of a shared store, opened on first use.

    Args:
        key: Equal keys share a store. Without secrets: references of them at most.
        make: Opens the store; returns it, and what closes it.
    """

    def __init__(
        self, key: Hashable, make: Callable[[], tuple[S, Callable[[], object]]]
    ) -> None:
        self._key, self._make = key, make
        self._process: int | None = None
        self._store: S | None = None

    def get(self) -> S:
        """The store, in this process."""
        process = os.getpid()
        if self._process == process:
            assert self._store is not None
            return self._store
        with _lock:
            found = _stores.get((process, self._key))
            if found is None:
                found = _stores[process, self._key] = _Shared(*self._make())
            found.users += 1
            store: S = found.store
            self._process, self._store = process, store
            return store

    def close(self) -> None:
        """Release the handle; the last one closes the store."""
        process, self._process, self._store = self._process, None, None
        if process is None or process != os.getpid():
            return
        with _lock:
            found = _stores[process, self._key]
            found.users -= 1
            if found.users:
                return
            del _stores[process, self._key]
        found.close()


class SharesStore(ABC):
    """Base of factories and administrations whose store is shared by the process.

    It stands before the base of the log, whose ``store`` it implements.
    """

    @staticmethod
    @abstractmethod
    def handle(config: StreamConfig) -> StoreHandle[Any]:
        """Make the handle of a configuration."""

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        self._handle = self.handle(config)

    def store(self) -> Any:
        """The store of this configuration, in this process."""
        return self._handle.get()

    def close(self) -> None:
        """Release the store."""
        self._handle.close()
