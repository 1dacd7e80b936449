"""The Flight service: each call is decoded, checked, done on the log, and answered."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.codec import decode
from streamfactory.backends.flight.protocol.failures import to_status
from streamfactory.backends.flight.protocol.messages import Stage, Subscribe, Ticket
from streamfactory.backends.flight.server.actions import ACTIONS, perform
from streamfactory.backends.flight.server.reading import read_range, serve_subscription
from streamfactory.backends.flight.server.writing import receive_stage
from streamfactory.spi import ConnectionFailed, StreamError, UntranslatedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.arrowlog import LogStore

_logger = logging.getLogger("streamfactory.flight")


class LogService(fl.FlightServerBase):  # type: ignore[misc]
    """Serves the topics of a log store. Listens from its construction on.

    Args:
        location: Where to listen.
        store: What is served; the caller closes it.
    """

    def __init__(self, location: str, store: LogStore, **tls: Any) -> None:
        self.store = store
        self.stopping = threading.Event()
        """Set before the end: calls that wait return, new ones are refused."""
        self._lock = threading.Lock()
        self._under_way = 0
        super().__init__(location, **tls)

    @property
    def under_way(self) -> int:
        """How many calls that change something are under way."""
        return self._under_way

    def do_action(
        self, context: fl.ServerCallContext, action: fl.Action
    ) -> Iterator[bytes]:
        with self._call(f"action {action.type[:64]!r}"), self._counted():
            return iter([perform(self.store, action.type, action.body)])

    def list_actions(self, context: fl.ServerCallContext) -> list[tuple[str, str]]:
        return [(name, doc) for name, (_, doc, _) in ACTIONS.items()]

    def do_get(
        self, context: fl.ServerCallContext, ticket: fl.Ticket
    ) -> fl.FlightDataStream:
        with self._call("get"):
            wanted = decode(ticket.ticket, Ticket)
            return read_range(self.store, wanted, context, self.stopping)

    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        with self._call("exchange"):
            wanted = decode(descriptor.command or b"", Subscribe)
            serve_subscription(self.store, wanted, reader, writer, self.stopping)

    def do_put(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.FlightMetadataWriter,
    ) -> None:
        with self._call("put"), self._counted():
            wanted = decode(descriptor.command or b"", Stage)
            receive_stage(self.store, wanted, reader, writer)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    @contextmanager
    def _call(self, what: str) -> Iterator[None]:
        """Refuse calls while stopping, and answer errors as typed ones."""
        try:
            if self.stopping.is_set():
                msg = f"{what}: the server is shutting down"
                raise ConnectionFailed(msg, remedy="retry when it runs again")
            yield
        except fl.FlightError:
            raise
        except StreamError as error:
            raise to_status(error) from None
        except Exception as error:
            _logger.exception("%s failed", what)
            msg = f"{what} failed inside the server: {type(error).__name__}"
            raise to_status(UntranslatedError(msg)) from None
