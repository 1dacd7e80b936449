"""Calls of an admin client, with a deadline."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from concurrent.futures import wait
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from streamfactory.backends.kafka.bootstrap import refusals
from streamfactory.backends.kafka.clients import (
    Watch,
    brokers,
    client_settings,
    keep_inherited,
    of_this_process,
    refused,
)
from streamfactory.backends.kafka.errors import failure, is_passing
from streamfactory.spi import (
    ClosedError,
    ConnectionFailed,
    PartialMetadata,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from concurrent.futures import Future

    from streamfactory.spi import StreamConfig, StreamError

log = logging.getLogger("streamfactory.kafka")

T = TypeVar("T")
"""Result of a call."""

_SLICE: Final = 0.05
_PAUSE: Final = 0.1
_REFRESH: Final = 0.5
"""Seconds between metadata refreshes, and of one, while a broker is unreachable."""
_SILENT: Final = 1.0
"""Seconds of a first call after which is said what it waits for."""


class _Refused(Exception):
    """No bootstrap address accepts a connection, and none ever has."""


class Admin:
    """An admin client whose calls have a deadline. Thread-safe; survives a fork.

    Args:
        config: The stream's configuration.
        client_id: Client id in the brokers' logs.
    """

    def __init__(self, config: StreamConfig, client_id: str) -> None:
        self.config = config
        self.where = brokers(config)
        self._client_id = client_id
        self._timeout = config["connection.timeout.millis"] / 1000
        self._lock = threading.Lock()
        self._made_by = os.getpid()
        self._client: AdminClient | None = None
        self._watch = Watch()
        self._closed = False

    def call(
        self,
        doing: str,
        ask: Callable[[AdminClient], Mapping[Any, Future[T]]],
        is_known: Callable[[T], bool] = lambda _: True,
    ) -> dict[Any, T]:
        """Send requests and wait for all results; transient failures are retried.

        Args:
            doing: The operation, for the error message.
            ask: Sends the requests.
            is_known: False for a result without an answer, which is retried, too: the
                client returns some while a leader moves.

        Raises:
            ConnectionFailed: transient; at once where every bootstrap address refuses
                connections, and none has ever been reached.
            StreamError: Translated; names brokers and topic.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            client, begun = self._open(), time.monotonic()
            try:
                found = self._answers(doing, client, ask(client), deadline)
                unknown = [key for key, one in found.items() if not is_known(one)]
                if unknown:
                    msg = f"{doing}: the brokers have not answered for {unknown[0]}"
                    raise PartialMetadata(msg)
                return found  # noqa: TRY300
            except _Refused as refusal:
                msg = f"{doing}: {refusal}"
                remedy = "check broker.list, and that a broker runs there"
                raise ConnectionFailed(msg, remedy=remedy) from None
            except TransientError as error:
                now = time.monotonic()
                # Do not retry expensive requests faster than the broker can serve them.
                pause = max(_PAUSE, now - begun)
                if now + _PAUSE > deadline:
                    if self._watch.down_since is None:
                        raise
                    raise self._unreachable(doing) from error
                time.sleep(min(pause, deadline - now))

    def close(self) -> None:
        """Drop the client. May be called twice."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None and not of_this_process(self._made_by):
            keep_inherited(client)

    def _open(self) -> AdminClient:
        with self._lock:
            if self._closed:
                msg = "the metadata provider of Kafka is closed"
                raise ClosedError(msg)
            if self._client is not None and not of_this_process(self._made_by):
                keep_inherited(self._client)
                self._client = None
            if self._client is None:
                self._made_by, self._watch = os.getpid(), Watch()
                self._client = self._make()
            return self._client

    def _make(self) -> AdminClient:
        settings = client_settings(self.config, "admin", self._client_id, self._watch)
        settings.pop("allow.auto.create.topics")
        try:
            return AdminClient(settings)
        except (KafkaException, ValueError, TypeError) as error:
            raise refused(error, self.config) from error

    def _answers(
        self,
        doing: str,
        client: AdminClient,
        futures: Mapping[Any, Future[T]],
        deadline: float,
    ) -> dict[Any, T]:
        # `concurrent.futures.wait` costs as much as the requests, with 10,000 futures.
        waiting = deque(futures.values())
        probe_at = time.monotonic()
        refresh_at, note_at = probe_at + _REFRESH, probe_at + _SILENT
        while waiting:
            self._wait(waiting, doing)
            client.poll(0)
            if waiting and not self._watch.worked:
                now = time.monotonic()
                if self._watch.troubled and now > probe_at:
                    probe_at = now + _REFRESH
                    reason = refusals(self.where)
                    if reason is not None:
                        raise _Refused(reason)
                if now > note_at:
                    note_at = inf
                    self._note(deadline - now)
            if waiting and self._watch.last and time.monotonic() > refresh_at:
                self._refresh(client, deadline)
                refresh_at = time.monotonic() + _REFRESH
            error = self._watch.refusal(doing, self.where)
            if error is None and waiting and time.monotonic() > deadline:
                error = self._unreachable(doing)
            if error is not None:
                raise error
        self._watch.clear()
        return {key: future.result() for key, future in futures.items()}

    def _note(self, seconds: float) -> None:
        what = "stream %r: waiting for %s, for up to %.0f s (connection.timeout.millis)"
        log.warning(what, self.config.name, self.where, seconds)

    def _refresh(self, client: AdminClient, deadline: float) -> None:
        """Refresh the client's brokers: the addressed one may be unreachable.

        Otherwise the client retries that broker without a pause, and no other one.
        """
        left = min(_REFRESH, deadline - time.monotonic())
        with suppress(KafkaException):
            client.list_topics(self.config.get("topic.name", ""), max(left, _SLICE))

    def _wait(self, waiting: deque[Future[Any]], doing: str) -> None:
        """Drop results from the front, and wait for one for `_SLICE` at most.

        Raises:
            StreamError: The error of a result.
        """
        until = time.monotonic() + _SLICE
        while waiting:
            first = waiting[0]
            if not first.done():
                wait([first], max(0.0, until - time.monotonic()))
            if not first.done() or first.exception() is not None:
                # Another one may have failed already.
                self._check([one for one in waiting if one.done()], doing)
                return
            waiting.popleft()

    def _check(self, done: Collection[Future[T]], doing: str) -> None:
        """Raise the error of a result; permanent errors take precedence."""
        errors = [error for f in done if (error := f.exception()) is not None]
        if not errors:
            return
        first = next((e for e in errors if not _passes(e)), errors[0])
        if isinstance(first, KafkaException):
            raise failure(first, doing, where=self.where) from first
        raise first

    def _unreachable(self, doing: str) -> StreamError:
        return self._watch.unreachable(doing, self.where, self._timeout)


def _passes(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and is_passing(error)
