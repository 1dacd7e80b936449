"""Topics of changes: a publication, a slot and a snapshot of a table that exists."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import psycopg
import pyarrow as pa
from psycopg import sql
from streamfactory import spi

from streamfactory_postgres import columns, layout
from streamfactory_postgres.changes.decoding import needs_identity
from streamfactory_postgres.changes.numbering import lsn_from, offset_of
from streamfactory_postgres.changes.rows import NAMES
from streamfactory_postgres.changes.slots import (
    SNAPSHOT_OFFSET,
    fetch_slot,
    slot_name,
    snapshot_of,
)
from streamfactory_postgres.connection import Connection, Connections, connect
from streamfactory_postgres.loading import begin, ensure_state

_SETTINGS: Final = ("wal_level", "max_slot_wal_keep_size", "max_replication_slots")


class ChangesAdmin(spi.TopicAdmin):
    """Makes and drops slots; the table is somebody else's."""

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connections = Connections(config)
        self._slots = sql.Identifier(config["state.schema"], "slots")

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        if partitions not in {None, 1}:
            msg = f"the changes of a table are one partition, not {partitions}"
            raise spi.Unsupported(msg)
        with self._connections.borrow() as connection:
            relation = self._check(connection, topic)
            name = self._reserve(connection, topic, relation)
            table = layout.table_of(topic)
            for statement in (
                sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)),
                # Before the slot: it has to be there where the WAL is read from.
                sql.SQL(
                    "CREATE PUBLICATION {} FOR TABLE {} "
                    "WITH (publish_via_partition_root = true)"
                ).format(sql.Identifier(name), table),
            ):
                connection.execute(statement)
        self._make_slot(name, topic)

    def delete(self, topic: str) -> None:
        with self._connections.borrow() as connection:
            name = fetch_slot(connection, self.config, topic).name
            self._remove(connection, name)
            publication = sql.SQL("DROP PUBLICATION IF EXISTS {}")
            connection.execute(publication.format(sql.Identifier(name)))
            forget = sql.SQL("DELETE FROM {} WHERE slot = %s").format(self._slots)
            connection.execute(forget, [name])

    def facts(self, topic: str) -> Mapping[str, str | int]:
        with self._connections.borrow() as connection:
            slot = fetch_slot(connection, self.config, topic)
        return {
            "slot": slot.name,
            "wal held bytes": slot.held,
            "wal status": slot.status,
            "wal until lost bytes": "no limit" if slot.safe is None else slot.safe,
            "changes not acknowledged wal bytes": slot.flushed - slot.confirmed,
        }

    def settings(self, topic: str) -> Mapping[str, str]:
        with self._connections.borrow() as connection:
            found = connection.execute(
                "SELECT name, current_setting(name) FROM pg_settings "
                "WHERE name = ANY(%s)",
                [list(_SETTINGS)],
            ).fetchall()
        return dict(found)

    def close(self) -> None:
        self._connections.close()

    def _check(self, connection: Connection, topic: str) -> int:
        """The table, if its changes can be read."""
        try:
            table = columns.describe(connection, topic, self.config.get("columns"))
        except spi.TopicNotFound as error:
            msg = f"PostgreSQL has no table {topic!r} whose changes could be read"
            raise spi.Unsupported(msg, remedy="create the table first") from error
        taken = NAMES.intersection(table.decoded().names)
        if taken:
            msg = f"table {topic!r} has a column {min(taken)!r}, and so have changes"
            raise spi.SchemaMismatch(msg, remedy="leave it out with the option columns")
        found = connection.execute(
            "SELECT relreplident, current_setting('wal_level') FROM pg_class "
            "WHERE oid = %s::oid",
            [table.relation],
        ).fetchone()
        assert found is not None
        identity, level = found
        if level != "logical":
            msg = f"the server's wal_level is {level}, which has no changes of rows"
            remedy = "ALTER SYSTEM SET wal_level = logical, and restart the server"
            raise spi.Unsupported(msg, remedy=remedy)
        if identity not in (b"f", "f"):
            raise needs_identity(topic)
        return table.relation

    def _reserve(self, connection: Connection, topic: str, relation: int) -> str:
        """Note the slot that is to be made: a creation that ends early is resumed."""
        ensure_state(connection, self.config)
        found = connection.execute(
            sql.SQL("SELECT {}").format(slot_name(self.config, topic))
        ).fetchone()
        assert found is not None
        name: str = found[0]
        state = connection.execute(
            sql.SQL("SELECT origin IS NULL FROM {} WHERE slot = %s").format(
                self._slots
            ),
            [name],
        ).fetchone()
        if state == (False,):
            msg = f"slot {name!r} exists"
            raise spi.MisuseError(msg)
        if state is not None:
            self._remove(connection, name)
        elif connection.execute(
            "SELECT FROM pg_replication_slots WHERE slot_name = %s "
            "UNION ALL SELECT FROM pg_publication WHERE pubname = %s",
            [name, name],
        ).fetchall():
            msg = f"slot or publication {name!r} exists, and is no topic"
            raise spi.MisuseError(msg, remedy="set another name with the option slot")
        connection.execute(
            sql.SQL(
                "INSERT INTO {} (slot, relation) VALUES (%s, %s) "
                "ON CONFLICT (slot) DO UPDATE SET relation = excluded.relation"
            ).format(self._slots),
            [name, relation],
        )
        return name

    def _make_slot(self, name: str, topic: str) -> None:
        """Make the slot, and copy the rows that the table had at that moment."""
        # It is idle for as long as the copy takes.
        replication = connect(self.config, wal_sender_timeout=0)
        try:
            made = replication.execute(
                sql.SQL(
                    "CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT"
                ).format(sql.Identifier(name))
            ).fetchone()
            assert made is not None
            _, origin, exported, _ = made
            # The exported snapshot can be used while the connection that made it is
            # idle.
            connection = connect(self.config)
            try:
                self._copy(connection, name, topic, origin, exported)
            finally:
                connection.close()
        finally:
            replication.close()

    def _copy(
        self, connection: Connection, name: str, topic: str, origin: str, exported: str
    ) -> None:
        begin(connection, self.config, isolation="REPEATABLE READ")
        connection.execute(
            sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported))
        )
        rows = (
            self._copy_rows(connection, name, topic) if self.config["snapshot"] else 0
        )
        connection.execute(
            sql.SQL(
                "UPDATE {} SET origin = %s, rows = %s, acknowledged = %s, "
                "advanced = %s, made = now() WHERE slot = %s"
            ).format(self._slots),
            [origin, rows, 0 if rows else offset_of(lsn_from(origin)), origin, name],
        )
        connection.execute("COMMIT")

    def _copy_rows(self, connection: Connection, name: str, topic: str) -> int:
        schema = columns.describe(
            connection, topic, self.config.get("columns")
        ).decoded()
        snapshot = snapshot_of(self.config, name)
        number = sql.Identifier(SNAPSHOT_OFFSET)
        names = [sql.SQL(", {}").format(sql.Identifier(n)) for n in schema.names]
        made = connection.execute(
            sql.SQL(
                "CREATE TABLE {} AS SELECT row_number() OVER () - 1 AS {}{} FROM {}"
            ).format(snapshot, number, sql.Composed(names), layout.table_of(topic))
        )
        end = (
            "ALTER TABLE {} ADD PRIMARY KEY ({})" if made.rowcount else "DROP TABLE {}"
        )
        connection.execute(sql.SQL(end).format(snapshot, number))
        return made.rowcount

    def _remove(self, connection: Connection, name: str) -> None:
        """Drop a slot and its snapshot, where they exist."""
        with suppress(psycopg.errors.UndefinedObject):  # dropped, or never made
            connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
        statement = sql.SQL("DROP TABLE IF EXISTS {}")
        connection.execute(statement.format(snapshot_of(self.config, name)))
