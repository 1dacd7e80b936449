"""``redelivering``: a queue behind a socket, which keeps what is not acknowledged.

The server of `forgetful`, but a message is removed by an acknowledgement and not by
being read: what was not acknowledged is delivered again, under the same offsets.
"""

# Overriding methods keep the docstring, and the arguments, of their contract.
# ruff: noqa: ARG002, D102

from __future__ import annotations

import sys
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from streamfactory.conformance.specimens.forgetful import (
    SCHEMA,
    Connection,
    ForgetfulConsumerFactory,
    ForgetfulHarness,
)
from streamfactory.conformance.specimens.queue_server import Queue, QueueServer
from streamfactory.spi import (
    INTEGER,
    Backend,
    Claims,
    Fetched,
    FetchLimits,
    Option,
    PartitionLevelConsumer,
    hookimpl,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spi import Partition, Position, StreamConfig


class RedeliveringConsumer(PartitionLevelConsumer):
    """Reads one queue, which keeps what is read."""

    def __init__(self, config: StreamConfig, partition: Partition) -> None:
        self._connection = Connection(config)
        self._partition = partition

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        answer = self._connection.ask(
            take=limits.max_rows,
            start=start,
            topic=self._partition.topic,
            partition=self._partition.id,
            wait=min(limits.timeout, 0.2),
        )
        if answer is None:
            msg = "the connection broke off"
            raise ConnectionResetError(msg)
        numbers, first = answer["numbers"], answer["first"]
        if not numbers:
            return Fetched(None, start, incarnation=answer["incarnation"])
        rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)
        return Fetched(
            rows,
            first + len(numbers),
            offsets=pa.arange(first, first + len(numbers)),
            held_from=answer["held"],
            incarnation=answer["incarnation"],
        )

    def close(self) -> None:
        self._connection.close()


class RedeliveringConsumerFactory(ForgetfulConsumerFactory):
    """Reads the queues of one server, and acknowledges."""

    CLAIMS: ClassVar = Claims(redelivers=True)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return RedeliveringConsumer(self.config, partition)

    def acknowledge(self, position: Position) -> None:
        with closing(Connection(self.config)) as connection:
            for partition, offset in position.items():
                connection.ask(
                    acknowledge=offset,
                    topic=partition.topic,
                    partition=partition.id,
                    incarnation=position.incarnations.get(partition),
                )


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return Backend(
        name="redelivering",
        doc="A queue that keeps what is not acknowledged: a specimen.",
        spi_level=1,
        consumer_factory=RedeliveringConsumerFactory,
        options=(
            Option(
                "port", "Port of the server on this machine.", INTEGER, required=True
            ),
        ),
    )


# --- the harness ----------------------------------------------------------------


class KeepingServer(QueueServer):
    """Removes a message when it is acknowledged."""

    def take(self, queue: Queue, question: dict[str, Any]) -> dict[str, Any] | None:
        if "acknowledge" in question:
            if question["incarnation"] in (None, self.incarnation):
                while queue.held and queue.first < question["acknowledge"]:
                    queue.held.popleft()
                    queue.first += 1
            return {}
        self.changed.wait_for(
            lambda: queue.first + len(queue.held) > question["start"] or self.torn,
            question["wait"],
        )
        if self.torn:
            return None
        first = max(queue.first, question["start"])
        begin = first - queue.first
        return {
            "first": first,
            "held": queue.first,
            "numbers": list(islice(queue.held, begin, begin + question["take"])),
            "incarnation": self.incarnation,
        }


class RedeliveringHarness(ForgetfulHarness):
    """The server, whose queues never end."""

    SERVER: ClassVar[type[QueueServer]] = KeepingServer
    TYPE: ClassVar = "redelivering"
    # Its queues never end, and it has no login.
    finish = None  # type: ignore[assignment]
    refused_login = None  # type: ignore[assignment]

    @staticmethod
    def plugin() -> object:
        """This module: no entry point names it."""
        return sys.modules[__name__]

    def write(
        self, partition: int, numbers: Sequence[int], *, end: bool = False
    ) -> None:
        super().write(partition, numbers, end=end)

    def acknowledged(self) -> Mapping[int, int]:
        """Offsets before which messages were removed, by partition."""
        with self.server.changed:
            return {i: queue.first for i, queue in enumerate(self.server.queues)}

    def recreate(self) -> None:
        """Another server in place of this one: on the same port, with empty queues."""
        with self.server.changed:
            self.server.begin_again()
