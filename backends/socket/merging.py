"""One partition as it is read: the writers of one address, merged.

A writer takes a place when it has connected (and proved who it is). Its silence is no
end, and its end ends nobody else: the partition ends when every place has ended.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.backends.socket.framing import EndedEarly, Inflow
from streamfactory.backends.socket.waiting import READABLE, Backoff, wait
from streamfactory.spi import (
    ConnectionFailed,
    End,
    Failed,
    Finished,
    StreamError,
    StreamTimeout,
    TransientError,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.backends.socket.connections import Connection, Port
    from streamfactory.backends.socket.headers import Limits
    from streamfactory.backends.socket.options import Settings
    from streamfactory.backends.socket.schemas import SchemaHolder
    from streamfactory.backends.socket.waiting import Wake

log = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 64
"""Connections of one partition, unless more writers are wanted: each may have a message
half received, or stand still in a handshake. Others wait with the system."""
_SHORT: Final = 64 * 1024
"""Bytes up to which a batch may be an answer that somebody waits for."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of one writer, with their place in the partition."""

    rows: pa.RecordBatch
    first: int
    size: int


class _Writer:
    """One connection, with what has come over it."""

    def __init__(self, connection: Connection, limits: Limits) -> None:
        self.connection = connection
        self.inflow = Inflow(limits)
        self.may_have_more = True
        self.waited = 0.0
        """Seconds that were waited for the rest of a message."""


