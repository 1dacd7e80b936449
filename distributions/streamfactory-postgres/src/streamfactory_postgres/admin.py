"""Topics: tables that are created, truncated and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import psycopg
import pyarrow as pa
from psycopg import sql
from streamfactory import spi

from streamfactory_postgres import columns, layout
from streamfactory_postgres.connection import Connections
from streamfactory_postgres.loading import ensure_state

_SETTINGS: Final = (
    "fsync",
    "synchronous_commit",
    "idle_in_transaction_session_timeout",
)
"""Of the server: what decides whether a commit survives a failure."""


class TableAdmin(spi.TopicAdmin):
    """Operates tables."""

    ONE_PARTITION: ClassVar = True

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connections = Connections(config)

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        if schema is None:
            msg = "a table of PostgreSQL holds typed rows"
            raise spi.Unsupported(msg, remedy="name the columns of the topic")
        if partitions not in {None, 1}:
            msg = f"a table of PostgreSQL is one partition, not {partitions}"
            raise spi.Unsupported(msg)
        offset: str = self.config["offset.column"]
        parts = [
            sql.SQL("{} {}{}").format(
                sql.Identifier(column.name),
                sql.SQL(columns.type_name(column)),
                sql.SQL("" if column.nullable else " NOT NULL"),
            )
            for column in schema
        ]
        parts.append(sql.SQL("{} bigint PRIMARY KEY").format(sql.Identifier(offset)))
        with self._connections.borrow() as connection, connection.transaction():
            ensure_state(connection, self.config)
            table = layout.table_of(topic)
            create = sql.SQL("CREATE TABLE {} ({})")
            try:
                connection.execute(create.format(table, sql.SQL(", ").join(parts)))
            except psycopg.errors.DuplicateTable as error:
                msg = f"table {topic!r} exists"
                raise spi.MisuseError(msg) from error
            connection.execute(layout.adopt(topic, offset, self.config["state.schema"]))

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        offset = sql.Identifier(self.config["offset.column"])
        delete = sql.SQL("DELETE FROM {} WHERE {} < {}")
        with self._connections.borrow() as connection, connection.transaction():
            columns.describe(connection, topic)
            for first in before.values():
                connection.execute(delete.format(layout.table_of(topic), offset, first))

    def delete(self, topic: str) -> None:
        with self._connections.borrow() as connection, connection.transaction():
            ensure_state(connection, self.config)
            relation = columns.describe(connection, topic).relation
            connection.execute(sql.SQL("DROP TABLE {}").format(layout.table_of(topic)))
            for name in ("topics", "writers"):
                state = sql.Identifier(self.config["state.schema"], name)
                forget = sql.SQL("DELETE FROM {} WHERE relation = %s").format(state)
                connection.execute(forget, [relation])

    def facts(self, topic: str) -> Mapping[str, str | int]:
        with self._connections.borrow() as connection:
            relation = columns.describe(connection, topic).relation
            found = connection.execute(
                "SELECT pg_total_relation_size(%s::oid), "
                "(SELECT max(now() - xact_start)::text FROM pg_stat_activity "
                "WHERE backend_xid IS NOT NULL)",
                [relation],
            ).fetchone()
        assert found is not None
        size, oldest = found
        return {"bytes": size, "oldest writing transaction": oldest or "none"}

    def settings(self, topic: str) -> Mapping[str, str]:
        with self._connections.borrow() as connection:
            found = connection.execute(
                "SELECT name, setting FROM pg_settings WHERE name = ANY(%s)",
                [list(_SETTINGS)],
            ).fetchall()
        return dict(found)

    def close(self) -> None:
        self._connections.close()
