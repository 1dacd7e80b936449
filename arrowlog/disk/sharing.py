"""The stores of this process: one per location, shared by all users.

Writers of one process that share a store also share its group commits.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog.disk import forks
from streamfactory.arrowlog.disk.options import MODE_OPTIONS, STORAGE_OPTIONS
from streamfactory.arrowlog.disk.places import settings_of, storage_of
from streamfactory.arrowlog.disk.store import DiskLogStore

if TYPE_CHECKING:
    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.spi import StreamConfig

_STORAGE_KEYS: Final = frozenset(option.key for option in STORAGE_OPTIONS)
_MODE_KEYS: Final = frozenset(option.key for option in MODE_OPTIONS)

_lock = forks.Lock()
_stores: Final[dict[tuple[Any, ...], tuple[DiskLogStore, Storage, list[int]]]] = {}
"""Stores with their users, by process: a child does not use those of its parent."""


class StoreHandle:
    """One user's handle of a shared store, opened on first use.

    Args:
        config: Location and settings.
    """

    def __init__(self, config: StreamConfig) -> None:
        self._config = config
        self._key: tuple[Any, ...] | None = None
        self._store: DiskLogStore | None = None

    def get(self) -> DiskLogStore:
        """The store, in this process."""
        if self._key is not None and self._key[0] == os.getpid():
            assert self._store is not None
            return self._store
        with _lock:
            self._key = _key(self._config)
            found = _stores.get(self._key)
            if found is None:
                found = _make(self._config)
                _stores[self._key] = found
            found[2][0] += 1
            self._store = found[0]
            return self._store

    def close(self) -> None:
        """Release the handle; the last one closes the store."""
        key, self._key, store, self._store = self._key, None, self._store, None
        if key is None or store is None or key[0] != os.getpid():
            return
        with _lock:
            _, storage, users = _stores[key]
            users[0] -= 1
            if users[0]:
                return
            del _stores[key]
        store.close()
        storage.close()


def _key(config: StreamConfig) -> tuple[Any, ...]:
    return (
        os.getpid(),
        config["path"],
        config["fsync"],
        config["fsync.interval.millis"],
        config["single.writer"],
        *(config.get(key) for key in sorted(_MODE_KEYS)),
        settings_of(config),
        # References of secrets, never the secrets.
        tuple(s.text for key, s in config.settings.items() if key in _STORAGE_KEYS),
    )


def _make(config: StreamConfig) -> tuple[DiskLogStore, Storage, list[int]]:
    storage = storage_of(config)
    return DiskLogStore(storage, settings_of(config)), storage, [0]
