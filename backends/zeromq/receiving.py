"""Reading of one partition: messages of its senders, in order, with their offsets.

Duplicates are dropped and gaps are recorded as losses; with dealer-router, missing
messages are requested again.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import zmq

from streamfactory.backends.zeromq.answering import SenderReplies
from streamfactory.backends.zeromq.bodies import BatchReader, bytes_of
from streamfactory.backends.zeromq.joining import Backlog
from streamfactory.backends.zeromq.numbering import (
    MergedNumbers,
    OwnNumbers,
    Placed,
)
from streamfactory.backends.zeromq.options import (
    DEALER_ROUTER,
    DURABLE_WAY,
    PUB_SUB,
    PUSH_PULL,
)
from streamfactory.backends.zeromq.plain import PlainMessages
from streamfactory.backends.zeromq.protocol import SIZE, Kind, read_header
from streamfactory.backends.zeromq.transport import MonitoredSocket
from streamfactory.live.messages import ENOUGH, Limits
from streamfactory.live.reading import PartitionReader, Taken, already_read
from streamfactory.spi import (
    ClosedError,
    Failed,
    Finished,
    Loss,
    StreamError,
)
from streamfactory.spi.waking import Wake

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.backends.zeromq.endpoints import Endpoint
    from streamfactory.backends.zeromq.numbering import Sender
    from streamfactory.backends.zeromq.protocol import Header
    from streamfactory.backends.zeromq.transport import SocketContext
    from streamfactory.live.schemas import SharedSchema
    from streamfactory.spi import End, Partition

log = logging.getLogger(__name__)

_KINDS: Final = {PUB_SUB: zmq.SUB, PUSH_PULL: zmq.PULL, DEALER_ROUTER: zmq.ROUTER}
_LONGEST_POLL: Final = 0.25
"""Maximum seconds of one poll, after which timeouts are checked."""
_MOST_MESSAGES: Final = 4096
"""Messages received ahead."""
_QUIET: Final = 0.05
"""Seconds without a message of the last sender, after which its successor is read:
ZeroMQ reads the queues of several peers in turn."""


class ReceivingReader(PartitionReader):
    """Reads the senders of one partition. Thread-safe; one thread at a time waits.

    Args:
        partition: Partition in losses and errors.
        place: The socket context, shared by all partitions.
        endpoints: The endpoints of the partition.
        holder: The schema, shared by all partitions.
    """

    def __init__(
        self,
        partition: Partition,
        place: SocketContext,
        endpoints: tuple[Endpoint, ...],
        holder: SharedSchema,
    ) -> None:
        config, settings = place.config, place.settings
        self.partition = partition
        self.lock = threading.Lock()
        self._place = place
        self._endpoints = endpoints
        self._config = config
        self._settings = settings
        self._limits = Limits.of(config)
        self._holder = holder
        self._reader = BatchReader(self._limits, holder)
        self._senders: int | None = config["senders"]
        is_merged = settings.is_plain or self._senders != 1
        self._numbers = MergedNumbers() if is_merged else OwnNumbers()
        self._replies = SenderReplies(self._send, is_merged=is_merged)
        self._socket: MonitoredSocket | None = None
        self._bell: Wake | None = None
        self._backlog = Backlog(self._reader)
        self._plain: PlainMessages | None = None
        if settings.is_plain:
            assert isinstance(self._numbers, MergedNumbers)
            self._plain = PlainMessages(
                partition,
                self._numbers,
                self._reader,
                self._backlog,
                is_raw=settings.is_raw,
            )
        self._parked: list[list[bytes | zmq.Frame]] = []
        self._parked_at = 0.0
        self._greeting: tuple[bytes, Header] | None = None
        """HELLO of a sender that waits until earlier rows were returned."""
        self._ends: dict[bytes, End] = {}
        self._failure: StreamError | None = None
        self._closed = False

    @property
    def incarnation(self) -> str | None:
        return self._numbers.incarnation

    @property
    def next(self) -> int:
        return self._backlog.next

    @property
    def earliest(self) -> int:
        """First offset that can be read, with returned rows that a sender keeps."""
        kept = self._replies.earliest(self._numbers)
        handed = self._backlog.next
        return handed if kept is None else min(kept, handed)

    @property
    def end(self) -> End | None:
        wanted = self._senders
        if self._backlog or wanted is None or len(self._ends) < wanted:
            return None
        ends = [*self._ends.values()]
        return next((end for end in ends if isinstance(end, Failed)), ends[0])

    def take(
        self, reported: str | None, start: int, most: int, timeout: float, wake: Wake
    ) -> Taken | None:
        """See `PartitionReader.take`. After an invalid message later calls fail too."""
        deadline = time.monotonic() + timeout
        with self.lock:
            place, polled = self._opened(), False
            if self.incarnation == reported:
                self._align(start)
            while True:
                self._replies.flush()
                self._receive(place)
                if self.incarnation != reported:
                    return None
                taken = self._join(most)
                if taken is not None or self.end is not None:
                    return taken
                if self._failure is not None:
                    raise self._failure
                left = deadline - time.monotonic()
                if wake.is_set or (left <= 0 and polled):
                    return None
                polled = left <= 0
                pause = _QUIET if self._parked else _LONGEST_POLL
                place.wait(zmq.POLLIN, min(max(0.0, left), pause), wake, self._bell)
                if self._bell is not None:
                    self._bell.clear()

    def look(self, seconds: float) -> None:
        if not self.lock.acquire(timeout=seconds):
            return  # a consumer holds the lock and will receive the schema
        try:
            place = self._opened()
            self._receive(place)
            if self._failure is not None:
                raise self._failure
            if self._holder.schema is None:
                place.wait(zmq.POLLIN, seconds)
        finally:
            self.lock.release()

    def acknowledge(self, incarnation: str | None, offset: int) -> None:
        """Report to senders that rows before an offset are stored. Any thread."""
        self._replies.store(incarnation, offset, self.incarnation)
        if self._bell is not None:
            self._bell.set()
        # A consumer that holds the lock was woken by `_bell` and sends it.
        if self.lock.acquire(blocking=False):
            try:
                if self._socket is not None:
                    self._replies.flush()
            finally:
                self.lock.release()

    def close(self) -> None:
        """Close the socket, after sending the last replies."""
        with self.lock:
            if self._closed:
                return
            self._closed = True
            if self._socket is not None:
                self._replies.flush()
                linger = self._settings.pattern == DEALER_ROUTER
                self._socket.close(1.0 if linger else 0.0)
            if self._bell is not None:
                self._bell.close()

    # --- the socket ---------------------------------------------------------------

    def _opened(self) -> MonitoredSocket:
        if self._closed:
            msg = "the stream is closed"
            raise ClosedError(msg)
        if self._socket is None:
            options: dict[int, int | bytes] = {
                zmq.MAXMSGSIZE: self._config["max.message.bytes"] + SIZE
            }
            pattern = self._settings.pattern
            if pattern == DEALER_ROUTER:
                options[zmq.ROUTER_HANDOVER] = 1
            kind = _KINDS[pattern]
            made = MonitoredSocket(self._place, kind, self._endpoints, options)
            if pattern == PUB_SUB:
                for prefix in self._config["prefixes"]:
                    made.socket.setsockopt(zmq.SUBSCRIBE, prefix)
            self._socket, self._bell = made, Wake()
        return self._socket

    def _send(self, identity: bytes, header: Header) -> None:
        """Reply to a sender. If it is gone, it asks again after it reconnects."""
        assert self._socket is not None
        try:
            frames = [identity, header.pack()]
            self._socket.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            log.debug("%s: a reply was dropped", self._socket.name)

    def _receive(self, socket: MonitoredSocket) -> None:
        """Receive available messages, up to the limits of the backlog."""
        socket.check()
        if self._greeting is not None and not self._backlog:
            greeting, self._greeting = self._greeting, None
            self._greet(*greeting)
        copy = self._settings.is_plain and self._settings.is_raw
        for _ in range(_MOST_MESSAGES - len(self._backlog)):
            waiting = 0 if self._plain is None else self._plain.size
            if self._backlog.size + waiting >= ENOUGH or self._failure is not None:
                break
            try:
                frames: Any = socket.socket.recv_multipart(zmq.NOBLOCK, copy=copy)
            except zmq.Again:
                break
            self._try(frames)
        if self._plain is not None:
            self._plain.pack()
        if self._parked and time.monotonic() - self._parked_at > _QUIET:
            self._unpark()

    def _try(self, frames: list[bytes | zmq.Frame]) -> None:
        try:
            self._process(frames)
        except StreamError as error:
            self._failure = error

    # --- messages -----------------------------------------------------------------

    def _process(self, frames: list[bytes | zmq.Frame]) -> None:
        if self._plain is not None:
            self._plain.receive(frames)
            return
        identity = b""
        if self._settings.pattern == DEALER_ROUTER:
            identity = bytes_of(frames[0])
        behind = frames[int(self._settings.pattern != PUSH_PULL) :]
        if not behind:
            msg = "a message has no sequence frame"
            raise self._limits.corrupt(msg)
        text = bytes_of(behind[0])
        header = read_header(text)
        if self._settings.pattern == DEALER_ROUTER:
            if header.kind is Kind.HELLO:
                if len(text) > SIZE:
                    self._reader.use_schema(text[SIZE:])
                self._greet(identity, header)
                return
            sender = self._replies.owner(identity, header, self._numbers)
        else:
            sender = self._sender(header, frames)
        if sender is not None:
            self._place_message(sender, header, text, behind[1:])

    def _sender(self, header: Header, frames: list[bytes | zmq.Frame]) -> Sender | None:
        """The sender of a message; None if it is read later or ignored."""
        numbers = self._numbers
        sender = numbers.find(header.stream)
        if sender is not None:
            if self._parked:
                self._parked_at = time.monotonic()
            return sender
        if numbers.is_past(header.stream):
            if header.kind is Kind.ROWS:
                what = (
                    f"sender {header.stream.hex()} was replaced by another one before"
                )
                self._lose(header.first, header.next, what)
            return None
        if not numbers.is_new(header.stream) or numbers.incarnation is None:
            return self._begin(header.stream, header.after)
        # The queue of the previous sender may not be empty yet.
        if not self._parked:
            self._parked_at = time.monotonic()
        self._parked.append(frames)
        if len(self._parked) > _MOST_MESSAGES:
            self._unpark()
        return None

    def _unpark(self) -> None:
        """Start the incarnation of the first parked message."""
        parked, self._parked = self._parked, []
        if self._backlog:
            # Return earlier rows first.
            self._parked = parked
            return
        header = read_header(
            bytes_of(parked[0][int(self._settings.pattern == PUB_SUB)])
        )
        self._begin(header.stream, 0)
        for frames in parked:
            self._try(frames)

    def _begin(self, stream: bytes, start: int) -> Sender:
        sender = self._numbers.begin(stream, start)
        if isinstance(self._numbers, OwnNumbers):
            self._backlog.clear(self._numbers.next, has_begun=False)
            self._ends.clear()
        return sender

    def _greet(self, identity: bytes, header: Header) -> None:
        """Handle a HELLO: a new instance, or a repetition."""
        sender = self._numbers.find(header.stream)
        if sender is None:
            if self._backlog and isinstance(self._numbers, OwnNumbers):
                # Return earlier rows first.
                self._greeting = (identity, header)
                return
            self._begin(header.stream, header.after)
            sender = self._numbers.find(header.stream)
            assert sender is not None
        self._replies.introduce(sender, identity, header)

    def _place_message(
        self,
        sender: Sender,
        header: Header,
        text: bytes,
        bodies: list[bytes | zmq.Frame],
    ) -> None:
        if self._settings.pattern == DEALER_ROUTER and header.after > sender.next:
            self._replies.request(sender)
            return
        rows, size = None, 0
        if len(text) > SIZE:
            self._reader.use_schema(text[SIZE:])
        if header.kind is Kind.ROWS:
            rows, size = self._read(header, bodies)
        placed = self._numbers.place(sender, header)
        if placed is None:
            return
        if placed.lost is not None:
            self._lose(*placed.lost)
        if header.kind is Kind.END:
            self._ends[sender.stream] = Finished()
        elif header.kind is Kind.BROKEN:
            self._ends[sender.stream] = Failed(f"the sender {sender.name} aborted")
        self._replies.note(sender, placed.next)
        if rows is None or not placed.skip:
            self._backlog.add(rows, placed, size)
            return
        self._reader.validated([rows])
        at = placed.first
        for part, bytes_ in self._reader.parts(rows.slice(placed.skip), size):
            behind = at + part.num_rows
            where = Placed(at, behind, 0, None)
            self._backlog.add(part, where, bytes_, is_checked=True)
            at = behind

    def _read(
        self, header: Header, bodies: list[bytes | zmq.Frame]
    ) -> tuple[pa.RecordBatch, int]:
        rows, size = self._reader.read(self._reader.joined(bodies))
        if rows.num_rows != header.next - header.first:
            count = header.next - header.first
            msg = f"a batch of {rows.num_rows} rows has sequence numbers for {count}"
            raise self._limits.corrupt(msg)
        return rows, size

    # --- returning rows -----------------------------------------------------------

    def _align(self, start: int) -> None:
        """Position at a start offset, if possible.

        Raises:
            OffsetOutOfRange: data_loss.
        """
        if self._config.get("acknowledge") == "fetched":
            self._replies.store(self.incarnation, start, self.incarnation)
        if start >= self._backlog.next:
            self._replies.welcome(self._numbers, start)
            return
        if not self._backlog.has_begun:
            # For a new reader, rows sent before are a loss only if it has a start.
            if start:
                what = "sent while no reader was connected"
                lost = Loss(self.partition, start, self._backlog.next, what)
                # Reported before later rows, which may be queued already.
                self._backlog.begin_after(lost, start)
            self._replies.welcome(self._numbers, self._backlog.next)
            return
        if not self._replies.rewind(self._numbers, start):
            why, earliest = ", and no sender keeps its rows", self._backlog.next
            raise already_read(self.partition, start, earliest, why, DURABLE_WAY)
        self._backlog.clear(start, has_begun=True)
        self._ends.clear()

    def _join(self, most: int) -> Taken | None:
        try:
            return self._backlog.take(most)
        except StreamError as error:
            self._failure = error
            raise

    def _lose(self, first: int, behind: int, cause: str) -> None:
        self._backlog.lose(Loss(self.partition, first, behind, cause))
