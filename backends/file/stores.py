"""The stores of this process: one for each place, whoever asks for it.

Writers of one process that share a store share its records, too: their commits go
together.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings, Storage

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

_lock = threading.Lock()
_stores: Final[dict[tuple[Any, ...], tuple[DiskLogStore, list[int]]]] = {}
"""By process, too: a child never touches what its parent holds. With its users."""


class StoreHandle:
    """One user's share of a store, opened on first use.

    Args:
        config: Says where, and how it is written.
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
                found = _make(self._config), [0]
                _stores[self._key] = found
            found[1][0] += 1
            self._store = found[0]
            return self._store

    def close(self) -> None:
        """Give the share back; the last one closes the store."""
        key, self._key, store, self._store = self._key, None, self._store, None
        if key is None or store is None or key[0] != os.getpid():
            return
        with _lock:
            users = _stores[key][1]
            users[0] -= 1
            if users[0]:
                return
            del _stores[key]
        store.close()


def _key(config: StreamConfig) -> tuple[Any, ...]:
    return (
        os.getpid(),
        config["path"],
        config["fsync"],
        config["fsync.interval"],
        settings_of(config),
    )


def _make(config: StreamConfig) -> DiskLogStore:
    return DiskLogStore(storage_of(config), settings_of(config))


def storage_of(config: StreamConfig) -> Storage:
    """The storage that ``path`` names."""
    return LocalStorage(
        Path(config["path"]),
        fsync=config["fsync"],
        interval=config["fsync.interval"] / 1000,
    )


def settings_of(config: StreamConfig) -> Settings:
    """How segments are written: Pinot's thresholds, and ours."""
    flush = "realtime.segment.flush.threshold"
    rows: int | None = config.get(f"{flush}.segment.rows") or config.get(
        f"{flush}.rows"
    )
    age: int | None = config.get(f"{flush}.time")
    compression = config["compression"]
    return Settings(
        segment_rows=rows or None,
        segment_size=config.get(f"{flush}.segment.size") or Settings().segment_size,
        segment_age=None if age is None else age / 1000,
        compression=None if compression == "none" else compression,
        merge_files=config["compaction.files"],
    )
