"""Writing of one partition: every batch goes to each reader of one address."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from streamfactory.arrowipc import END
from streamfactory.backends.socket.encoding import StreamEncoder, drop_prefix
from streamfactory.backends.socket.flushing import PERIOD, Flusher
from streamfactory.backends.socket.pending import ActiveTimer, PendingConnections
from streamfactory.backends.socket.waiting import WRITABLE, NextTry, wait
from streamfactory.live.schemas import check_rows
from streamfactory.live.writing import PartitionWriter, check_woken, stream_finished
from streamfactory.spi import (
    ClosedError,
    ConnectionFailed,
    NotAuthorized,
    StreamError,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from streamfactory.backends.socket.connections import Connection
    from streamfactory.backends.socket.options import Settings
    from streamfactory.backends.socket.ports import Port
    from streamfactory.spi import Outgoing
    from streamfactory.spi.waking import Wake

log = logging.getLogger(__name__)

_PAUSE: Final = 0.02
_MOST_AT_ONCE: Final = 64
"""Concurrent TLS handshakes, unless more readers are expected. The rest is queued."""


class _Reader:
    """One connection to a reader."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pending: list[memoryview] = []
        self.half_sent = False
        """Whether a message is partly sent."""

    def advance(self) -> None:
        """Finish connecting and the handshake: see `Connection.advance`."""
        self.connection.advance()

    def flush(self) -> bool:
        """Send as much as possible; whether all was sent."""
        while self.pending:
            try:
                count = self.connection.send(self.pending)
            except BlockingIOError:
                return False
            self.half_sent = True
            self.pending = drop_prefix(self.pending, count)
        self.half_sent = False
        return True


