"""The kit's access to a spool: a harness of a transport, and a receiver behind it."""

from __future__ import annotations

import time
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar

from tests.spool.receiving import DEADLINE, receiving

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.backends.socket.harness import SocketHarness
from streamfactory.backends.zeromq.harness import ZeromqHarness, ZeromqPublisherHarness
from streamfactory.conformance.specimens.forgetful import ForgetfulHarness
from streamfactory.conformance.specimens.redelivering import RedeliveringHarness
from streamfactory.conformance.subject import plugins_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from streamfactory.arrowlog.disk import DiskLog
    from streamfactory.wiring.receiving.receiver import StreamReceiver


class SpooledHarness:
    """A transport of numbers, received into a spool in the folder of the case."""

    TRANSPORT: ClassVar[Any]

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inner = self.TRANSPORT(folder)
        self._spool = folder / "spool"
        self._receiver: StreamReceiver | None = None

    @classmethod
    def plugin(cls) -> object:
        known = getattr(cls.TRANSPORT, "plugin", None)
        return None if known is None else known()

    def create(self, partitions: int) -> None:
        self._stop()
        self._spool = self._folder / f"spool-{uuid.uuid4().hex}"
        self._inner.create(partitions)
        self._receive()

    def properties(self) -> Mapping[str, str]:
        return {
            **self._inner.properties(),
            "spool.path": str(self._spool),
            "spool.fsync": "always",
        }

    def partitions(self) -> Sequence[int]:
        return [partition.id for partition in self._log.bounds()]

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        wanted = self._log.bounds()[partition].latest + len(numbers)
        self._inner.write(partition, numbers)
        deadline = time.monotonic() + DEADLINE
        while self._log.bounds()[partition].latest < wanted:
            assert time.monotonic() < deadline, self._running.reports()
            time.sleep(0.002)

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = self._inner.numbers(rows)
        return found

    def truncate(self, partition: int, messages: int) -> None:
        earliest = self._log.bounds()[partition].earliest
        self._log.truncate({partition: earliest + messages})

    def recreate(self) -> None:
        partitions = len(self._log.bounds())
        self._stop()
        with receiving_store(self._spool) as store:
            for name in store.names():
                store.delete(name)
        self._inner.create(partitions)
        self._receive()

    def close(self) -> None:
        self._stop()
        self._inner.close()

    def _receive(self) -> None:
        plugins = plugins_of(type(self))
        self._receiver = receiving(self.properties(), plugins)
        assert self._receiver.wait_ready(DEADLINE), self._receiver.error

    def _stop(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.close()

    @property
    def _running(self) -> StreamReceiver:
        assert self._receiver is not None
        return self._receiver

    @property
    def _log(self) -> DiskLog:
        store = self._running.store
        return store.open(self._running.config.topic)


def receiving_store(folder: Path) -> Any:
    return closing(DiskLogStore(LocalStorage(folder), Settings()))


class SpooledSocketHarness(SpooledHarness):
    """Over Arrow streams of plain pyarrow."""

    TRANSPORT = SocketHarness


class SpooledZeromqHarness(SpooledHarness):
    """Over PUB/SUB of plain pyzmq."""

    TRANSPORT = ZeromqPublisherHarness


class SpooledZeromqDealerHarness(SpooledHarness):
    """Over DEALER/ROUTER of plain pyzmq: the receiver acknowledges what it stored."""

    TRANSPORT = ZeromqHarness


class Growing(SpooledHarness):
    """Over a transport whose partitions can become more."""

    def properties(self) -> Mapping[str, str]:
        return {**super().properties(), "metadata.refresh.millis": "20"}

    def grow(self, partitions: int) -> None:
        self._inner.grow(partitions)
        deadline = time.monotonic() + DEADLINE
        while len(self._log.bounds()) < partitions:
            assert time.monotonic() < deadline
            time.sleep(0.01)


class SpooledForgetfulHarness(Growing):
    """Over the kit's forgetful specimen, which knows nothing of spools."""

    TRANSPORT = ForgetfulHarness


class SpooledRedeliveringHarness(Growing):
    """Over the specimen that delivers again."""

    TRANSPORT = RedeliveringHarness
