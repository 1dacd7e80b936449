"""The server: topics of a log store over Arrow Flight."""

from __future__ import annotations

import ipaddress
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from streamfactory.arrowlog import MemoryLogStore
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.backends.flight.server.access import Access
from streamfactory.backends.flight.server.limits import Limits
from streamfactory.backends.flight.server.options import OPTIONS
from streamfactory.backends.flight.server.service import LogService
from streamfactory.spi import ConfigError, StreamServer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.arrowlog import LogStore
    from streamfactory.spi import StreamConfig


class FlightServer(StreamServer):
    """Serves the topics of a folder, or of memory."""

    OPTIONS: ClassVar = OPTIONS

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        tls = _tls(config)
        _check_address(config, secure=bool(tls))
        access = Access(config["access.file"]) if "access.file" in config else None
        self._limits = Limits(
            config["calls"], config["calls.per.client"], config["batch.bytes"]
        )
        self._disk: DiskLogStore | None = None
        store = self._open_store()
        scheme = "grpc+tls" if tls else "grpc"
        try:
            self._service = LogService(
                f"{scheme}://{config['address']}",
                store,
                self._limits,
                access,
                config.get("advertise"),
                **tls,
            )
        except (OSError, ValueError, RuntimeError) as error:
            self._close_store()
            msg = f"cannot listen on {config['address']}: {error}"
            raise ConfigError(msg, remedy="choose another address") from error

    @property
    def location(self) -> str:
        return self._service.location

    def drain(self, timeout: float) -> bool:
        self._service.stopping.set()
        deadline = time.monotonic() + timeout
        while self._limits.changing and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self._limits.changing

    def statistics(self) -> Mapping[str, Any]:
        limits = self._limits
        return {
            "clients": limits.clients,
            "calls.open": limits.open_calls,
            "calls.refused": limits.refused,
        }

    def close(self) -> None:
        self._service.stopping.set()
        self._close_store()

    def _close_store(self) -> None:
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


def _tls(config: StreamConfig) -> dict[str, Any]:
    """TLS as Flight takes it; empty where it is not configured.

    Raises:
        ConfigError: config; a file is missing, or cannot be read.
    """
    given = {key: _pem(config, key) for key in ("tls.certificate", "tls.key")}
    certificate, key = given.values()
    if (certificate is None) != (key is None):
        msg = "tls.certificate and tls.key belong together"
        raise ConfigError(msg, remedy="give both")
    authorities = _pem(config, "tls.client.ca")
    if certificate is None:
        if authorities is not None:
            msg = "tls.client.ca requires tls.certificate and tls.key"
            raise ConfigError(msg)
        return {}
    mutual = {"verify_client": True, "root_certificates": authorities}
    return {
        "tls_certificates": [(certificate, key)],
        **(mutual if authorities is not None else {}),
    }


def _pem(config: StreamConfig, key: str) -> bytes | None:
    if key not in config:
        return None
    try:
        return Path(config[key]).read_bytes()
    except OSError as error:
        msg = f"{key} {config[key]!r} cannot be read: {error.strerror}"
        raise ConfigError(msg) from error


def _check_address(config: StreamConfig, *, secure: bool) -> None:
    """Refuse to listen beyond this machine in the clear, unless told to.

    Raises:
        ConfigError: config.
    """
    address: str = config["address"]
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        msg = f"address {address!r} is not host:port"
        raise ConfigError(msg, remedy="write for instance 127.0.0.1:8815")
    try:
        local = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        local = host == "localhost"
    if not (local or secure or config["allow.remote"]):
        msg = f"address {address!r} is open to the network, and TLS is not configured"
        remedy = "set tls.certificate and tls.key, or allow.remote=true"
        raise ConfigError(msg, remedy=remedy)
