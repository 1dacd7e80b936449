"""One partition as it is read: the writers of one address, merged.

A writer that connects takes a place when its schema has been received, one that this
side connects to when it is connected. Its silence afterwards is no end, and its end
ends nobody else: the partition ends when every place has ended.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.backends.socket.arrivals import Arrivals, Attention
from streamfactory.backends.socket.framing import EndedEarly, Inflow, MoreToCome
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
    from streamfactory.spi.soundness.senders import SharedSchema
    from streamfactory.spi.waking import Wake

log = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 64
"""Connections of one partition, unless more writers are wanted: each may have a message
half received, or stand still in a handshake. The system queues the others."""
_LONGEST_WITHOUT_POLL: Final = 0.05
"""Seconds for which rows of some writers keep this side from looking at the others."""
_SHORT: Final = 64 * 1024
"""Bytes up to which a batch may be an answer that somebody waits for."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows of one writer, with their place in the partition."""

    rows: pa.RecordBatch
    first: int
    size: int


class _NoWriter(Exception):
    """A peer closed its connection without having sent a byte."""


class _Writer:
    """One connection, with what has come over it."""

    def __init__(self, connection: Connection, limits: Limits, *, accepted: bool):
        self.connection = connection
        self.inflow = Inflow(limits)
        self.may_have_more = True
        self.waited = 0.0
        """Seconds that were waited for the rest of a message."""
        self._accepted = accepted

    def advance(self) -> None:
        """Finish the handshake and, of an accepted connection, receive the schema.

        Raises:
            BlockingIOError: The peer has to send more first.
            _NoWriter: It closed instead of sending a schema.
            StreamError, OSError, EndedEarly: See `Connection` and `Inflow`.
        """
        if not self.connection.is_open:
            self.connection.advance()
        if not self._accepted:
            return
        try:
            self.inflow.receive_schema(self.connection.receive)
        except BlockingIOError:
            raise
        except (EndedEarly, OSError) as error:
            if self.inflow.is_torn:
                raise
            raise _NoWriter from error


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
        holder: SharedSchema,
    ) -> None:
        self._port = port
        self._settings = settings
        self._limits = limits
        self._places = places
        self._holder = holder
        self._lock = threading.Lock()
        self._arrivals = Arrivals(port, settings, self._make_writer)
        self._attention = Attention()
        self._polled_at = time.monotonic()
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
        if self._writers or self._arrivals or self._missing or not self._came:
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
        if time.monotonic() - self._polled_at > _LONGEST_WITHOUT_POLL:
            self._wait(0.0, wake)
        polled_late = False
        while True:
            with self._lock:
                self._gather()
                if self.incarnation != incarnation or self.has_ended:
                    return None
                taken = self._take(most)
                if taken is not None or self.has_ended:
                    return taken
            # In every round: bytes that complete nothing may come without a pause.
            left = deadline - time.monotonic()
            if wake.is_set or (left <= 0 and polled_late):
                return None
            polled_late = left <= 0
            self._wait(left, wake)

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
            self._arrivals.close()
            for writer in self._writers:
                writer.connection.close()
            self._writers.clear()
            self._port.close()

    def retire(self) -> None:
        """Accept nobody any more: the end of the partition has been answered."""
        with self._lock:
            if self._settled or self.end is None:
                return
            for writer in self._arrivals.drain():
                writer.connection.break_off(torn=False)
            self._port.close()
            self._settled = True

    # --- who is there -------------------------------------------------------------

    def _make_writer(self, connection: Connection) -> _Writer:
        return _Writer(connection, self._limits, accepted=self._port.listens)

    def _gather(self) -> None:
        seconds = self._attention.tick()
        self._give_up_stalled(seconds)
        if self._settled:
            return
        self._forget_missing()
        if not self._is_full:
            self._port.open()
            if self._port.listens:
                self._arrivals.accept(self._slots)
            else:
                self._dial()
        for writer, error in self._arrivals.advance(seconds):
            self._arrive(writer, error)
        if self._is_full:
            self._refuse_others()

    @property
    def _is_full(self) -> bool:
        """Whether every place is taken, by who is there or by who has ended."""
        if self._places is None:
            return False
        return self._came - len(self._missing) >= self._places

    @property
    def _slots(self) -> int:
        """How many connections may be on their way at once."""
        return max(_MOST_AT_ONCE, self._places or 0) - len(self._writers)

    def _dial(self) -> None:
        if self._arrivals or self._backoff.left:
            return
        now = time.monotonic()
        if self._dial_until is None:
            self._dial_until = now + self._settings.timeout
        try:
            self._arrivals.dial()
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

    def _arrive(self, writer: _Writer, error: Exception | None) -> None:
        """Give a place to a writer; turn away what is none."""
        connection = writer.connection
        if isinstance(error, _NoWriter):
            log.info("%s: a connection was closed before its schema", connection.name)
            connection.close()
        elif isinstance(error, StreamTimeout) or not connection.is_open:
            assert isinstance(error, StreamError)
            self._turn_away(connection, error)
        elif self._is_full:
            log.warning("%s: a writer too many is refused", connection.name)
            connection.break_off(torn=False)
        else:
            self._take_place(writer)
            if error is None and writer.inflow.schema is not None:
                error = self._mismatch(writer.inflow.schema)
            if error is not None:
                self._lose(writer, _translated(connection, error))

    def _mismatch(self, schema: pa.Schema) -> StreamError | None:
        """Why a schema cannot be merged with those of other writers."""
        try:
            self._holder.meet(schema)
        except StreamError as error:
            return error
        return None

    def _turn_away(self, connection: Connection, error: StreamError) -> None:
        connection.break_off(torn=False)
        if self._port.listens:
            # Whoever comes uninvited takes no place, and stops nobody.
            log.warning("refused: %s", error)
        elif isinstance(error, TransientError):
            self._dialled_in_vain(error)
        else:
            raise error

    def _refuse_others(self) -> None:
        """Every place is taken: nobody else is accepted."""
        refused = self._arrivals.drain()
        if refused:
            what = "%s: every place is taken: %d connections are refused"
            log.warning(what, self._port.address, len(refused))
        for writer in refused:
            writer.connection.break_off(torn=False)
        if not self._settings.reconnect:
            self._port.close()  # who comes now is refused by the system
            self._settled = True

    def _take_place(self, writer: _Writer) -> None:
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
        self._writers.append(writer)

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
        inflow, connection = writer.inflow, writer.connection
        try:
            if inflow.schema is None:
                self._holder.meet(inflow.receive_schema(connection.receive))
                if not most:
                    return None
            found = inflow.receive_some(connection.receive, most)
        except BlockingIOError as error:
            writer.may_have_more = isinstance(error, MoreToCome)
            return None
        except (EndedEarly, StreamError, OSError) as error:
            self._lose(writer, _translated(connection, error))
        else:
            writer.waited = 0.0
            writer.may_have_more = connection.is_tls or not inflow.is_dry
            if found is None:
                self._writers.remove(writer)
                connection.close()
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

    def _wait(self, seconds: float, wake: Wake | None) -> None:
        """Wait until somebody has sent something, or wants to come."""
        with self._lock:
            listens = not self._is_full and len(self._arrivals) < self._slots
            listening = self._port.descriptors if listens else []
            arriving = self._arrivals.descriptors
            by_number = {w.connection.fileno(): w for w in self._writers}
            known = [(n, w.connection.waits_for) for n, w in by_number.items()]
            if any(writer.may_have_more for writer in self._writers):
                seconds = 0.0
            elif not (self._port.listens or arriving or known):
                seconds = min(seconds, self._backoff.left)
        own = [] if wake is None else [(wake.fileno(), READABLE)]
        watching = self._last_size <= _SHORT
        ready = wait([*listening, *arriving, *known, *own], seconds, watching=watching)
        with self._lock:
            self._polled_at = time.monotonic()
            self._arrivals.notice(ready)
            for number, writer in by_number.items():
                if number in ready:
                    writer.may_have_more = True

    def _give_up_stalled(self, seconds: float) -> None:
        """Give up on messages that do not become whole, however they drip."""
        for writer in list(self._writers):
            if not writer.inflow.is_torn:
                writer.waited = 0.0
                continue
            writer.waited += seconds
            if writer.waited > self._settings.stall:
                millis = round(self._settings.stall * 1000)
                msg = (
                    f"{writer.connection.name}: a message is not whole after {millis} "
                    "ms of waiting (stall.timeout.millis)"
                )
                self._lose(writer, StreamTimeout(msg))


def _translated(connection: Connection, error: Exception) -> StreamError:
    """The error of a stream whose connection failed, or sent what breaks a rule."""
    if isinstance(error, StreamError):
        return error
    if isinstance(error, EndedEarly):
        msg = f"{connection.name}: the connection ended without the marker of an end"
        return ConnectionFailed(msg)
    if isinstance(error, OSError):
        cause = error.strerror or error
        return ConnectionFailed(f"{connection.name}: the connection is torn: {cause}")
    raise error
