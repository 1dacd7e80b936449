"""One reader's stream of batches: requests and responses over one ``DoExchange``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import Delivery, Fetch
from streamfactory.spi import BatchValidator, FormatRefused

if TYPE_CHECKING:
    from typing import Any

    import pyarrow as pa

    from streamfactory.backends.flight.client.connection import Connection
    from streamfactory.backends.flight.protocol.messages import Subscribe
    from streamfactory.spi import FetchLimits

_MOST_ROWS: Final = 2**31 - 1


class Received(NamedTuple):
    """A response of the server."""

    rows: pa.RecordBatch
    delivery: Delivery


class Subscription:
    """Fetches batches by offset, and requests the next one ahead of its use.

    At most one response is outstanding that was not fetched yet. One thread at a time.

    Args:
        connection: To the server.
        wanted: Topic, partition and columns.
    """

    def __init__(self, connection: Connection, wanted: Subscribe) -> None:
        descriptor = fl.FlightDescriptor.for_command(encode(wanted))
        self._connection = connection
        with connection.translated():
            client = connection.client()
            self._writer, self._reader = client.do_exchange(
                descriptor, connection.options()
            )
        self._validator: BatchValidator | None = None
        self._sent = 0
        self._received = 0
        self._ahead: int | None = None
        """The start offset of the outstanding request."""

    def fetch(self, start: int, end: int | None, limits: FetchLimits) -> Received:
        """The batch at ``start``; without rows after a timeout."""
        connection = self._connection
        late = connection.watchdog.limit(
            limits.timeout + connection.timeout, self._reader.cancel
        )
        with connection.translated(), late:
            found = self._take_ahead(start)
            if found is None or not found.rows.num_rows:
                wait = int(limits.timeout * 1000)
                self._request(start, end, limits, wait)
                found = self._receive()
            self._ask_ahead(found, end, limits)
        return found

    def close(self) -> None:
        """End the call; never raises and never blocks."""
        try:
            self._reader.cancel()
            self._writer.close()
        except (fl.FlightError, OSError, ValueError):
            pass  # it has ended in any case

    def _take_ahead(self, start: int) -> Received | None:
        if self._ahead is None:
            return None
        ahead, self._ahead = self._ahead, None
        found = self._receive()
        return found if ahead == start else None

    def _ask_ahead(self, found: Received, end: int | None, limits: FetchLimits) -> None:
        then = found.delivery.start + found.rows.num_rows
        last = found.delivery.latest if end is None else min(end, found.delivery.latest)
        if found.rows.num_rows and then < last:
            self._request(then, end, limits, 0)
            self._ahead = then

    def _request(
        self, start: int, end: int | None, limits: FetchLimits, wait: int
    ) -> None:
        rows = limits.max_rows if end is None else min(limits.max_rows, end - start)
        self._sent += 1
        wanted = Fetch(self._sent, start, min(rows, _MOST_ROWS), limits.max_bytes, wait)
        self._writer.write_metadata(encode(wanted))

    def _receive(self) -> Received:
        chunk: Any = self._reader.read_chunk()
        delivery = decode(chunk.app_metadata or b"", Delivery)
        self._received += 1
        if delivery.id != self._received:
            msg = f"expected the answer to request {self._received}"
            raise FormatRefused(msg)
        rows: pa.RecordBatch = chunk.data
        if self._validator is None:
            self._validator = BatchValidator(rows.schema)
        self._validator.validate(rows)
        return Received(rows, delivery)
