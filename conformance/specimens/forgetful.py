"""``forgetful``: a queue behind a socket. What was read is gone.

A server (the harness) holds a queue for each partition and answers one line of JSON to
each line of JSON. Offsets number the messages of a server's life, which is the
incarnation. Nobody can know the latest: it is None. The writer's last word is an end,
`Finished`; a connection that breaks off without it is `Failed`. Nothing is claimed, and
nothing is read again after a failure.
"""

# Overriding methods keep the docstring, and the arguments, of their contract.
# ruff: noqa: ARG002, D102

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import uuid
from collections import deque
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from streamfactory.spi import (
    INTEGER,
    Backend,
    BatchState,
    ConsumerFactory,
    Failed,
    Fetched,
    FetchLimits,
    Finished,
    MetadataProvider,
    NotAuthorized,
    Option,
    PartialMetadata,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    StreamConfig,
    TopicNotFound,
    hookimpl,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

SCHEMA: Final = pa.schema([pa.field("number", pa.int64())])
_LONGEST: Final = 0.2
"""Seconds that the server may hold back an answer: less than the author's slice."""


# --- reading --------------------------------------------------------------------


class Connection:
    """One connection to the server."""

    def __init__(self, config: StreamConfig) -> None:
        self._password = str(config.get("password", ""))
        patience = config["connection.timeout.millis"] / 1000
        address = ("127.0.0.1", config["port"])
        self._socket = socket.create_connection(address, patience)
        self._lines = self._socket.makefile("rb")

    def ask(self, **question: Any) -> dict[str, Any] | None:
        """An answer; None where the server broke off.

        Raises:
            TopicNotFound, NotAuthorized: permanent; the server says so.
        """
        question["password"] = self._password
        try:
            self._socket.sendall(json.dumps(question).encode() + b"\n")
            line = self._lines.readline()
        except ConnectionError:
            return None
        if not line.endswith(b"\n"):
            return None
        answer: dict[str, Any] = json.loads(line)
        error = answer.get("error")
        if error is not None:
            kind = NotAuthorized if error == "password" else TopicNotFound
            msg = f"the server refuses: {error}"
            raise kind(msg)
        return answer

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


class ForgetfulConsumer(PartitionLevelConsumer):
    """Takes messages from one queue."""

    def __init__(self, config: StreamConfig, partition: Partition) -> None:
        self._connection = Connection(config)
        self._partition = partition

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        """What the server has; ``start`` only says where an empty answer is."""
        answer = self._connection.ask(
            take=limits.max_rows if end is None else min(limits.max_rows, end - start),
            topic=self._partition.topic,
            partition=self._partition.id,
            wait=min(limits.timeout, _LONGEST),
        )
        if answer is None:
            torn = Failed("the connection broke off")
            return Fetched(None, start, state=BatchState.END_OF_PARTITION, end=torn)
        numbers, first = answer["numbers"], answer["first"]
        if numbers:
            rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)
            offsets = pa.arange(first, first + len(numbers))
            return Fetched(
                rows,
                first + len(numbers),
                offsets=offsets,
                incarnation=answer["incarnation"],
            )
        state = BatchState.END_OF_PARTITION if answer["ended"] else None
        return Fetched(None, max(start, first), state=state, end=Finished())

    def close(self) -> None:
        self._connection.close()


class ForgetfulMetadata(MetadataProvider):
    """Asks the server, by a connection of its own for each answer."""

    def __init__(self, config: StreamConfig) -> None:
        self._config = config

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        """All partitions; earliest is the next message that anybody can have."""
        with closing(Connection(self._config)) as connection:
            answer = connection.ask(look=True, topic=topics[0])
        if answer is None:
            msg = "the server broke off"
            raise ConnectionResetError(msg)
        self.check(answer)
        return [
            PartitionInfo(
                Partition(topics[0], number), first, None, incarnation=answer["life"]
            )
            for number, first in enumerate(answer["first"])
            if first is not None
        ]

    def check(self, answer: Mapping[str, Any]) -> None:
        """Refuse an answer that lacks a queue.

        Raises:
            PartialMetadata: transient; some queue did not say what it holds.
        """
        silent = [n for n, first in enumerate(answer["first"]) if first is None]
        if silent:
            msg = f"the queues {silent} do not answer"
            raise PartialMetadata(msg)

    def fetch_schema(self, topic: str) -> pa.Schema:
        return SCHEMA


class ForgetfulConsumerFactory(ConsumerFactory):
    """Reads the queues of one server. Claims nothing."""

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return ForgetfulConsumer(self.config, partition)

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return ForgetfulMetadata(self.config)


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="forgetful",
        doc="A queue behind a socket, which forgets what was read: a specimen.",
        spi_level=1,
        consumer_factory=ForgetfulConsumerFactory,
        options=(
            Option(
                "port", "Port of the server on this machine.", INTEGER, required=True
            ),
            Option("password", "What the server wants to hear.", secret=True),
        ),
    )


