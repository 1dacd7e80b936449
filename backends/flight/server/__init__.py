"""The server: topics of a log store over Arrow Flight."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog import MemoryLogStore
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.backends.flight.server.options import OPTIONS
from streamfactory.backends.flight.server.service import LogService
from streamfactory.spi import ConfigError, StreamServer

if TYPE_CHECKING:
    from streamfactory.arrowlog import LogStore
    from streamfactory.spi import StreamConfig


class FlightServer(StreamServer):
    """Serves the topics of a folder, or of memory."""

    OPTIONS: ClassVar = OPTIONS

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._disk: DiskLogStore | None = None
        store = self._open_store()
        try:
            self._service = LogService(f"grpc://{config['address']}", store)
        except OSError as error:
            if self._disk is not None:
                self._disk.close()
            msg = f"cannot listen on {config['address']}: {error}"
            raise ConfigError(msg, remedy="choose another address") from error

    @property
    def location(self) -> str:
        host = self.config["address"].rpartition(":")[0]
        return f"grpc://{host}:{self._service.port}"

    def drain(self, timeout: float) -> bool:
        self._service.stopping.set()
        deadline = time.monotonic() + timeout
        while self._service.under_way and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self._service.under_way

    def close(self) -> None:
        self._service.stopping.set()
        if self._disk is not None:
            self._disk.close()

    def _open_store(self) -> LogStore:
        config = self.config
        if config["memory"] == ("path" in config):
            msg = "the server needs either path or memory=true"
            raise ConfigError(msg, remedy="give --path FOLDER or --memory")
        if config["memory"]:
            return MemoryLogStore()
        storage = LocalStorage(
            Path(config["path"]),
            fsync=config["fsync"],
            interval=config["fsync.interval"] / 1000,
        )
        compression = config["compression"]
        settings = Settings(
            compression=None if compression == "none" else compression,
            merge_files=config["compaction.files"],
        )
        self._disk = DiskLogStore(storage, settings)
        return self._disk
