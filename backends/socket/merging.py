"""Reading of one partition: the merged rows of the writers of one address.

A writer that connects occupies a place once its schema was received; one that this side
connects to, once the connection is established. Silence is not an end, and the end of
one writer does not end others: the partition ends when the writers of all places have
ended.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Final

from streamfactory.backends.socket.framing import EndedEarly, MoreToCome, StreamDecoder
from streamfactory.backends.socket.options import DURABLE_WAY
from streamfactory.backends.socket.pending import ActiveTimer, PendingConnections
from streamfactory.backends.socket.waiting import READABLE, NextTry, wait
from streamfactory.live.reading import PartitionReader, Taken, already_read
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

    from streamfactory.backends.socket.connections import Connection
    from streamfactory.backends.socket.options import Settings
    from streamfactory.backends.socket.ports import Port
    from streamfactory.live.messages import Limits
    from streamfactory.live.schemas import SharedSchema
    from streamfactory.spi import Partition
    from streamfactory.spi.waking import Wake

log = logging.getLogger(__name__)

_MOST_AT_ONCE: Final = 64
"""Connections per partition, unless more writers are expected. Each may stall in a
handshake or in the middle of a message. The system queues further ones."""
_LONGEST_WITHOUT_POLL: Final = 0.05
"""Seconds after which all sockets are polled, even if some writers have rows."""
_SHORT: Final = 64 * 1024
"""Bytes up to which a batch may be a reply that another program waits for."""


class _NoWriter(Exception):
    """A peer closed its connection before it sent data."""


class _Writer:
    """One connection to a writer, with the decoder of its stream."""

    def __init__(self, connection: Connection, limits: Limits, *, accepted: bool):
        self.connection = connection
        self.inflow = StreamDecoder(limits)
        self.may_have_more = True
        self.waited = 0.0
        """Seconds spent waiting for the rest of a message."""
        self._accepted = accepted

    def advance(self) -> None:
        """Finish the handshake and, if accepted, receive the schema.

        Raises:
            BlockingIOError: More data of the peer is needed.
            _NoWriter: The peer closed instead of sending a schema.
            StreamError, OSError, EndedEarly: See `Connection` and `StreamDecoder`.
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


