"""``forgetful``: a queue behind a socket. Messages that were read are deleted.

A server (the harness) holds a queue for each partition and answers one line of JSON to
each line of JSON. Offsets number the messages since a server's start, which is the
incarnation. The latest is unknown: it is None. The writer's last word is an end,
`Finished`; a connection that breaks off without it is `Failed`. Nothing is claimed, and
nothing is read again after a failure.
"""

# Overriding methods keep the docstring, and the arguments, of their contract.
# ruff: noqa: ARG002, D102

from __future__ import annotations

import json
import socket
import ssl
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa

from streamfactory.conformance.specimens.queue_server import Queue, QueueServer
from streamfactory.spi import (
    INTEGER,
    PATH,
    Backend,
    BatchState,
    ConsumerFactory,
    ErrorTable,
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
        plain = socket.create_connection(address, patience)
        authority = config.get("ca")
        try:
            self._socket = plain if authority is None else self.secure(plain, authority)
        except BaseException:
            plain.close()
            raise
        self._lines = self._socket.makefile("rb")

    def secure(self, plain: socket.socket, authority: str) -> socket.socket:
        """TLS over a socket; the server's certificate is checked."""
        context = ssl.create_default_context(cafile=authority)
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

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
    """Queries the server, by a separate connection for each call."""

    CONNECTION: ClassVar[type[Connection]] = Connection

    def __init__(self, config: StreamConfig) -> None:
        self._config = config

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        """All partitions; earliest is the next message that anybody can have."""
        with closing(self.CONNECTION(self._config)) as connection:
            answer = connection.ask(look=True, topic=topics[0])
        if answer is None:
            msg = "the server broke off"
            raise ConnectionResetError(msg)
        self.check(answer)
        return [
            PartitionInfo(
                Partition(topics[0], number),
                first,
                None,
                incarnation=answer["incarnation"],
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
            Option("password", "The server's password.", secret=True),
            Option(
                "ca",
                "Certificate of the authority that the server's is checked against; "
                "without it connections are not encrypted.",
                PATH,
            ),
        ),
        translate=ErrorTable({ssl.SSLCertVerificationError: NotAuthorized}),
    )


# --- the harness ----------------------------------------------------------------


class ForgetfulHarness:
    """The server. Every write is the last until the next one: it ends its queue."""

    SERVER: ClassVar[type[QueueServer]] = QueueServer
    TYPE: ClassVar = "forgetful"

    def __init__(self, folder: Path) -> None:
        self._server: QueueServer | None = None
        self._thread: threading.Thread | None = None

    @staticmethod
    def plugin() -> object:
        """This module: no entry point names it."""
        return sys.modules[__name__]

    def create(self, partitions: int) -> None:
        self.close()
        self._serve(self.SERVER("numbers", partitions))

    def _serve(self, server: QueueServer) -> None:
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

    def finish(self, partition: int) -> None:
        """End a queue."""
        self.write(partition, [], end=True)

    def unreachable(self, partition: int) -> None:
        """Have a queue not say what it holds."""
        with self.server.changed:
            self.server.queues[partition].silent = True

    def refused_login(self) -> Mapping[str, str]:
        """A wrong password; the server requires one from now on."""
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
        new.incarnation, new.queues = old.incarnation, old.queues
        self._serve(new)

    @property
    def server(self) -> QueueServer:
        """The server; there is none before `create`."""
        assert self._server is not None
        return self._server

    def close(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.stop()
            self._thread.join()
            self._server = None