class SocketWriter(PartitionWriter):
    """Sends to the readers of one partition. Thread-safe; one writer at a time.

    Args:
        port: Their address.
        settings: Timeouts.
        readers: Number of readers, each of which gets every row.
        compression: Compression of the bodies.
    """

    def __init__(
        self, port: Port, settings: Settings, readers: int, compression: str
    ) -> None:
        self._port = port
        self._settings = settings
        self._wanted = readers
        self._compression = compression
        self._lock = threading.Lock()
        self._pending = PendingConnections(port, settings, _Reader)
        self._timer = ActiveTimer()
        self._readers: list[_Reader] = []
        self._next_try = NextTry(settings)
        self._out: StreamEncoder | None = None
        self._flusher = Flusher(self._lock, self._flush_held)
        self._looked_at = 0
        self._failure: Exception | None = None
        """Error of the flusher thread, raised at the next call."""
        self._lost = 0
        """Readers that have disconnected and will not return."""
        self._left_early = 0
        """Readers that have disconnected before they confirmed the end."""
        self._opened = self._closed = False

    @property
    def has_no_reader(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return False  # another thread writes, and will detect it
        try:
            self._drop_closed()
            return self._lost >= self._wanted
        finally:
            self._lock.release()

    def open(self) -> None:
        if not self._opened:
            with self._lock:
                self._port.open()
                self._opened = True

    def send(self, outgoing: Outgoing, wake: Wake) -> None:
        """Send rows to every reader; blocks while the buffers are full.

        They are passed to the system at once, or together with rows that follow
        closely.
        """
        rows = outgoing.rows
        self._acquire(wake)
        try:
            out = self._begin(rows.schema, wake)
            if self._lost >= self._wanted:
                return
            if out.add(rows):
                self._flusher.watch()
            else:
                self._send_held(wake)
            out.end_write()
        finally:
            self._lock.release()

    def flush(self, wake: Wake) -> None:
        """Pass all rows to the system."""
        with self._locked(wake):
            self._check(wake)
            self._send_held(wake)

    def finish(self, schema: pa.Schema, deadline: float) -> None:
        """Send the end-of-stream marker. May be called twice."""
        with self._locked(None):
            if self.is_finished:
                return
            self._begin(schema, None)
            self._send_held(None)
            for reader in self._readers:
                reader.pending = [*reader.pending, memoryview(END)]
            self._flush(None)
            self.is_finished = True
            # An error of one reader must not keep others from their end.
            with ExitStack() as last:
                last.callback(self._port.close)
                for reader in self._readers:
                    last.callback(reader.connection.end_sending)

    def confirm(self, deadline: float) -> int:
        """Wait until every reader has received the end and closed.

        A reader confirms by closing after its system has acknowledged every byte: with
        unread bytes, or before the last ones, its system resets the connection.
        """
        with self._locked(None):
            while self._readers:
                closed = self._drop_confirmed()
                if not self._readers:
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    name = self._readers[0].connection.name
                    msg = f"{name}: a reader has not closed after the end of the stream"
                    raise StreamTimeout(
                        msg, remedy="check whether the reader still runs"
                    )
                if closed:
                    time.sleep(min(left, _PAUSE))  # its acknowledgements arrive late
                else:
                    wait([(r.connection.fileno(), 1) for r in self._readers], left)
            return self._left_early

    def break_off(self) -> None:
        with self._lock:
            for reader in self._readers:
                reader.connection.break_off(torn=reader.half_sent)
            for pending in self._pending.drain():
                pending.connection.break_off(torn=False)
            self._readers = []
            self._out, self._lost, self._failure = None, 0, None
            self._left_early = 0

    def close(self) -> None:
        """Close. If the stream is not finished, the connections are aborted."""
        self._closed = True  # ends waits of other threads
        self._flusher.close()
        if not self.is_finished:
            self.break_off()
        with self._lock:
            for reader in self._readers:
                reader.connection.close()
            self._readers = []
            self._port.close()

    # --- connecting ---------------------------------------------------------------

    def _begin(self, schema: pa.Schema, wake: Wake | None) -> StreamEncoder:
        """Wait for all readers; each is sent the schema first."""
        self._check(wake)
        if self.is_finished:
            raise stream_finished()
        out = self._out
        if out is None:
            out = self._out = StreamEncoder(schema.remove_metadata(), self._compression)
        else:
            check_rows(schema, out.schema)
        if self._lost + len(self._readers) < self._wanted:
            self._gather(out, wake)
        return out

    def _gather(self, out: StreamEncoder, wake: Wake | None) -> None:
        deadline = time.monotonic() + self._settings.timeout
        while len(self._readers) + self._lost < self._wanted:
            self._accept_readers(out)
            self._check(wake)
            left = deadline - time.monotonic()
            count = f"{len(self._readers)} of {self._wanted} readers"
            if len(self._readers) + self._lost >= self._wanted:
                break
            if left <= 0:
                msg = f"{self._port.address}: {count} connected before the timeout"
                remedy = "start the readers, or increase connection.timeout.millis"
                raise StreamTimeout(msg, remedy=remedy)
            has_slots = len(self._pending) < self._slots
            listening = self._port.descriptors if has_slots else []
            known = [*listening, *self._pending.descriptors]
            pause = left if known else min(left, _PAUSE)
            self._pending.notice(wait([*known, *_own(wake)], pause))
        for late in self._pending.drain():
            log.info(
                "%s: a reader is rejected: all readers are connected",
                late.connection.name,
            )
            late.connection.break_off(torn=False)
        if self._lost == 0 and not self._settings.reconnect:
            self._port.close()  # the system refuses later connections

    @property
    def _slots(self) -> int:
        """Maximum number of pending connections."""
        free = self._wanted - self._lost - len(self._readers)
        # Without TLS a connection is a reader at once: no pending slots needed.
        return max(_MOST_AT_ONCE, free) if self._settings.tls else free

    def _accept_readers(self, out: StreamEncoder) -> None:
        self._port.open()
        if self._port.listens:
            self._pending.accept(self._slots)
        elif not self._pending and not self._next_try.left:
            try:
                self._pending.dial()
            except ConnectionFailed as error:
                log.info("%s", error)
                self._next_try.failed()
        for reader, failure in self._pending.advance(self._timer.tick()):
            self._arrive(reader, failure, out)

    def _arrive(
        self, reader: _Reader, error: Exception | None, out: StreamEncoder
    ) -> None:
        if error is not None:
            self._reject(reader.connection, error)
        elif len(self._readers) + self._lost >= self._wanted:
            log.info(
                "%s: a reader is rejected: all readers are connected",
                reader.connection.name,
            )
            reader.connection.break_off(torn=False)
        else:
            self._next_try.reset()
            reader.pending = out.begin()
            self._readers.append(reader)

    def _reject(self, connection: Connection, error: Exception) -> None:
        connection.close()
        self._next_try.failed()
        if not isinstance(error, StreamError):
            raise error
        if not self._port.listens and isinstance(error, NotAuthorized):
            raise error
        # An unwanted peer takes no place; a peer that is not up yet may start later.
        log.info("%s", error)

    def _drop_closed(self) -> None:
        for reader in list(self._readers):
            if _has_closed(reader.connection):
                self._lose(reader)

    def _drop_confirmed(self) -> bool:
        """Drop readers that closed; whether one of the others has closed its side."""
        waiting = False
        for reader in list(self._readers):
            try:
                if not reader.connection.peer_has_closed():
                    continue
                if reader.connection.unacknowledged():
                    waiting = True
                    continue
            except StreamError:
                raise
            except OSError:
                self._lose(reader)
                continue
            self._readers.remove(reader)
            reader.connection.close()
        return waiting

    def _lose(self, reader: _Reader) -> None:
        """Remove a reader that closed. Whether it has read everything is unknown."""
        self._readers.remove(reader)
        reader.connection.close()
        self._left_early += 1
        if self.is_finished or not self._settings.reconnect:
            self._lost += 1
        log.info("%s: a reader disconnected", reader.connection.name)

    # --- sending ------------------------------------------------------------------

    def _send_held(self, wake: Wake | None) -> None:
        self._encode_held()
        self._flush(wake)

    def _encode_held(self) -> None:
        """Encode the held batches and queue them for each reader."""
        if self._out is not None and self._out.is_holding:
            pieces = self._out.encode()
            for reader in self._readers:
                reader.pending = [*reader.pending, *pieces]

    def _flush_held(self) -> float:
        """Send held batches that none followed; returns seconds until the next check.

        Called by the flusher, with the lock held. Data that does not fit the socket
        stays pending.
        """
        out, before = self._out, self._looked_at
        if out is None or self._failure is not None:
            return 0.0
        self._looked_at = out.taken
        if out.taken != before:
            return PERIOD  # a thread writes, and will send
        try:
            out.stop_waiting()
            self._encode_held()
            sent = [self._sent(reader) for reader in list(self._readers)]
        except Exception as error:  # noqa: BLE001 - raised at the next write
            self._failure = error
            return 0.0
        return 0.0 if all(sent) else _PAUSE

    def _flush(self, wake: Wake | None) -> None:
        """Send all pending data, to each reader at its own speed."""
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
                    f"{name}: a reader has not accepted a whole message for {millis} "
                    "ms "
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
            _has_closed(reader.connection)  # may raise with the reason
            self._lose(reader)
            return True

    @contextmanager
    def _locked(self, wake: Wake | None) -> Iterator[None]:
        """Hold the lock; waiting for it can be ended by ``wake``."""
        self._acquire(wake)
        try:
            yield
        finally:
            self._lock.release()

    def _acquire(self, wake: Wake | None) -> None:
        while not self._lock.acquire(timeout=_PAUSE):
            self._check(wake)

    def _check(self, wake: Wake | None) -> None:
        if self._closed:
            msg = "the writer was closed"
            raise ClosedError(msg)
        check_woken(wake)
        if self._failure is not None:
            raise self._failure


def _has_closed(connection: Connection) -> bool:
    """Whether the peer has closed or the connection was lost."""
    try:
        return connection.peer_has_closed()
    except StreamError:
        raise
    except OSError:
        return True


def _own(wake: Wake | None) -> list[tuple[int, int]]:
    return [] if wake is None else [(wake.fileno(), 1)]
