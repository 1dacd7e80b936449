"""A Flight server of plain pyarrow: ``python foreign_server.py ENDPOINTS [KNOWN]``."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema([pa.field("id", pa.int64())])
BATCHES, EACH = 5, 10


class Server(fl.FlightServerBase):  # type: ignore[misc]
    """Topics ``numbers``, ``breaks`` in the middle, and ``waits`` at the end."""

    def __init__(self, endpoints: int, known: bool) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.endpoints, self.known = endpoints, known

    def get_flight_info(
        self, context: fl.ServerCallContext, descriptor: fl.FlightDescriptor
    ) -> fl.FlightInfo:
        topic = descriptor.path[0].decode()
        endpoints = [
            fl.FlightEndpoint(f"{topic}/{number}".encode(), [])
            for number in range(self.endpoints)
        ]
        total = BATCHES * EACH * self.endpoints if self.known else -1
        return fl.FlightInfo(SCHEMA, descriptor, endpoints, total, -1)

    def do_get(
        self, context: fl.ServerCallContext, ticket: fl.Ticket
    ) -> fl.FlightDataStream:
        topic, _, number = ticket.ticket.decode().partition("/")
        return fl.GeneratorStream(SCHEMA, self._rows(topic, int(number)))

    def _rows(self, topic: str, number: int) -> Iterator[pa.RecordBatch]:
        for batch in range(BATCHES):
            if topic == "breaks" and batch == 2:
                msg = "the source of the server failed"
                raise fl.FlightServerError(msg)
            first = number * 1000 + batch * EACH
            yield pa.record_batch(
                [pa.array(range(first, first + EACH), pa.int64())], schema=SCHEMA
            )
        while topic == "waits":
            time.sleep(0.1)


if __name__ == "__main__":
    server = Server(int(sys.argv[1]), "known" in sys.argv)
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve()
