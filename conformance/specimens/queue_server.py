"""The server of `forgetful` and `redelivering`: queues behind a socket."""

# Overriding methods keep the docstring of their base class.
# ruff: noqa: D102

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import uuid
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Queue:
    """The messages of one partition."""

    held: deque[int] = field(default_factory=deque)
    first: int = 0
    """Offset of the oldest that is held."""
    ended: bool = False
    silent: bool = False
    """Whether requests for its bounds are not answered."""


class QueueServer(socketserver.ThreadingTCPServer):
    """Replies to requests for messages, which are then removed from their queue."""

    daemon_threads = False
    block_on_close = True

    allow_reuse_address = True

    def __init__(self, topic: str, partitions: int, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.topic = topic
        self.incarnation = uuid.uuid4().hex
        self.queues = [Queue() for _ in range(partitions)]
        self.changed = threading.Condition()
        self.password: str | None = None
        self.torn = False
        self._open: set[socket.socket] = set()

    def reply(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """The reply to one request; None to break the connection."""
        if self.password not in (None, question["password"]):
            return {"error": "password"}
        if question["topic"] != self.topic:
            return {"error": f"no topic {question['topic']!r}"}
        with self.changed:
            if "look" in question:
                first = [None if q.silent else q.first for q in self.queues]
                return {"first": first, "incarnation": self.incarnation}
            if not 0 <= question["partition"] < len(self.queues):
                return {"error": f"no partition {question['partition']}"}
            return self.take(self.queues[question["partition"]], question)

    def take(self, queue: Queue, question: dict[str, Any]) -> dict[str, Any] | None:
        """The reply to a request for messages; None to break the connection."""
        self.changed.wait_for(
            lambda: queue.held or queue.ended or self.torn, question["wait"]
        )
        if self.torn:
            return None
        count = min(len(queue.held), question["take"])
        answer = {
            "first": queue.first,
            "numbers": [queue.held.popleft() for _ in range(count)],
            "ended": queue.ended,
            "incarnation": self.incarnation,
        }
        queue.first += count
        return answer

    def begin_again(self) -> None:
        """Replace all queues by empty ones, as after a restart of the server."""
        self.incarnation = uuid.uuid4().hex
        self.queues = [Queue() for _ in self.queues]

    def tear(self) -> None:
        """Break all connections off, without an end."""
        with self.changed:
            self.torn = True
            self.changed.notify_all()

    def stop(self) -> None:
        """Break all connections and stop."""
        self.tear()
        with self.changed:
            for connection in self._open:
                with suppress(OSError):  # closed by the other side
                    connection.shutdown(socket.SHUT_RDWR)
        self.shutdown()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self.changed:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self.changed:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect; print other errors."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(socketserver.StreamRequestHandler):
    server: QueueServer

    def handle(self) -> None:
        for line in self.rfile:
            answer = self.server.reply(json.loads(line))
            if answer is None:
                return
            self.wfile.write(json.dumps(answer).encode() + b"\n")