# --- the harness ----------------------------------------------------------------


@dataclass(slots=True)
class Queue:
    """The messages of one partition."""

    held: deque[int] = field(default_factory=deque)
    first: int = 0
    """Offset of the oldest that is held."""
    ended: bool = False
    silent: bool = False
    """It does not say what it holds."""


class Server(socketserver.ThreadingTCPServer):
    """Answers questions about its queues; a message that was taken is removed."""

    daemon_threads = False
    block_on_close = True

    allow_reuse_address = True

    def __init__(self, topic: str, partitions: int, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.topic = topic
        self.life = uuid.uuid4().hex
        self.queues = [Queue() for _ in range(partitions)]
        self.changed = threading.Condition()
        self.password: str | None = None
        self.torn = False
        self._open: set[socket.socket] = set()

    def reply(self, question: dict[str, Any]) -> dict[str, Any] | None:
        """Answer one question; None to break the connection off."""
        if self.password not in (None, question["password"]):
            return {"error": "password"}
        if question["topic"] != self.topic:
            return {"error": f"no topic {question['topic']!r}"}
        with self.changed:
            if "look" in question:
                first = [None if q.silent else q.first for q in self.queues]
                return {"first": first, "life": self.life}
            if not 0 <= question["partition"] < len(self.queues):
                return {"error": f"no partition {question['partition']}"}
            return self.take(self.queues[question["partition"]], question)

    def take(self, queue: Queue, question: dict[str, Any]) -> dict[str, Any] | None:
        """Answer a question for messages; None to break the connection off."""
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
            "incarnation": self.life,
        }
        queue.first += count
        return answer

    def begin_again(self) -> None:
        """Replace all queues by empty ones, in another life of the server."""
        self.life = uuid.uuid4().hex
        self.queues = [Queue() for _ in self.queues]

    def stop(self) -> None:
        """Break all connections off, and end."""
        with self.changed:
            self.torn = True
            self.changed.notify_all()
            for connection in self._open:
                with suppress(OSError):  # the other side was first
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
        """A client that goes away is no error; another one is shown."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        for line in self.rfile:
            answer = self.server.reply(json.loads(line))
            if answer is None:
                return
            self.wfile.write(json.dumps(answer).encode() + b"\n")


class ForgetfulHarness:
    """The server. Every write is the last until the next one: it ends its queue."""

    SERVER: ClassVar[type[Server]] = Server
    TYPE: ClassVar = "forgetful"

    def __init__(self, folder: Path) -> None:
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    @staticmethod
    def plugin() -> object:
        """This module: no entry point names it."""
        return sys.modules[__name__]

    def create(self, partitions: int) -> None:
        self.close()
        self._serve(self.SERVER("numbers", partitions))

    def _serve(self, server: Server) -> None:
        self._server = server
        serve = server.serve_forever
        self._thread = threading.Thread(target=serve, args=(0.01,), name="forgetful")
        self._thread.start()

    def properties(self) -> Mapping[str, str]:
        """Where the server listens."""
        return {
            "streamType": self.TYPE,
            f"stream.{self.TYPE}.topic.name": self.server.topic,
            f"stream.{self.TYPE}.port": str(self.server.server_address[1]),
        }

    def partitions(self) -> Sequence[int]:
        return range(len(self.server.queues))

    def write(
        self, partition: int, numbers: Sequence[int], *, end: bool = True
    ) -> None:
        """Put messages into a queue, and end it."""
        with self.server.changed:
            queue = self.server.queues[partition]
            queue.held.extend(numbers)
            queue.ended = end
            self.server.changed.notify_all()

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def grow(self, partitions: int) -> None:
        """Add queues."""
        with self.server.changed:
            missing = partitions - len(self.server.queues)
            self.server.queues += [Queue() for _ in range(missing)]

    def tear(self) -> None:
        """Break all connections off, without an end."""
        with self.server.changed:
            self.server.torn = True
            self.server.changed.notify_all()

    def finish(self, partition: int) -> None:
        """End a queue."""
        self.write(partition, [], end=True)

    def unreachable(self, partition: int) -> None:
        """Have a queue not say what it holds."""
        with self.server.changed:
            self.server.queues[partition].silent = True

    def refused_login(self) -> Mapping[str, str]:
        """Another password than the server's, which wants one from here on."""
        self.server.password = "right"  # noqa: S105 - of a specimen
        return {f"stream.{self.TYPE}.password": "wrong"}

    def stop(self) -> None:
        """End the server; it keeps its queues."""
        assert self._thread is not None
        self.server.stop()
        self._thread.join()
        self._thread = None

    def start(self) -> None:
        """The same server again, on its port."""
        old = self.server
        new = self.SERVER(old.topic, 0, int(old.server_address[1]))
        new.life, new.queues = old.life, old.queues
        self._serve(new)

    @property
    def server(self) -> Server:
        """The server; there is none before `create`."""
        assert self._server is not None
        return self._server

    def close(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join()
            self._server = None
