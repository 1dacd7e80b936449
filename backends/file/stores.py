"""The stores of this process: one for each place, whoever asks for it.

Writers of one process that share a store share its records, too: their commits go
together.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog.disk import (
    DiskLogStore,
    LocalStorage,
    Settings,
    Storage,
    forks,
)
from streamfactory.arrowlog.disk.filesystems import FileSystemStorage
from streamfactory.arrowlog.disk.folders import Modes
from streamfactory.arrowlog.disk.objectclient import ObjectOptions
from streamfactory.arrowlog.disk.objects import ObjectStorage
from streamfactory.arrowlog.disk.single import SingleWriterStorage
from streamfactory.backends.file.options import MODE_OPTIONS, STORAGE_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spi import StreamConfig

_S3: Final = {
    "storage.endpoint": "endpoint",
    "storage.region": "region",
    "storage.access.key": "access_key_id",
    "storage.secret.key": "secret_access_key",
    "storage.token": "session_token",
}
_GS: Final = {
    "storage.endpoint": "base_url",
    "storage.token": "bearer_token",
    "storage.service.account": "service_account",
}
_AZ: Final = {
    "storage.endpoint": "endpoint",
    "storage.account": "account_name",
    "storage.secret.key": "account_key",
    "storage.token": "sas_key",
}
_KINDS: Final = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    "gs": _GS,
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), _AZ),
}
"""Object stores by scheme: what our options are called by the client."""
_ALL_KINDS: Final = (
    "storage.anonymous",
    "storage.allow.http",
    "storage.certificate",
    "storage.timeout",
)
_STORAGE_KEYS: Final = frozenset(option.key for option in STORAGE_OPTIONS)
_MODE_KEYS: Final = frozenset(option.key for option in MODE_OPTIONS)
_READ: Final = 0o444

_lock = forks.Lock()
_stores: Final[dict[tuple[Any, ...], tuple[DiskLogStore, Storage, list[int]]]] = {}
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
                found = _make(self._config)
                _stores[self._key] = found
            found[2][0] += 1
            self._store = found[0]
            return self._store

    def close(self) -> None:
        """Give the share back; the last one closes the store."""
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
        config["fsync.interval"],
        config["single.writer"],
        *(config.get(key) for key in sorted(_MODE_KEYS)),
        settings_of(config),
        # References of secrets, never what they stand for.
        tuple(s.text for key, s in config.settings.items() if key in _STORAGE_KEYS),
    )


def _make(config: StreamConfig) -> tuple[DiskLogStore, Storage, list[int]]:
    storage = storage_of(config)
    return DiskLogStore(storage, settings_of(config)), storage, [0]


def scheme_of(path: str) -> str:
    """Of a URL, in lower case; empty for a folder of this machine."""
    return path.partition("://")[0].lower() if "://" in path else ""


def storage_options(scheme: str) -> frozenset[str]:
    """Which options ``storage.*`` have a meaning for URLs of a scheme."""
    kind = _KINDS.get(scheme)
    return frozenset() if kind is None else frozenset({*kind, *_ALL_KINDS})


def storage_of(config: StreamConfig) -> Storage:
    """The storage that ``path`` names.

    Raises:
        NotInstalled: plugin.
    """
    path: str = config["path"]
    scheme = scheme_of(path)
    kind = _KINDS.get(scheme)
    if kind is not None:
        return ObjectStorage(path, _object_options(config, kind))
    single = bool(config["single.writer"])
    if scheme:
        return FileSystemStorage.of(path, single_writer=single)
    local = SingleWriterStorage if single else LocalStorage
    return local(
        Path(path),
        fsync=config["fsync"],
        interval=config["fsync.interval"] / 1000,
        modes=_modes(config),
    )


def _modes(config: StreamConfig) -> Modes:
    """Permissions of what is made."""
    file, folder = config.get("mode"), config.get("folder.mode")
    if folder is None and file is not None:
        folder = file | (file & _READ) >> 2
    return Modes(file, folder)


def _object_options(config: StreamConfig, kind: Mapping[str, str]) -> ObjectOptions:
    said: dict[str, Any] = {
        name: config[key] for key, name in kind.items() if key in config
    }
    if config["storage.anonymous"]:
        said["skip_signature"] = True
    return ObjectOptions(
        config=said,
        allow_http=config["storage.allow.http"],
        certificate=config.get("storage.certificate"),
        timeout=config["storage.timeout"] / 1000,
    )


def settings_of(config: StreamConfig) -> Settings:
    """How segments are written."""
    compression = config["compression"]
    return Settings(
        segment_size=config["compaction.size"],
        compression=None if compression == "none" else compression,
        merge_files=config["compaction.files"],
        check_values=config["check.values"],
    )
