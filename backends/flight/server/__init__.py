"""The server: topics of a log store over Arrow Flight."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from streamfactory.arrowlog import MemoryLogStore
from streamfactory.arrowlog.disk import DiskLogStore
from streamfactory.arrowlog.disk.places import settings_of, storage_of
from streamfactory.backends.flight.server.access import Access
from streamfactory.backends.flight.server.address import check_address, unusable
from streamfactory.backends.flight.server.checkpoints import CheckpointKeeper
from streamfactory.backends.flight.server.limits import Limits, StagedBytes, UploadRules
from streamfactory.backends.flight.server.metrics import METRICS, Meters
from streamfactory.backends.flight.server.options import OPTIONS
from streamfactory.backends.flight.server.redaction import Redactor, ServedStore
from streamfactory.backends.flight.server.rules import check_options
from streamfactory.backends.flight.server.service import LogService
from streamfactory.backends.flight.server.uploads import Uploads
from streamfactory.spi import StreamServer
from streamfactory.spi.listening import read_tls

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.arrowlog import LogStore
    from streamfactory.spi import Problem, Sample, StreamConfig


_GROUPS: Final = "groups"
"""The folder, beside the topics, with the checkpoints of groups."""


_ANSWERS_TIMEOUT: Final = 1.0
"""Seconds to send the responses of finished calls at shutdown."""
_EXPIRY_TIMEOUT: Final = 10.0
"""Seconds to wait for the removal of expired uploads at shutdown."""


class FlightServer(StreamServer):
    """Serves the topics of a folder, an object store, or memory."""

    OPTIONS: ClassVar = OPTIONS
    METRICS: ClassVar = METRICS

    @classmethod
    def check_options(cls, config: StreamConfig) -> Iterable[Problem]:
        return check_options(config)

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        check_address(config["address"])
        tls = _tls(config)
        access = Access(config["access.file"]) if "access.file" in config else None
        self._limits = Limits(
            config["calls"], config["calls.per.client"], config["calls.reserved"]
        )
        staged = StagedBytes(config["staged.bytes"], config["staged.bytes.per.client"])
        self._disk: DiskLogStore | None = None
        self._groups: DiskLogStore | None = None
        opened, groups = self._open_store(), self._open_groups()
        places = [config[key] for key in ("path", "storage.endpoint") if key in config]
        store = ServedStore(opened, Redactor(places))
        rules = UploadRules(
            config["staged.timeout.millis"] / 1000,
            config["batch.bytes"],
            config["writer.memory.millis"] / 1000,
        )
        self._uploads = Uploads(store, Meters(), staged, rules)
        scheme = "grpc+tls" if tls else "grpc"
        try:
            self._service = LogService(
                f"{scheme}://{config['address']}",
                store,
                CheckpointKeeper(groups),
                self._limits,
                config["batch.bytes"],
                self._uploads,
                config["stalled.after.millis"] / 1000,
                access,
                config.get("advertise"),
                **tls,
            )
        except (OSError, ValueError, RuntimeError, pa.ArrowException) as error:
            self._close_store()
            raise unusable(config["address"], str(error)) from error
        self._expiry = threading.Thread(
            target=self._uploads.expire_until,
            args=(self._service.stopping,),
            name="expiry of uploads",
            daemon=True,
        )
        self._expiry.start()

    @property
    def location(self) -> str:
        return self._service.location

    @property
    def port(self) -> int:
        """The location at which the server listens."""
        return int(self._service.port)

    def drain(self, timeout: float) -> bool:
        self._service.stopping.set()
        deadline = time.monotonic() + timeout
        while self._limits.changing and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self._limits.changing

    def statistics(self) -> Sequence[Sample]:
        return self._service.statistics.samples()

    def problems(self) -> Sequence[str]:
        return self._service.statistics.problems()

    def close(self) -> None:
        self._service.stopping.set()
        # Sends the responses of finished calls; also waits for idle clients.
        answering = threading.Thread(
            target=self._service.shutdown, name="last answers", daemon=True
        )
        answering.start()
        answering.join(_ANSWERS_TIMEOUT)
        self._expiry.join(_EXPIRY_TIMEOUT)
        self._close_store()

    def _close_store(self) -> None:
        for disk in (self._groups, self._disk):
            if disk is not None:
                disk.close()

    def _open_groups(self) -> LogStore:
        """The store of group checkpoints, next to the topics."""
        if self._disk is None:
            return MemoryLogStore()
        self._groups = self._disk.within(_GROUPS)
        return self._groups

    def _open_store(self) -> LogStore:
        config = self.config
        if config["memory"]:
            return MemoryLogStore()
        storage = storage_of(config)
        storage.names("")  # a bucket that cannot be reached is an error at the start
        self._disk = DiskLogStore(storage, settings_of(config))
        return self._disk


def _tls(config: StreamConfig) -> dict[str, Any]:
    """TLS as Flight takes it; empty where it is not configured.

    Raises:
        ConfigError: config; a file is missing, cannot be read, or does not fit.
    """
    if "tls.certificate" not in config:
        return {}
    pem = read_tls(config, "tls.client.ca")
    found: dict[str, Any] = {
        "tls_certificates": [(pem["tls.certificate"], pem["tls.key"])]
    }
    if "tls.client.ca" in pem:
        found |= {"verify_client": True, "root_certificates": pem["tls.client.ca"]}
    return found