class Lane:
    """The writers of one partition. Thread-safe; waiting holds no lock.

    Args:
        port: Where they are.
        settings: Timers.
        limits: How much is taken from them.
        places: How many writers make the stream; None for any number.
        holder: Of the schema, shared by all partitions.
    """

    def __init__(
        self,
        port: Port,
        settings: Settings,
        limits: Limits,
        places: int | None,
        holder: SchemaHolder,
    ) -> None:
        self._port = port
        self._settings = settings
        self._limits = limits
        self._places = places
        self._holder = holder
        self._lock = threading.Lock()
        self._arriving: list[Connection] = []
        self._writers: deque[_Writer] = deque()
        self._came = 0
        self._missing: list[tuple[float, StreamError]] = []
        """Torn connections that are waited for: until when, and why they tore."""
        self._failure: StreamError | None = None
        self._backoff = Backoff(settings)
        self._dial_until: float | None = None
        self._begin_anew = False
        self._last_size = 0
        self._settled = False
        """Whether nobody else can come."""
        self.incarnation: str | None = None
        self.next = 0
        """Offset of the next row to be handed out."""

    @property
    def end(self) -> End | None:
        """How the partition ended; None while it has not.

        Raises:
            StreamError: What a peer sent broke a rule: it is no end of anybody's.
        """
        if self._writers or self._arriving or self._missing or not self._came:
            return None
        if self._places is not None and self._came < self._places:
            return None
        if self._failure is None:
            return Finished()
        if isinstance(self._failure, TransientError):
            return Failed(self._failure.what)
        raise self._failure

    @property
    def has_ended(self) -> bool:
        """Whether nothing will come any more."""
        try:
            return self.end is not None
        except StreamError:
            return True

    def take(
        self, incarnation: str | None, most: int, timeout: float, wake: Wake
    ) -> Taken | None:
        """Rows of the next writer that has some; None where there are none in time.

        Returns at once, without rows, when the incarnation is not the one given, and
        when the partition has ended.

        Raises:
            StreamError: As `Connection.advance`, where this side connects.
        """
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:
                self._gather()
                if self.incarnation != incarnation or self.has_ended:
                    return None
                taken = self._take(most)
                if taken is not None or self.has_ended:
                    return taken
            left = deadline - time.monotonic()
            if not self._wait(left, wake) and (left <= 0 or wake.is_set):
                return None

    def look(self, seconds: float) -> None:
        """Let writers come, and their schemas; takes no rows."""
        with self._lock:
            self._gather()
            for writer in list(self._writers):
                if writer.inflow.schema is None:
                    self._receive(writer, 0)
        if self._holder.schema is None:
            self._wait(seconds, None)

    def close(self) -> None:
        """Close everything: to writers, this reader has finished."""
        with self._lock:
            for connection in self._arriving:
                connection.close()
            for writer in self._writers:
                writer.connection.close()
            self._arriving.clear()
            self._writers.clear()
            self._port.close()

    # --- who is there -------------------------------------------------------------

    def _gather(self) -> None:
        if self._settled:
            return
        self._forget_missing()
        if not self._is_full:
            self._port.open()
            if self._port.listens:
                self._accept()
            else:
                self._dial()
        for connection in list(self._arriving):
            self._arrive(connection)
        if self._is_full and not self._settings.reconnect and not self._arriving:
            self._port.close()  # who comes now is refused by the system
            self._settled = True

    @property
    def _is_full(self) -> bool:
        """Whether every place is taken, by who is there or by who has ended."""
        if self._places is None:
            return False
        return self._came - len(self._missing) >= self._places

    def _accept(self) -> None:
        most = max(_MOST_AT_ONCE, self._places or 0)
        while len(self._writers) + len(self._arriving) < most:
            connection = self._port.accept()
            if connection is None:
                return
            self._arriving.append(connection)

    def _dial(self) -> None:
        if self._arriving or self._backoff.left:
            return
        now = time.monotonic()
        if self._dial_until is None:
            self._dial_until = now + self._settings.timeout
        try:
            self._arriving.append(self._port.dial())
        except ConnectionFailed as error:
            self._dialled_in_vain(error)

    def _dialled_in_vain(self, error: StreamError) -> None:
        """The other side may come up later: for a while, that is no failure."""
        self._backoff.failed()
        waited_for = bool(self._missing)
        over = self._dial_until is not None and time.monotonic() > self._dial_until
        if over and not waited_for:
            self._dial_until = None
            raise error

    def _arrive(self, connection: Connection) -> None:
        """Let a connection go on; where it is there, it takes a place."""
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
        if self._is_full:
            log.warning("%s: a writer too many is refused", connection.name)
            connection.break_off(torn=False)
            return
        self._take_place(connection)

    def _turn_away(self, connection: Connection, error: StreamError) -> None:
        self._arriving.remove(connection)
        connection.break_off(torn=False)
        if self._port.listens:
            # Whoever comes uninvited takes no place, and stops nobody.
            log.warning("refused: %s", error)
        elif isinstance(error, TransientError):
            self._dialled_in_vain(error)
        else:
            raise error

    def _take_place(self, connection: Connection) -> None:
        if self._missing:
            self._missing.pop(0)
            self._begin_anew = True
        else:
            self._came += 1
        if self.incarnation is None or self._begin_anew:
            self.incarnation, self.next = uuid.uuid4().hex, 0
            self._begin_anew = False
        self._backoff.reset()
        self._dial_until = None
        self._writers.append(_Writer(connection, self._limits))

    def _forget_missing(self) -> None:
        now = time.monotonic()
        late = [found for found in self._missing if found[0] <= now]
        for found in late:
            self._missing.remove(found)
            self._fail(found[1])

    # --- what they send -----------------------------------------------------------

    def _take(self, most: int) -> Taken | None:
        for _ in range(len(self._writers)):
            writer = self._writers[0]
            self._writers.rotate(-1)
            if not writer.may_have_more:
                continue
            found = self._receive(writer, most)
            if found is not None:
                rows, size = found
                first, self.next = self.next, self.next + rows.num_rows
                self._last_size = size
                return Taken(rows, first, size)
        return None

    def _receive(self, writer: _Writer, most: int) -> tuple[pa.RecordBatch, int] | None:
        """Rows of one writer; None where it has none yet, or has ended."""
        inflow, name = writer.inflow, writer.connection.name
        try:
            if inflow.schema is None:
                self._holder.meet(inflow.receive_schema(writer.connection.receive))
                if not most:
                    return None
            found = inflow.receive_some(writer.connection.receive, most)
        except BlockingIOError:
            writer.may_have_more = False
            return None
        except EndedEarly:
            msg = f"{name}: the connection ended without the marker of an end"
            self._lose(writer, ConnectionFailed(msg))
        except StreamError as error:
            self._lose(writer, error)
        except OSError as error:
            msg = f"{name}: the connection is torn: {error.strerror or error}"
            self._lose(writer, ConnectionFailed(msg))
        else:
            writer.waited = 0.0
            writer.may_have_more = writer.connection.is_tls or not inflow.is_dry
            if found is None:
                self._writers.remove(writer)
                writer.connection.close()
            return found
        return None

    def _lose(self, writer: _Writer, error: StreamError) -> None:
        """A writer broke off, or was broken off for what it sent."""
        self._writers.remove(writer)
        writer.connection.break_off(torn=True)
        if self._settings.reconnect and isinstance(error, TransientError):
            log.warning("%s; waiting for it to come again", error.what)
            until = time.monotonic() + self._settings.reconnect
            self._missing.append((until, error))
            self._backoff.failed()
        else:
            self._fail(error)

    def _fail(self, error: StreamError) -> None:
        log.warning("%s", error.what)
        # What broke a rule is told rather than what only broke off.
        if self._failure is None or isinstance(self._failure, TransientError):
            self._failure = error

    def _wait(self, seconds: float, wake: Wake | None) -> bool:
        """Wait for anybody; whether somebody is there."""
        with self._lock:
            listening = self._port.descriptors
            arriving = [(c.fileno(), c.waits_for) for c in self._arriving]
            by_number = {w.connection.fileno(): w for w in self._writers}
            known = [(n, w.connection.waits_for) for n, w in by_number.items()]
            if not (self._port.listens or arriving or known):
                seconds = min(seconds, self._backoff.left)
        own = [] if wake is None else [(wake.fileno(), READABLE)]
        started = time.monotonic()
        watching = self._last_size <= _SHORT
        ready = wait([*listening, *arriving, *known, *own], seconds, watching=watching)
        waited = time.monotonic() - started
        with self._lock:
            for number, writer in by_number.items():
                if number in ready:
                    writer.may_have_more = True
                self._count_stall(writer, waited)
        return bool(ready - {number for number, _ in own})

    def _count_stall(self, writer: _Writer, waited: float) -> None:
        """Give up on a message that does not become whole, however it drips."""
        if not writer.inflow.is_torn or writer not in self._writers:
            writer.waited = 0.0
            return
        writer.waited += waited
        if writer.waited > self._settings.stall:
            millis = round(self._settings.stall * 1000)
            msg = (
                f"{writer.connection.name}: a message is not whole after {millis} ms "
                "of waiting (stall.timeout.millis)"
            )
            self._lose(writer, StreamTimeout(msg))
