"""Producer factory and topic administration of ``flight``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamfactory.arrowlog import LogProducerFactory, LogTopicAdmin, Retention
from streamfactory.arrowlog.writing import retention_of
from streamfactory.backends.flight.client.committing import CommitSessions
from streamfactory.backends.flight.client.remote import (
    RemoteLog,
    RemoteLogStore,
)
from streamfactory.backends.flight.protocol.epochs import retention_message
from streamfactory.backends.flight.servers import CLAIMS, connect

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.arrowlog import WritableLog, WritableLogStore
    from streamfactory.spi import StreamConfig


class FlightProducerFactory(LogProducerFactory):
    """Writes one topic on the server, which the first writer creates."""

    CLAIMS: ClassVar = CLAIMS

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._connection = connect(config)
        self._sessions = CommitSessions(self._connection)
        self._log: RemoteLog | None = None

    def log(self, schema: pa.Schema | None = None) -> WritableLog:
        """The topic; a recently used one is not looked up again."""
        known = self._log
        if known is None or not known.is_fresh:
            opened = super().log(schema)
            assert isinstance(opened, RemoteLog)
            known = self._log = opened
        return known

    def store(self) -> WritableLogStore:
        retention = retention_of(self.config)
        memory = "writer.memory.millis"
        return RemoteLogStore(
            self._connection,
            # Only a user that may administer the topic may send it: otherwise that of
            # the server holds.
            memory_ms=self.config[memory] if self.config.given(memory) else None,
            retention=None
            if retention == Retention()
            else retention_message(retention),
            sessions=self._sessions,
        )

    def tidy(self, log: WritableLog, writer_id: str | None) -> None:
        """Done by the server, after each commit."""

    def close(self) -> None:
        self._sessions.close()
        self._connection.close()


class FlightTopicAdmin(LogTopicAdmin):
    """Administration of the topics of one server."""

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._connection = connect(config)

    def store(self) -> WritableLogStore:
        return RemoteLogStore(self._connection)

    def close(self) -> None:
        self._connection.close()
