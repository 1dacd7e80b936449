"""The session of one partition: numbers messages, and keeps them until acknowledged."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions
from streamfactory import spi

from streamfactory_mqtt.client import CLOSING, Client, session_properties
from streamfactory_mqtt.positions import Kept, Positions

_RETAINED: Final = {"always": 0, "new": 1, "never": 2}
_OVERHEAD: Final = 500
"""Bytes that the objects of a message take, roughly."""
_LOOK: Final = 1.0
"""Seconds between two looks whether the broker is there."""
_FULL: Final = "more messages were received than buffer.bytes allows"


@dataclass(frozen=True, slots=True)
class Entry:
    """A message with its offset."""

    offset: int
    mid: int
    topic: str
    payload: bytes
    properties: Properties | None
    retained: bool

    @property
    def size(self) -> int:
        """Bytes that it takes, roughly."""
        return _size(self.payload, self.topic, self.properties)


@dataclass(frozen=True, slots=True)
class Taken:
    """Messages at or after an offset."""

    entries: Sequence[Entry]
    incarnation: str
    earliest: int
    losses: Sequence[spi.Loss]


class Session(Client):
    """The messages of one topic filter. Thread-safe.

    Messages that the broker delivers again have the flag DUP: they are those from the
    last acknowledged one on, in the same order, and get the same offsets. One without
    the flag was never delivered; it gets the next offset, and where messages are
    acknowledged as they arrive, one that none had.

    Args:
        config: The stream's configuration.
        partition: Its partition.
        positions: Where its position is read; opened.
    """

    def __init__(
        self, config: spi.StreamConfig, partition: spi.Partition, positions: Positions
    ) -> None:
        self._filter = subscription(config, partition)
        self._name = session_name(self._filter)
        self._stored = config["acknowledge"] == "stored"
        super().__init__(
            config, f"{config['client.id']}-{self._name}", manual=self._stored
        )
        self.paho.on_message = self._on_message
        self._partition = partition
        self._place = f"{positions.prefix}/{self._name}"
        self._qos = int(config["qos"])
        self._retained = _RETAINED[config["retained"]]
        self._window: int = config["receive.maximum"]
        self._most: int = config["buffer.bytes"]
        self._lock = threading.Condition()
        [kept] = positions.fetch([self._name])
        self._is_kept = kept.unused > 0
        self._incarnation = kept.incarnation
        self._acknowledged = self._next = kept.acknowledged
        self._limit = kept.unused
        """No message at or after this offset was handed out before."""
        self._unused = 0 if self._stored else kept.unused
        """Where the first message goes that was never delivered; 0 once it did. There
        is no gap before it where messages are acknowledged later: delivered again,
        they are numbered without one, and some would get offsets that are stored."""
        self._entries: list[Entry] = []
        self._bytes = 0
        self._waiting: set[int] = set()
        """Identifiers of the entries, where they are acknowledged later."""
        self._released: dict[int, int] = {}
        """Identifiers of acknowledged messages, which a broker may not know yet, with a
        hash of each: the last ones, as many as it sends without one. It uses
        identifiers again, some brokers at once."""
        self._losses: list[spi.Loss] = []
        self._is_full = False
        """Whether messages are refused until the broker delivers them again."""
        self._is_resuming = False
        self._wrong: spi.StreamError | None = None
        self._is_finished = False

    def start(self) -> None:
        """Connect; returns when it receives.

        Raises:
            StreamError: See `Client.open`.
        """
        self.open(clean=False, properties=session_properties(self._config))
        try:
            self._settle()
        except BaseException:
            self.close()
            raise

    def connected(self, session_present: bool) -> bool:
        with self._lock:
            self._is_full = self._is_resuming = False
            if not session_present and self._is_kept:
                # What was not acknowledged is lost with the session.
                self._incarnation, self._is_kept = uuid.uuid4().hex, False
                self._acknowledged = self._next = self._unused = self._limit = 0
                self._entries, self._bytes = [], 0
                self._released.clear()
                self._waiting.clear()
                self._losses.clear()
                self._lock.notify_all()
        options = SubscribeOptions(self._qos, retainHandling=self._retained)
        self.paho.subscribe(self._filter, options=options)
        return True

    def state(self) -> tuple[str, int]:
        """Its incarnation, and the first offset that can be read."""
        self._settle()
        with self._lock:
            return self._incarnation, self._acknowledged

    def take(
        self, start: int, limits: spi.FetchLimits, woken: Callable[[], bool]
    ) -> Taken:
        """Messages at or after an offset; waits for one.

        Raises:
            StreamError: The session was taken over, has a message that cannot be
                delivered again, or waits for a broker that is away.
        """
        deadline = time.monotonic() + limits.timeout
        self._settle()
        with self._lock:
            if not self._stored:
                self._drop(start)
            while True:
                if self._wrong or self.error:
                    raise self._wrong or self.error or AssertionError
                first = bisect_left(self._entries, start, key=lambda e: e.offset)
                left = deadline - time.monotonic()
                if first < len(self._entries) or not self._is_kept:
                    break
                if self._losses or woken():
                    break
                self.check_presence()
                if left <= 0:
                    break
                self._lock.wait(min(left, _LOOK))
            entries: list[Entry] = []
            size = 0
            for entry in self._entries[first : first + limits.max_rows]:
                size += entry.size
                if entries and size > limits.max_bytes:
                    break
                entries.append(entry)
            losses, self._losses = self._losses, []
            return Taken(entries, self._incarnation, self._acknowledged, losses)

    def notify(self) -> None:
        """Let all that wait look again."""
        with self._lock:
            self._lock.notify_all()

    def acknowledge(self, offset: int, incarnation: str | None) -> None:
        """Acknowledge the messages before an offset.

        Raises:
            StreamError: The broker cannot be reached; nothing was acknowledged.
        """
        self._settle()
        with self._lock:
            limit = max(self._limit, self._next)
            is_new = self._acknowledged < offset <= limit
            if not self._stored or not is_new or incarnation != self._incarnation:
                return
            kept = Kept(self._incarnation, offset, max(offset + self._window, limit))
        # First the position: a message may be delivered twice, but never skipped.
        self._keep(kept)
        with self._lock:
            if kept.incarnation != self._incarnation:
                return
            self._acknowledged = max(self._acknowledged, offset)
            entries, count = self._entries, 0
            while count < len(entries) and entries[count].offset < offset:
                self._release(entries[count])
                self._bytes -= entries[count].size
                count += 1
            del entries[:count]
            resumes = self._is_full and not self._is_resuming
            resumes = resumes and self._bytes <= self._most // 2
            self._is_resuming = self._is_resuming or resumes
        if resumes:
            self.resume()

    def finish(self) -> None:
        """Keep which offsets were used, and disconnect; within two seconds.

        Where the broker cannot be reached they stay unknown: the next new message then
        gets an offset beyond all that may have been used.
        """
        with self._lock:
            # What comes from now on in this mode is delivered again.
            self._is_finished = self._stored
            unused = max(self._next, self._limit)
            first = self._acknowledged if self._stored else unused
            kept = Kept(self._incarnation, first, unused)
        if self._is_kept and self.is_connected:
            with suppress(spi.StreamError):
                self.publish(self._place, kept.to_json(), retain=True, timeout=CLOSING)
        self.close()

    def _keep(self, kept: Kept) -> None:
        """Keep the position; returns when the broker has it.

        Raises:
            StreamError: It is not sure that the broker has it.
        """
        self.wait()
        self.publish(self._place, kept.to_json(), retain=True)

    def _settle(self) -> None:
        """Keep a new incarnation in the broker, before its messages are handed out."""
        with self._lock:
            if self._is_kept:
                return
            kept = Kept(self._incarnation, self._acknowledged, self._window)
        self._keep(kept)
        with self._lock:
            self._is_kept = self._incarnation == kept.incarnation

    def _drop(self, offset: int) -> None:
        """Drop messages that were read, and acknowledged when they were received."""
        self._acknowledged = max(self._acknowledged, min(offset, self._next))
        count = bisect_left(self._entries, offset, key=lambda e: e.offset)
        self._waiting.clear()  # they were acknowledged when they were received
        self._bytes -= sum(entry.size for entry in self._entries[:count])
        del self._entries[:count]

    def _on_message(self, _: Any, __: Any, message: Any) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            return  # no topic of the protocol: a broker that sends it is broken
        with self._lock:
            if self._is_finished or (self._stored and not self._is_wanted(message)):
                return
            if self._is_full or (self._stored and not self._has_room(message)):
                # It stays unacknowledged, with all that follow it.
                self._is_full = True
                return
            if not message.dup:
                self._next, self._unused = max(self._next, self._unused), 0
            offset, self._next = self._next, self._next + 1
            if offset < self._acknowledged:
                self._release(message)  # stored before a restart
                return
            if self._has_room(message):
                entry = Entry(
                    offset,
                    message.mid,
                    topic,
                    message.payload,
                    message.properties,
                    message.retain,
                )
                self._entries.append(entry)
                self._bytes += entry.size
                self._waiting.add(message.mid)
            else:
                self._lose(offset)
            self._lock.notify_all()

    def _has_room(self, message: Any) -> bool:
        """Whether a message may be held; one is in any case, where none waits."""
        size = _size(message.payload, message.topic, message.properties)
        return not self._entries or self._bytes + size <= self._most

    def _lose(self, offset: int) -> None:
        """Record a loss, as one with those right before it."""
        first = offset
        if self._losses and self._losses[-1].end == offset:
            first = self._losses.pop().start
        self._losses.append(spi.Loss(self._partition, first, offset + 1, _FULL))

    def _is_wanted(self, message: Any) -> bool:
        """Whether a message is new in this process, and can be delivered again."""
        if message.qos == 0:
            msg = f"a message to {message.topic!r} has QoS 0: it is not delivered again"
            remedy = "publish with QoS 1, or set acknowledge=received"
            self._wrong = spi.PermanentError(
                msg, partition=self._partition, remedy=remedy
            )
            self._lock.notify_all()
            return False
        released = self._released.pop(message.mid, None)
        if not message.dup:
            return True
        if released == _hash(message):
            self._release(message)  # the acknowledgement was lost
            return False
        return message.mid not in self._waiting

    def _release(self, message: Any) -> None:
        """Acknowledge a message, or the entry of one."""
        self._released.pop(message.mid, None)
        self._released[message.mid] = _hash(message)
        if len(self._released) > self._window:
            del self._released[next(iter(self._released))]
        self._waiting.discard(message.mid)
        self.paho.ack(message.mid, 1)


def _hash(message: Any) -> int:
    return hash((message.topic, message.payload))


def _size(payload: bytes, topic: str, properties: Properties | None) -> int:
    pairs = user_properties(properties)
    return (
        len(payload)
        + len(topic)
        + sum(len(name) + len(value) + 100 for name, value in pairs)
        + _OVERHEAD
    )


def subscription(config: spi.StreamConfig, partition: spi.Partition) -> str:
    """What the session of a partition subscribes to."""
    topic_filter: str = config["filters"][partition.id]
    if not config.given("shared.group"):
        return topic_filter
    return f"$share/{config['shared.group']}/{topic_filter}"


def session_name(topic_filter: str) -> str:
    """What follows ``client.id`` in the client id of a session."""
    return hashlib.sha256(topic_filter.encode()).hexdigest()[:8]


def user_properties(properties: Properties | None) -> list[tuple[str, bytes]]:
    """The user properties of a message."""
    pairs = getattr(properties, "UserProperty", None) or ()
    return [(name, value.encode()) for name, value in pairs]


def publish_properties(headers: Sequence[Any]) -> Properties:
    """User properties of a message that is published.

    Raises:
        UnicodeDecodeError: A value is not text.
    """
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = [
        (header["key"], (header["value"] or b"").decode()) for header in headers
    ]
    return properties
