"""Live views: one reader for each query, and the newest messages that it has read.

A reader ends when nothing was asked of it for a while. Views of one query share it.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections import deque
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from streamfactory.engines.search.browsing import messages_of
from streamfactory.spi import StreamError, TransientError
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.cells import MOST_COLUMNS
from streamfactory.ui.masking import hidden_errors
from streamfactory.ui.message_values import message_document, shown_columns
from streamfactory.ui.messages import (
    MOST_MESSAGES,
    Query,
    masker_of,
    opened_query,
    row_filter,
)
from streamfactory.wiring.core.defects import InternalError
from streamfactory.wiring.core.shown import masked, plain_error
from streamfactory.wiring.reading.following import read_from

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Partition
    from streamfactory.wiring.config.definition import StreamDefinition

MOST_FEEDS: Final = 8
"""Readers at a time."""
_KEPT: Final = MOST_MESSAGES
"""Messages that a reader keeps."""
_UNASKED: Final = 20.0
"""Seconds without a request after which a reader ends."""
_TURN: Final = 0.5
_ASKED_AGAIN: Final = 1000
"""Milliseconds until a client asks for more messages of a live view."""


class Event(NamedTuple):
    """What a live view is sent."""

    id: str
    data: Any
    kind: str = ""
    """Empty for a message; ``skipped`` or ``failed``."""


@final
class Feeds:
    """The readers of all live views. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._feeds: dict[Query, _Feed] = {}
        self._closed = False

    def poll(self, query: Query, last: str, wait: float = 0.0) -> list[Event]:
        """What has arrived since an event; the first call begins to read.

        Args:
            query: What is read; from the latest message on.
            last: The id of the last event that the client has, or empty.
            wait: Seconds until an answer without events.

        Raises:
            TransientError: transient; there are too many live views.
            ConfigError: config; the folder of the catalogue cannot be listed.
        """
        definitions = tuple(catalogue().definitions(query.stream))
        with self._lock:
            former = self._feeds.get(query)
            if former is not None and former.definitions != definitions:
                former.stop.set()  # it may lack a mask that the file has now
            self._feeds = {key: one for key, one in self._feeds.items() if one.alive}
            feed = self._feeds.get(query)
            if feed is None:
                if self._closed or len(self._feeds) >= MOST_FEEDS:
                    msg = f"{MOST_FEEDS} live views are open, which is the limit"
                    raise TransientError(msg, remedy="close one, and wait 20 seconds")
                feed = self._feeds[query] = _Feed(query, definitions)
        return feed.wait(last, wait)

    def open(self) -> list[_Feed]:
        """The readers that were asked for lately."""
        with self._lock:
            return list(self._feeds.values())

    def stop(self, seconds: float = 10.0) -> None:
        """End all readers, and wait for them, up to a limit."""
        with self._lock:
            self._closed = True
            feeds = list(self._feeds.values())
        for feed in feeds:
            feed.stop.set()
        deadline = time.monotonic() + seconds
        for feed in feeds:
            feed.thread.join(max(0.0, deadline - time.monotonic()))


class _Feed:
    """One reader.

    Args:
        query: What it reads.
        definitions: The stream's, as the files had them when it began.
    """

    def __init__(self, query: Query, definitions: tuple[StreamDefinition, ...]) -> None:
        self._query = query
        self.definitions = definitions
        self._token = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._messages: deque[tuple[int, Any]] = deque(maxlen=_KEPT)
        self._count = 0
        self._error: dict[str, Any] | None = None
        self._asked = time.monotonic()
        self.stop = threading.Event()
        self.following = threading.Event()
        """Set when later messages will be read."""
        self.thread = threading.Thread(target=self._run, name="live view", daemon=True)
        self.thread.start()

    @property
    def alive(self) -> bool:
        """Whether it reads; one that failed is kept until it was not asked."""
        return time.monotonic() - self._asked < _UNASKED and not self.stop.is_set()

    def wait(self, last: str, seconds: float) -> list[Event]:
        """As `since`, when there are some events, or after a time."""
        deadline = time.monotonic() + seconds
        while True:
            found = list(self.since(last))
            left = deadline - time.monotonic()
            if found or left <= 0 or self.stop.is_set():
                return found
            with self._arrived:
                self._arrived.wait(min(left, _TURN))

    def since(self, last: str) -> Iterator[Event]:
        """The events after one of this reader; after another one, all there are."""
        token, _, text = last.partition("-")
        known = int(text) if token == self._token and _is_number(text) else 0
        if last and token != self._token:
            # Its reader has ended: no reader read between then and now.
            yield Event(self._id(0), None, "skipped")
        with self._lock:
            self._asked = time.monotonic()
            kept, count, error = list(self._messages), self._count, self._error
        fresh = [(at, one) for at, one in kept if at > known]
        skipped = count - known - len(fresh)
        if skipped > 0 and (known or count > len(kept)):
            yield Event(self._id(count - len(fresh)), skipped, "skipped")
        for at, one in fresh:
            yield Event(self._id(at), one)
        if error is not None:
            yield Event(self._id(count), error, "failed")

    def _id(self, at: int) -> str:
        return f"{self._token}-{at}"

    def _run(self) -> None:
        try:
            with hidden_errors(masked=self._query.masked), ExitStack() as stack:
                self._read(stack)
            self.stop.set()  # a request that comes now begins another reader
        except StreamError as error:
            self._error = plain_error(error)
        except Exception as error:  # noqa: BLE001 - shown in the view
            self._error = InternalError(type(error).__name__).to_dict()

    def _read(self, stack: ExitStack) -> None:
        query = self._query
        source = stack.enter_context(opened_query(query))
        masker, matches = masker_of(source, query), None
        if query.where:
            matches = stack.enter_context(row_filter(source, query, masker))
        names = shown_columns(source)[:MOST_COLUMNS]
        rotation = read_from(
            source,
            start="latest",
            default="latest",
            follow=True,
            mine=lambda one: _is_mine(query, one),
        )
        stack.callback(rotation.close)
        self.following.set()
        while self.alive:
            batch = rotation.next_batch(_TURN)
            if batch is None or not batch.num_rows:
                continue
            messages = messages_of(batch, matches)
            kept = messages[-_KEPT:]
            if masker is not None:
                kept = [masker.message(one) for one in kept]
            shown = [message_document(one, names) for one in kept]
            safe = masked(shown, source.config.mask)
            with self._lock:
                self._count += len(messages)
                first = self._count - len(safe) + 1
                self._messages.extend(enumerate(safe, first))
                self._arrived.notify_all()


def sent_events(found: list[Event]) -> str:
    """Events as they are sent, with the time after which a client asks again."""
    lines = [f"retry: {_ASKED_AGAIN}\n\n"]
    for one in found:
        event = f"event: {one.kind}\n" if one.kind else ""
        lines.append(f"{event}id: {one.id}\ndata: {json.dumps(one.data)}\n\n")
    return "".join(lines)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _is_mine(query: Query, partition: Partition) -> bool:
    return query.partition in ("", f"{partition.id}:{partition.topic}")
