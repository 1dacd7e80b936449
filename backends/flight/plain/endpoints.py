"""Endpoints, schema and size of a stream on a plain Flight server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from streamfactory.spi import BatchValidator, SchemaUnknown, TopicNotFound, Unsupported

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.backends.flight.client.connection import Connection
    from streamfactory.spi import StreamConfig

_REUSE: Final = b"arrow-flight-reuse-connection"


class Endpoints:
    """The endpoints of one descriptor. Thread-safe.

    The descriptor is the option ``plain.command``, or else a path of the topic's name.
    """

    def __init__(self, connection: Connection, config: StreamConfig) -> None:
        self.connection = connection
        self.deterministic = bool(config["plain.deterministic"])
        command: str | None = config.get("plain.command")
        self._descriptor = (
            fl.FlightDescriptor.for_path(config.topic)
            if command is None
            else fl.FlightDescriptor.for_command(command.encode())
        )
        self._counted: dict[int, int] = {}

    def count(self) -> int:
        """Number of endpoints."""
        return len(self._info().endpoints)

    def schema(self) -> pa.Schema:
        """The schema, without reading a row.

        Raises:
            SchemaUnknown: config; the server does not return it before rows are read.
        """
        info = self._info()
        if info.schema is None:
            msg = "the server does not return the schema before rows are read"
            raise SchemaUnknown(msg)
        BatchValidator(info.schema)  # refuses unsupported types
        return info.schema

    def latest(self, number: int) -> int | None:
        """Rows of an endpoint; None if counting them would consume them."""
        info = self._info()
        if len(info.endpoints) == 1 and info.total_records >= 0:
            return int(info.total_records)
        if not self.deterministic:
            return None
        if number not in self._counted:
            rows = sum(chunk.num_rows for chunk in read(self.open(number)))
            self._counted[number] = rows
        return self._counted[number]

    def open(self, number: int) -> fl.FlightStreamReader:
        """Start reading an endpoint.

        Raises:
            TopicNotFound: permanent; there are fewer.
            Unsupported: misuse; it is on a server that the configuration does not name.
        """
        endpoints = self._info().endpoints
        if number >= len(endpoints):
            msg = (
                f"endpoint {number} does not exist: the server has {len(endpoints)} "
                "endpoints"
            )
            raise TopicNotFound(msg)
        endpoint = endpoints[number]
        places = [bytes(place.uri) for place in endpoint.locations]
        ours = self.connection.location.encode()
        if places and not any(p == ours or p.startswith(_REUSE) for p in places):
            # A token must not be sent to an address that a server names.
            where = places[0].decode("utf-8", "replace")
            msg = f"endpoint {number} is on another server, {where}"
            remedy = "read it as another stream, with that stream.flight.location"
            raise Unsupported(msg, remedy=remedy)
        connection = self.connection
        with connection.translated():
            client = connection.client()
            return client.do_get(endpoint.ticket, connection.options())

    def _info(self) -> fl.FlightInfo:
        connection = self.connection
        with connection.translated():
            client = connection.client()
            options = connection.options(connection.timeout)
            return client.get_flight_info(self._descriptor, options)


def read(reader: fl.FlightStreamReader) -> Iterator[pa.RecordBatch]:
    """The batches of a reader, each validated."""
    validator = None
    while True:
        try:
            chunk: Any = reader.read_chunk()
        except StopIteration:
            return
        if chunk.data is None:
            continue
        if validator is None:
            validator = BatchValidator(chunk.data.schema)
        validator.validate(chunk.data)
        yield chunk.data
