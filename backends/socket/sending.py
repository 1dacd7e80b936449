"""One partition as it is written: every batch to each reader of one address."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.backends.socket.headers import END
from streamfactory.backends.socket.waiting import WRITABLE, Backoff, wait
from streamfactory.spi import (
    ClosedError,
    ConnectionFailed,
    MisuseError,
    NotAuthorized,
    SchemaMismatch,
    StreamError,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.backends.socket.connections import Connection, Port
    from streamfactory.backends.socket.options import Settings
    from streamfactory.backends.socket.waiting import Wake

log = logging.getLogger(__name__)

_COPIED: Final = 512 * 1024
"""Bytes up to which a batch is copied into one piece: that beats many small ones."""
_PAUSE: Final = 0.02


class Outflow:
    """Batches into the bytes of a stream."""

    def __init__(self, schema: pa.Schema, compression: str) -> None:
        self.schema = schema
        self._plain = compression == "none"
        codec = None if self._plain else compression
        self._options = pa.ipc.IpcWriteOptions(compression=codec)
        self._pieces: list[memoryview] = []
        self._writer: Any = None
        self._row_size = 0.0

    def begin(self) -> list[memoryview]:
        """What each connection begins with."""
        return [memoryview(self.schema.serialize())]

    def encode(self, rows: pa.RecordBatch) -> list[memoryview]:
        """One batch; long ones are not copied."""
        if self._plain and rows.num_rows * self._row_size <= _COPIED:
            whole = rows.serialize()
            self._row_size = whole.size / max(1, rows.num_rows)
            return [memoryview(whole)]
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self, self.schema, options=self._options)
            self._writer.write_batch(rows.slice(0, 0))  # which writes the schema
        self._pieces = []
        self._writer.write_batch(rows)
        return self._pieces

    # --- a file, to pyarrow -------------------------------------------------------

    closed = False

    def write(self, piece: pa.Buffer | bytes) -> int:
        view = memoryview(piece).cast("B")
        if len(view):
            self._pieces.append(view)
        return len(view)

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """There is nothing to close."""


class _Reader:
    """One connection to a reader."""

    def __init__(self, connection: Connection, begin: list[memoryview]) -> None:
        self.connection = connection
        self.pending = begin
        self.half_sent = False
        """Whether part of a message has gone."""

    def flush(self) -> bool:
        """Send what there is room for; whether that is all."""
        while self.pending:
            try:
                count = self.connection.send(self.pending)
            except BlockingIOError:
                return False
            self.half_sent = True
            self.pending = _behind(self.pending, count)
        self.half_sent = False
        return True


class OutLane:
    """The readers of one partition. Thread-safe; one writer at a time has it.

    Args:
        port: Where they are.
        settings: Timers.
        readers: How many get every row.
        compression: Of the bodies.
    """

    def __init__(
        self, port: Port, settings: Settings, readers: int, compression: str
    ) -> None:
        self._port = port
        self._settings = settings
        self._wanted = readers
        self._compression = compression
        self._lock = threading.Lock()
        self._arriving: list[Connection] = []
        self._readers: list[_Reader] = []
        self._backoff = Backoff(settings)
        self._out: Outflow | None = None
        self._lost = 0
        """Readers that are gone for good."""
        self._opened = self._closed = False
        self.is_finished = False
        """Whether the marker of the end was sent."""

    @property
    def is_left(self) -> bool:
        """Whether every reader is gone. Never blocks."""
        if not self._lock.acquire(blocking=False):
            return False  # somebody writes, and will find out
        try:
            self._drop_those_gone()
            return self._lost >= self._wanted
        finally:
            self._lock.release()

    def open(self) -> None:
        """Listen, so that readers can come; twice is fine."""
        if not self._opened:
            with self._lock:
                self._port.open()
                self._opened = True

    def send(self, rows: pa.RecordBatch, wake: Wake | None) -> None:
        """Hand rows to the system for every reader; blocks while there is no room.

        Raises:
            ClosedError: misuse; woken.
            StreamTimeout: transient; readers did not come, or one stands still.
            StreamError: As `Connection.advance`.
        """
        with self._mine(wake):
            self._begin(rows.schema, wake)
            if self._lost >= self._wanted:
                return
            assert self._out is not None
            pieces = self._out.encode(rows)
            for reader in self._readers:
                reader.pending = [*reader.pending, *pieces]
            self._flush(wake)

    def finish(self, schema: pa.Schema) -> None:
        """Send the marker of the end; twice is fine.

        Raises:
            StreamError: As `send`.
        """
        with self._mine(None):
            if self.is_finished:
                return
            self._begin(schema, None)
            for reader in self._readers:
                reader.pending = [*reader.pending, memoryview(END)]
            self._flush(None)
            self.is_finished = True
            for reader in self._readers:
                reader.connection.end_sending()
            self._port.close()

    def confirm(self, deadline: float) -> None:
        """Wait until every reader has taken the end, and closed.

        Raises:
            StreamTimeout: transient; one has not by then.
        """
        with self._mine(None):
            while self._readers:
                self._drop_those_gone()
                if not self._readers:
                    return
                left = deadline - time.monotonic()
                if left <= 0:
                    name = self._readers[0].connection.name
                    msg = f"{name}: a reader has not closed after the end of the stream"
                    raise StreamTimeout(msg, remedy="look whether it still reads")
                wait([(r.connection.fileno(), 1) for r in self._readers], left)

    def break_off(self) -> None:
        """Let readers learn of a failure; a next write begins with new ones."""
        with self._lock:
            for reader in self._readers:
                reader.connection.break_off(torn=reader.half_sent)
            for connection in self._arriving:
                connection.break_off(torn=False)
            self._readers, self._arriving = [], []
            self._out, self._lost = None, 0

    def close(self) -> None:
        """Close; where the stream has not been finished, readers learn of a failure."""
        self._closed = True  # which ends the waiting of whoever has the lane
        if not self.is_finished:
            self.break_off()
        with self._lock:
            for reader in self._readers:
                reader.connection.close()
            self._readers = []
            self._port.close()

    # --- who is there -------------------------------------------------------------

    def _begin(self, schema: pa.Schema, wake: Wake | None) -> None:
        """Have all readers, each with the schema on its way."""
        self._check(wake)
        if self.is_finished:
            msg = "the stream has been finished"
            raise MisuseError(msg)
        if self._out is None:
            self._out = Outflow(schema.remove_metadata(), self._compression)
        elif not schema.equals(self._out.schema):
            msg = f"the stream has begun with {_names(self._out.schema)}, not with "
            raise SchemaMismatch(msg + _names(schema))
        missing = self._wanted - self._lost - len(self._readers)
        if missing:
            self._gather(self._out, wake)

    def _gather(self, out: Outflow, wake: Wake | None) -> None:
        deadline = time.monotonic() + self._settings.timeout
        while len(self._readers) + self._lost < self._wanted:
            self._let_come(out)
            self._check(wake)
            left = deadline - time.monotonic()
            count = f"{len(self._readers)} of {self._wanted} readers"
            if len(self._readers) + self._lost >= self._wanted:
                break
            if left <= 0:
                msg = f"{self._port.address}: {count} have come in time"
                remedy = "start them, or raise connection.timeout.millis"
                raise StreamTimeout(msg, remedy=remedy)
            arriving = [(c.fileno(), c.waits_for) for c in self._arriving]
            known = [*self._port.descriptors, *arriving]
            pause = left if known else min(left, _PAUSE)
            wait([*known, *_own(wake)], pause)
        if self._lost == 0 and not self._settings.reconnect:
            self._port.close()  # who comes now is refused by the system

    def _let_come(self, out: Outflow) -> None:
        self._port.open()
        if self._port.listens:
            room = self._wanted - self._lost - len(self._readers)
            while len(self._arriving) < room:
                found = self._port.accept()
                if found is None:
                    break
                self._arriving.append(found)
        elif not self._arriving and not self._backoff.left:
            try:
                self._arriving.append(self._port.dial())
            except ConnectionFailed as error:
                log.info("%s", error)
                self._backoff.failed()
        for connection in list(self._arriving):
            self._arrive(connection, out)

    def _arrive(self, connection: Connection, out: Outflow) -> None:
        try:
            connection.advance()
        except BlockingIOError:
            try:
                self._port.check_age(connection)
            except StreamTimeout as error:
                self._turn_away(connection, error)
            return
        except StreamError as error:
            self._turn_away(connection, error)
            return
        self._arriving.remove(connection)
        self._backoff.reset()
        self._readers.append(_Reader(connection, out.begin()))

    def _turn_away(self, connection: Connection, error: StreamError) -> None:
        self._arriving.remove(connection)
        connection.close()
        self._backoff.failed()
        if not self._port.listens and isinstance(error, NotAuthorized):
            raise error
        # Whoever comes uninvited takes no place; who is not there yet may come up.
        log.info("%s", error)

    def _drop_those_gone(self) -> None:
        for reader in list(self._readers):
            if _is_gone(reader.connection):
                self._lose(reader)

    def _lose(self, reader: _Reader) -> None:
        """A reader has what it wanted, or is gone: which, nobody can tell."""
        self._readers.remove(reader)
        reader.connection.close()
        if self.is_finished or not self._settings.reconnect:
            self._lost += 1
        log.info("%s: a reader is gone", reader.connection.name)

    # --- sending ------------------------------------------------------------------

    def _flush(self, wake: Wake | None) -> None:
        """Send all that is pending, to each as fast as it takes it."""
        waited = 0.0
        while True:
            busy = [reader for reader in list(self._readers) if not self._sent(reader)]
            if not busy:
                return
            self._check(wake)
            if waited > self._settings.stall:
                millis = round(self._settings.stall * 1000)
                name = busy[0].connection.name
                msg = (
                    f"{name}: a reader has taken nothing whole for {millis} ms "
                    "(stall.timeout.millis)"
                )
                raise StreamTimeout(msg)
            started = time.monotonic()
            wanted = [(r.connection.fileno(), WRITABLE) for r in busy]
            wait([*wanted, *_own(wake)], self._settings.stall)
            waited += time.monotonic() - started

    def _sent(self, reader: _Reader) -> bool:
        try:
            return reader.flush()
        except StreamError:
            raise
        except OSError:
            _is_gone(reader.connection)  # which may say why
            self._lose(reader)
            return True

    @contextmanager
    def _mine(self, wake: Wake | None) -> Iterator[None]:
        """Have the lane alone; who waits for it can be woken, too."""
        while not self._lock.acquire(timeout=_PAUSE):
            self._check(wake)
        try:
            yield
        finally:
            self._lock.release()

    def _check(self, wake: Wake | None) -> None:
        if self._closed or (wake is not None and wake.is_set):
            msg = "the writer was closed"
            raise ClosedError(msg)


def _is_gone(connection: Connection) -> bool:
    """Whether the peer has closed, however; errors of ours are more than that."""
    try:
        return connection.peer_is_gone()
    except StreamError:
        raise
    except OSError:
        return True


def _own(wake: Wake | None) -> list[tuple[int, int]]:
    return [] if wake is None else [(wake.fileno(), 1)]


def _names(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _behind(pieces: list[memoryview], count: int) -> list[memoryview]:
    """What is left behind the first bytes."""
    for index, piece in enumerate(pieces):
        if count < len(piece):
            return [piece[count:], *pieces[index + 1 :]]
        count -= len(piece)
    return []
