"""Handles of stores on disk and in buckets, one store per location and settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.options import MODE_OPTIONS, STORAGE_OPTIONS
from streamfactory.arrowlog.disk.places import settings_of, storage_of
from streamfactory.arrowlog.disk.store import DiskLogStore
from streamfactory.arrowlog.handles import StoreHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from streamfactory.spi import StreamConfig

_STORAGE_KEYS: Final = frozenset(option.key for option in STORAGE_OPTIONS)
_MODE_KEYS: Final = frozenset(option.key for option in MODE_OPTIONS)


def disk_handle(config: StreamConfig) -> StoreHandle[DiskLogStore]:
    """The handle of one user of a store, opened on first use.

    Args:
        config: Location and settings.
    """
    return StoreHandle(_key(config), lambda: _make(config))


def _key(config: StreamConfig) -> Hashable:
    return (
        DiskLogStore,
        config["path"],
        config["fsync"],
        config["fsync.interval.millis"],
        config["single.writer"],
        *(config.get(key) for key in sorted(_MODE_KEYS)),
        settings_of(config),
        # References of secrets, never the secrets.
        tuple(s.text for key, s in config.settings.items() if key in _STORAGE_KEYS),
    )


def _make(config: StreamConfig) -> tuple[DiskLogStore, Callable[[], object]]:
    storage = storage_of(config)
    store = DiskLogStore(storage, settings_of(config))

    def close() -> None:
        store.close()
        storage.close()

    return store, close
