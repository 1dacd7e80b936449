"""One partition as it is written: every batch to each reader of one address."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from streamfactory.backends.socket.arrivals import Arrivals, Attention
from streamfactory.backends.socket.flushing import PERIOD, Flusher
from streamfactory.backends.socket.headers import END
from streamfactory.backends.socket.outflow import Outflow, behind
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

    import pyarrow as pa

    from streamfactory.backends.socket.connections import Connection, Port
    from streamfactory.backends.socket.options import Settings
    from streamfactory.spi.waking import Wake

log = logging.getLogger(__name__)

_PAUSE: Final = 0.02
_MOST_AT_ONCE: Final = 64
"""TLS handshakes, unless more readers are wanted; the system queues the others."""


class _Reader:
    """One connection to a reader."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pending: list[memoryview] = []
        self.half_sent = False
        """Whether part of a message has gone."""

    def advance(self) -> None:
        """Finish connecting and the handshake: see `Connection.advance`."""
        self.connection.advance()

    def flush(self) -> bool:
        """Send what there is room for; whether that is all."""
        while self.pending:
            try:
                count = self.connection.send(self.pending)
            except BlockingIOError:
                return False
            self.half_sent = True
            self.pending = behind(self.pending, count)
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
        self._arrivals = Arrivals(port, settings, _Reader)
        self._attention = Attention()
        self._readers: list[_Reader] = []
        self._backoff = Backoff(settings)
        self._out: Outflow | None = None
        self._flusher = Flusher(self._lock, self._flush_held)
        self._looked_at = 0
        self._failure: Exception | None = None
        """Of what was sent while nobody waited for it."""
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
        """Take rows for every reader; blocks while there is no room.

        They go to the system at once, or together with those that come right after.

        Raises:
            ClosedError: misuse; woken.
            StreamTimeout: transient; readers did not come, or one stands still.
            StreamError: As `Connection.advance`.
        """
        self._acquire(wake)
        try:
            out = self._begin(rows.schema, wake)
            if self._lost >= self._wanted:
                return
            if out.take(rows):
                self._flusher.watch()
            else:
                self._send_held(wake)
            out.rest()
        finally:
            self._lock.release()

    def flush(self, wake: Wake | None) -> None:
        """Hand all rows to the system.

        Raises:
            StreamError: As `send`.
        """
        with self._mine(wake):
            self._check(wake)
            self._send_held(wake)

    def finish(self, schema: pa.Schema) -> None:
        """Send the marker of the end; twice is fine.

        Raises:
            StreamError: As `send`.
        """
        with self._mine(None):
            if self.is_finished:
                return
            self._begin(schema, None)
            self._send_held(None)
            for reader in self._readers:
                reader.pending = [*reader.pending, memoryview(END)]
            self._flush(None)
            self.is_finished = True
            # One that refuses at the last moment keeps no other from its end.
            with ExitStack() as last:
                last.callback(self._port.close)
                for reader in self._readers:
                    last.callback(reader.connection.end_sending)

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
            for arrival in self._arrivals.drain():
                arrival.connection.break_off(torn=False)
            self._readers = []
            self._out, self._lost, self._failure = None, 0, None

    def close(self) -> None:
        """Close; where the stream has not been finished, readers learn of a failure."""
        self._closed = True  # which ends the waiting of whoever has the lane
        self._flusher.close()
        if not self.is_finished:
            self.break_off()
        with self._lock:
            for reader in self._readers:
                reader.connection.close()
            self._readers = []
            self._port.close()

    # --- who is there -------------------------------------------------------------

    def _begin(self, schema: pa.Schema, wake: Wake | None) -> Outflow:
        """Have all readers, each with the schema on its way."""
        self._check(wake)
        if self.is_finished:
            msg = "the stream has been finished"
            raise MisuseError(msg)
        out = self._out
        if out is None:
            out = self._out = Outflow(schema.remove_metadata(), self._compression)
        elif not schema.equals(out.schema):
            msg = f"the stream has begun with {_names(out.schema)}, not with "
            raise SchemaMismatch(msg + _names(schema))
        if self._lost + len(self._readers) < self._wanted:
            self._gather(out, wake)
        return out

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
            has_slots = len(self._arrivals) < self._slots
            listening = self._port.descriptors if has_slots else []
            known = [*listening, *self._arrivals.descriptors]
            pause = left if known else min(left, _PAUSE)
            self._arrivals.notice(wait([*known, *_own(wake)], pause))
        for late in self._arrivals.drain():
            log.info("%s: a reader too many is refused", late.connection.name)
            late.connection.break_off(torn=False)
        if self._lost == 0 and not self._settings.reconnect:
            self._port.close()  # who comes now is refused by the system

    @property
    def _slots(self) -> int:
        """How many connections may be on their way at once."""
        free = self._wanted - self._lost - len(self._readers)
        # Without a handshake a connection is a reader at once, and needs no slot.
        return max(_MOST_AT_ONCE, free) if self._settings.tls else free

    def _let_come(self, out: Outflow) -> None:
        self._port.open()
        if self._port.listens:
            self._arrivals.accept(self._slots)
        elif not self._arrivals and not self._backoff.left:
            try:
                self._arrivals.dial()
            except ConnectionFailed as error:
                log.info("%s", error)
                self._backoff.failed()
        for reader, failure in self._arrivals.advance(self._attention.tick()):
            self._arrive(reader, failure, out)

    def _arrive(self, reader: _Reader, error: Exception | None, out: Outflow) -> None:
        if error is not None:
            self._turn_away(reader.connection, error)
        elif len(self._readers) + self._lost >= self._wanted:
            log.info("%s: a reader too many is refused", reader.connection.name)
            reader.connection.break_off(torn=False)
        else:
            self._backoff.reset()
            reader.pending = out.begin()
            self._readers.append(reader)

    def _turn_away(self, connection: Connection, error: Exception) -> None:
        connection.close()
        self._backoff.failed()
        if not isinstance(error, StreamError):
            raise error
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

    def _send_held(self, wake: Wake | None) -> None:
        self._encode_held()
        self._flush(wake)

    def _encode_held(self) -> None:
        """Make bytes of what is held, and have them pending."""
        if self._out is not None and self._out.is_holding:
            pieces = self._out.encode()
            for reader in self._readers:
                reader.pending = [*reader.pending, *pieces]

    def _flush_held(self) -> float:
        """Send what waits for more that does not come; seconds until the next look.

        The flusher calls it, and has the lane. What there is no room for stays pending.
        """
        out, before = self._out, self._looked_at
        if out is None or self._failure is not None:
            return 0.0
        self._looked_at = out.taken
        if out.taken != before:
            return PERIOD  # somebody writes, and will send
        try:
            out.give_up()
            self._encode_held()
            sent = [self._sent(reader) for reader in list(self._readers)]
        except Exception as error:  # noqa: BLE001 - the next who writes is told
            self._failure = error
            return 0.0
        return 0.0 if all(sent) else _PAUSE

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
        self._acquire(wake)
        try:
            yield
        finally:
            self._lock.release()

    def _acquire(self, wake: Wake | None) -> None:
        while not self._lock.acquire(timeout=_PAUSE):
            self._check(wake)

    def _check(self, wake: Wake | None) -> None:
        if self._closed or (wake is not None and wake.is_set):
            msg = "the writer was closed"
            raise ClosedError(msg)
        if self._failure is not None:
            raise self._failure


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