class SocketReader(PartitionReader):
    """Merges the writers of one partition. Thread-safe; waiting holds no lock.

    Args:
        partition: The partition, for errors.
        port: Their address.
        settings: Timeouts.
        limits: Limits on their input.
        places: Number of writers of the stream; None for any number.
        holder: The schema, shared by all partitions.
    """

    incarnation: str | None = None
    next = 0

    def __init__(
        self,
        partition: Partition,
        port: Port,
        settings: Settings,
        limits: Limits,
        places: int | None,
        holder: SharedSchema,
    ) -> None:
        self._partition = partition
        self._port = port
        self._settings = settings
        self._limits = limits
        self._places = places
        self._holder = holder
        self._lock = threading.Lock()
        self._pending = PendingConnections(port, settings, self._make_writer)
        self._timer = ActiveTimer()
        self._polled_at = time.monotonic()
        self._writers: deque[_Writer] = deque()
        self._came = 0
        self._missing: list[tuple[float, StreamError]] = []
        """Lost connections expected to return: deadline, and cause of the loss."""
        self._failure: StreamError | None = None
        self._next_try = NextTry(settings)
        self._dial_until: float | None = None
        self._new_incarnation = False
        self._last_size = 0
        self._settled = False
        """Whether no further writer can connect."""

    @property
    def end(self) -> End | None:
        if self._writers or self._pending or self._missing or not self._came:
            return None
        if self._places is not None and self._came < self._places:
            return None
        if self._failure is None:
            return Finished()
        if isinstance(self._failure, TransientError):
            return Failed(self._failure.what)
        raise self._failure

    def take(
        self, reported: str | None, start: int, most: int, timeout: float, wake: Wake
    ) -> Taken | None:
        if self.incarnation == reported and start < self.next:
            why = " and cannot be read again"
            raise already_read(self._partition, start, self.next, why, DURABLE_WAY)
        deadline = time.monotonic() + timeout
        if time.monotonic() - self._polled_at > _LONGEST_WITHOUT_POLL:
            self._wait(0.0, wake)
        polled_late = False
        watches = timeout > 0
        while True:
            with self._lock:
                self._gather()
                if self.incarnation != reported or self.has_ended:
                    return None
                taken = self._take(most, watches=watches)
                watches = False
                if taken is not None or self.has_ended:
                    return taken
            # Check each time: incomplete messages may trickle in without a pause.
            left = deadline - time.monotonic()
            if wake.is_set or (left <= 0 and polled_late):
                return None
            polled_late = left <= 0
            self._wait(left, wake)

    def look(self, seconds: float) -> None:
        with self._lock:
            self._gather()
            for writer in list(self._writers):
                if writer.inflow.schema is None:
                    self._receive(writer, 0)
        if self._holder.schema is None:
            self._wait(seconds, None)

    def close(self) -> None:
        """Close all connections. Writers see that this reader has finished."""
        with self._lock:
            self._pending.close()
            for writer in self._writers:
                writer.connection.close()
            self._writers.clear()
            self._port.close()

    def retire(self) -> None:
        with self._lock:
            if self._settled or self.end is None:
                return
            for writer in self._pending.drain():
                writer.connection.break_off(torn=False)
            self._port.close()
            self._settled = True

    # --- connecting ---------------------------------------------------------------

    def _make_writer(self, connection: Connection) -> _Writer:
        return _Writer(connection, self._limits, accepted=self._port.listens)

    def _gather(self) -> None:
        seconds = self._timer.tick()
        self._give_up_stalled(seconds)
        if self._settled:
            return
        self._forget_missing()
        if not self._is_full:
            self._port.open()
            if self._port.listens:
                self._pending.accept(self._slots)
            else:
                self._dial()
        for writer, error in self._pending.advance(seconds):
            self._arrive(writer, error)
        if self._is_full:
            self._reject_pending()

    @property
    def _is_full(self) -> bool:
        """Whether every place is taken, by a connected or an ended writer."""
        if self._places is None:
            return False
        return self._came - len(self._missing) >= self._places

    @property
    def _slots(self) -> int:
        """Maximum number of pending connections."""
        return max(_MOST_AT_ONCE, self._places or 0) - len(self._writers)

    def _dial(self) -> None:
        if self._pending or self._next_try.left:
            return
        now = time.monotonic()
        if self._dial_until is None:
            self._dial_until = now + self._settings.timeout
        try:
            self._pending.dial()
        except ConnectionFailed as error:
            self._connect_failed(error)

    def _connect_failed(self, error: StreamError) -> None:
        """Retry until the connection timeout: the peer may start later."""
        self._next_try.failed()
        waited_for = bool(self._missing)
        over = self._dial_until is not None and time.monotonic() > self._dial_until
        if over and not waited_for:
            self._dial_until = None
            raise error

    def _arrive(self, writer: _Writer, error: Exception | None) -> None:
        """Assign a place to a validated writer; reject other peers."""
        connection = writer.connection
        if isinstance(error, _NoWriter):
            log.info("%s: a connection was closed before its schema", connection.name)
            connection.close()
        elif isinstance(error, StreamTimeout) or not connection.is_open:
            assert isinstance(error, StreamError)
            self._reject(connection, error)
        elif self._is_full:
            log.warning(
                "%s: a writer is rejected: all places are taken", connection.name
            )
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

    def _reject(self, connection: Connection, error: StreamError) -> None:
        connection.break_off(torn=False)
        if self._port.listens:
            # An unwanted peer must not occupy a place or fail the stream.
            log.warning("connection rejected: %s", error)
        elif isinstance(error, TransientError):
            self._connect_failed(error)
        else:
            raise error

    def _reject_pending(self) -> None:
        """Reject pending connections when every place is taken."""
        refused = self._pending.drain()
        if refused:
            what = "%s: %d connections are rejected: all places are taken"
            log.warning(what, self._port.address, len(refused))
        for writer in refused:
            writer.connection.break_off(torn=False)
        if not self._settings.reconnect:
            self._port.close()  # the system refuses later connections
            self._settled = True

    def _take_place(self, writer: _Writer) -> None:
        if self._missing:
            self._missing.pop(0)
            self._new_incarnation = True
        else:
            self._came += 1
        if self.incarnation is None or self._new_incarnation:
            self.incarnation, self.next = uuid.uuid4().hex, 0
            self._new_incarnation = False
        self._next_try.reset()
        self._dial_until = None
        self._writers.append(writer)

    def _forget_missing(self) -> None:
        now = time.monotonic()
        late = [found for found in self._missing if found[0] <= now]
        for found in late:
            self._missing.remove(found)
            self._fail(found[1])

    # --- receiving ----------------------------------------------------------------

    def _take(self, most: int, *, watches: bool) -> Taken | None:
        for _ in range(len(self._writers)):
            writer = self._writers[0]
            self._writers.rotate(-1)
            if not writer.may_have_more and not (watches and self._watch(writer)):
                continue
            found = self._receive(writer, most)
            if found is not None:
                rows, size = found
                first, self.next = self.next, self.next + rows.num_rows
                self._last_size = size
                return Taken(rows, first, self.next, size)
        return None

    def _receive(self, writer: _Writer, most: int) -> tuple[pa.RecordBatch, int] | None:
        """Rows of one writer; None if it has none yet or has ended."""
        inflow, connection = writer.inflow, writer.connection
        try:
            if inflow.schema is None:
                self._holder.meet(inflow.receive_schema(connection.receive))
                if not most:
                    return None
            wait = connection.wait_briefly if self._may_wait_for(writer) else None
            found = inflow.receive_some(connection.receive, most, wait)
        except BlockingIOError as error:
            writer.may_have_more = isinstance(error, MoreToCome)
            return None
        except (EndedEarly, StreamError, OSError) as error:
            self._lose(writer, _translated(connection, error))
        else:
            writer.waited = 0.0
            # After a long message more has often arrived: faster to try than to poll.
            is_long = found is not None and found[1] > _SHORT
            writer.may_have_more = connection.is_tls or is_long or not inflow.is_dry
            if found is None:
                self._writers.remove(writer)
                if connection.is_tls:
                    connection.await_close()
                connection.close()
            return found
        return None

    def _watch(self, writer: _Writer) -> bool:
        """Wait for a short reply of the only writer; whether bytes are available."""
        if self._last_size > _SHORT or not self._may_wait_for(writer):
            return False
        return writer.connection.watch()

    def _may_wait_for(self, writer: _Writer) -> bool:
        """Whether a short wait for the rest of a message delays no other connection.

        It costs a tenth of a wait for all sockets.
        """
        return not (
            writer.connection.is_tls or len(self._writers) > 1 or len(self._pending)
        )

    def _lose(self, writer: _Writer, error: StreamError) -> None:
        """Handle a writer that failed or sent invalid data."""
        self._writers.remove(writer)
        writer.connection.break_off(torn=True)
        if self._settings.reconnect and isinstance(error, TransientError):
            log.warning("%s; waiting for a new connection", error.what)
            until = time.monotonic() + self._settings.reconnect
            self._missing.append((until, error))
            self._next_try.failed()
        else:
            self._fail(error)

    def _fail(self, error: StreamError) -> None:
        log.warning("%s", error.what)
        # Invalid data is reported in preference to a lost connection.
        if self._failure is None or isinstance(self._failure, TransientError):
            self._failure = error

    def _wait(self, seconds: float, wake: Wake | None) -> None:
        """Wait until a socket is ready."""
        with self._lock:
            listens = not self._is_full and len(self._pending) < self._slots
            listening = self._port.descriptors if listens else []
            arriving = self._pending.descriptors
            by_number = {w.connection.fileno(): w for w in self._writers}
            known = [(n, w.connection.waits_for) for n, w in by_number.items()]
            if any(writer.may_have_more for writer in self._writers):
                seconds = 0.0
            elif not (self._port.listens or arriving or known):
                seconds = min(seconds, self._next_try.left)
        own = [] if wake is None else [(wake.fileno(), READABLE)]
        watching = self._last_size <= _SHORT
        ready = wait([*listening, *arriving, *known, *own], seconds, watching=watching)
        with self._lock:
            self._polled_at = time.monotonic()
            self._pending.notice(ready)
            for number, writer in by_number.items():
                if number in ready:
                    writer.may_have_more = True

    def _give_up_stalled(self, seconds: float) -> None:
        """Drop writers whose message stays incomplete for too long."""
        for writer in list(self._writers):
            if not writer.inflow.is_torn:
                writer.waited = 0.0
                continue
            writer.waited += seconds
            if writer.waited > self._settings.stall:
                millis = round(self._settings.stall * 1000)
                msg = (
                    f"{writer.connection.name}: a message is incomplete after {millis} "
                    "ms of waiting (stall.timeout.millis)"
                )
                self._lose(writer, StreamTimeout(msg))


def _translated(connection: Connection, error: Exception) -> StreamError:
    """Translate an error of a connection to a `StreamError`."""
    if isinstance(error, StreamError):
        return error
    if isinstance(error, EndedEarly):
        msg = (
            f"{connection.name}: the connection was closed without an end-of-stream "
            "marker"
        )
        return ConnectionFailed(msg)
    if isinstance(error, OSError):
        cause = error.strerror or error
        return ConnectionFailed(f"{connection.name}: the connection was lost: {cause}")
    raise error
