"""Reading: rows of decided transactions, by offset."""

from __future__ import annotations

import select
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import psycopg
import pyarrow as pa
from psycopg import sql
from streamfactory import spi
from streamfactory.spi.waking import Wake

from streamfactory_postgres import columns, layout
from streamfactory_postgres.connection import Connection, Connections
from streamfactory_postgres.ranges import RangeReader


@dataclass(frozen=True)
class Bounds:
    """What a table holds at one moment."""

    incarnation: str
    earliest: int
    latest: int
    """No row below it will appear."""
    written: int | None
    """The end of rows that readers cannot see yet, if there are any."""


def fetch_bounds(
    connection: Connection,
    connections: Connections,
    config: spi.StreamConfig,
    topic: str,
) -> Bounds:
    """Look up the bounds of a table.

    Raises:
        psycopg.errors.UndefinedTable: It does not exist.
    """
    query = sql.SQL(
        """
SELECT c.system_identifier, d.oid::bigint, {name}::regclass::oid::bigint,
    coalesce({earliest}, 0),
    (SELECT max({offset}) FROM {table} WHERE {offset} < _horizon),
    (SELECT max({offset}) FROM {table} WHERE {offset} >= _horizon)
FROM pg_control_system() c, pg_database d, (SELECT {horizon} AS _horizon) h
WHERE d.datname = current_database()
"""
    ).format(
        name=sql.Literal(layout.table_of(topic).as_string()),
        table=layout.table_of(topic),
        offset=sql.Identifier(config["offset.column"]),
        horizon=layout.HORIZON,
        earliest=_earliest(connection, connections, config["state.schema"], topic),
    )
    found = connection.execute(query).fetchone()
    assert found is not None
    cluster, database, relation, earliest, last, hidden = found
    return Bounds(
        f"{cluster}.{database}.{relation}",
        earliest,
        earliest if last is None else max(earliest, last + 1),
        None if hidden is None else hidden + 1,
    )


def _earliest(
    connection: Connection, connections: Connections, schema: str, topic: str
) -> sql.Composable:
    """An expression for the first offset that no row was deleted from."""
    topics = sql.Identifier(schema, "topics")
    if not connections.has_state:
        found = connection.execute(
            "SELECT to_regclass(%s) IS NOT NULL", [topics.as_string()]
        ).fetchone()
        if found == (False,):
            return sql.SQL("NULL")  # nothing was ever made by `topics create`
        connections.has_state = True
    return sql.SQL("(SELECT earliest FROM {} WHERE relation = {}::regclass)").format(
        topics, sql.Literal(layout.table_of(topic).as_string())
    )


class TableConsumer(spi.PartitionLevelConsumer):
    """Reads one table, on a connection that it has for itself while it is open."""

    def __init__(
        self,
        config: spi.StreamConfig,
        connections: Connections,
        partition: spi.Partition,
        fields: Sequence[str] | None,
    ) -> None:
        self._config = config
        self._connections = connections
        self._topic = partition.topic
        self._offset: str = config["offset.column"]
        self._wake = Wake()
        self._listens = False
        self._notified = False
        self._incarnation: str | None = None
        try:
            self._connection = connections.take()
        except BaseException:
            self._wake.close()
            raise
        try:
            table = columns.describe(
                self._connection, self._topic, config.get("columns")
            )
            schema = chosen_fields(table.readable(self._offset), fields)
            self._ranges = RangeReader(
                layout.table_of(self._topic), self._offset, schema
            )
            self._relation = table.relation
        except BaseException:
            self.close()
            raise

    def fetch_messages(
        self, start: int, end: int | None, limits: spi.FetchLimits
    ) -> spi.Fetched:
        deadline = time.monotonic() + limits.timeout
        poll = self._config["poll.interval.millis"] / 1000
        while True:
            self._notified = False
            fetched = self._read(start, end, limits)
            left = deadline - time.monotonic()
            if fetched.state is not spi.BatchState.CAUGHT_UP or left <= 0:
                return fetched
            if not self._listens:
                self._listen()  # and look again: a notification may have come before
                continue
            if self._wait(min(left, poll)):
                self._wake.clear()
                return fetched

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._wake.close()
        connection = self._connection
        if connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            connection.close()
            return
        try:
            if self._listens:
                connection.remove_notify_handler(self._on_notify)
                connection.execute("UNLISTEN *")
        except psycopg.Error:
            connection.close()
            return
        self._connections.give(connection)

    def _read(
        self, start: int, end: int | None, limits: spi.FetchLimits
    ) -> spi.Fetched:
        # One transaction: the first query locks the table against being replaced.
        with self._connection.transaction():
            bounds = fetch_bounds(
                self._connection, self._connections, self._config, self._topic
            )
            known, self._incarnation = (
                self._incarnation or bounds.incarnation,
                bounds.incarnation,
            )
            if known != bounds.incarnation:
                return spi.Fetched(
                    None, bounds.earliest, incarnation=bounds.incarnation
                )
            stop = bounds.latest if end is None else min(end, bounds.latest)
            rows, offsets, size = None, None, 0
            if start < stop:
                rows, offsets, size = self._ranges.read(
                    self._connection, start, stop, limits
                )
        next_offset = max(start, stop) if offsets is None else offsets[-1].as_py() + 1
        return spi.Fetched(
            rows,
            next_offset,
            offsets,
            state=spi.BatchState.CAUGHT_UP if rows is None else None,
            latest=bounds.latest,
            held_from=bounds.earliest,
            incarnation=bounds.incarnation,
            size=size,
        )

    def _wait(self, seconds: float) -> bool:
        """Wait for a notification or `wake`; whether it was the latter."""
        server = self._connection.pgconn
        ready = [self._connection.fileno(), self._wake.fileno()]
        if not self._notified and not self._wake.is_set:
            found, _, _ = select.select(ready, [], [], seconds)
            if ready[0] in found:
                server.consume_input()
            while server.notifies() is not None:
                self._notified = True
        return self._wake.is_set

    def _listen(self) -> None:
        name = sql.Identifier(layout.channel(self._relation))
        self._connection.add_notify_handler(self._on_notify)
        self._listens = True
        self._connection.execute(sql.SQL("LISTEN {}").format(name))

    def _on_notify(self, notify: psycopg.Notify) -> None:
        self._notified = True


class TableMetadata(spi.MetadataProvider):
    """Looks at tables."""

    def __init__(self, config: spi.StreamConfig, connections: Connections) -> None:
        self._config = config
        self._connections = connections
        self._offset = sql.Identifier(config["offset.column"])

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[spi.Partition]
    ) -> Sequence[spi.PartitionInfo]:
        with self._connections.borrow() as connection:
            return [self._info(connection, topic) for topic in topics]

    def fetch_schema(self, topic: str) -> pa.Schema:
        with self._connections.borrow() as connection:
            table = columns.describe(connection, topic, self._config.get("columns"))
        return table.readable(self._config["offset.column"])

    def fetch_topics(self) -> Sequence[str]:
        with self._connections.borrow() as connection:
            found = connection.execute(
                """
SELECT n.nspname, c.relname FROM pg_attribute a
    JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'p')
    JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE a.attname = %s AND NOT a.attisdropped AND a.atttypid = 'bigint'::regtype
    AND n.nspname NOT IN ('information_schema', 'pg_catalog', %s)
""",
                [self._config["offset.column"], self._config["state.schema"]],
            ).fetchall()
        return sorted(
            t if schema == "public" else f"{schema}.{t}" for schema, t in found
        )

    def fetch_offsets_at(
        self, timestamp_ms: int, partitions: Collection[spi.Partition]
    ) -> Mapping[spi.Partition, int | None]:
        column = self._config.get("timestamp.column")
        if column is None:
            msg = "no column of times is declared"
            raise spi.Unsupported(msg, remedy="set the option timestamp.column")
        query = sql.SQL(
            "SELECT min({offset}) FROM {table} WHERE {offset} < {horizon} "
            "AND {column} >= to_timestamp(%s::numeric / 1000)"
        )
        with self._connections.borrow() as connection:
            found = {}
            for partition in partitions:
                one = query.format(
                    offset=self._offset,
                    table=layout.table_of(partition.topic),
                    horizon=layout.HORIZON,
                    column=sql.Identifier(column),
                )
                row = connection.execute(one, [timestamp_ms]).fetchone()
                found[partition] = None if row is None else row[0]
        return found

    def fetch_extents(
        self, partition: spi.Partition, start: int, end: int, most: int | None
    ) -> Sequence[spi.Extent]:
        # The rows of a transaction are consecutive where it wrote nothing else: a run
        # ends where the difference of offset and row number changes.
        query = sql.SQL(
            """
SELECT min(o), max(o) + 1 FROM (
    SELECT {offset} AS o, {offset} - row_number() OVER (ORDER BY {offset}) AS run
    FROM (SELECT {offset} FROM {table} WHERE {offset} >= {start} AND {offset} < {end}
        AND {offset} < {horizon} ORDER BY {offset} LIMIT {most}) held) runs
GROUP BY run ORDER BY 1
"""
        ).format(
            offset=self._offset,
            table=layout.table_of(partition.topic),
            horizon=layout.HORIZON,
            start=start,
            end=end,
            # The last row is counted by the caller: one more shows that there are more.
            most=sql.Literal(None if most is None else most + 1),
        )
        with self._connections.borrow() as connection:
            return [
                spi.Extent(*found) for found in connection.execute(query).fetchall()
            ]

    def _info(self, connection: Connection, topic: str) -> spi.PartitionInfo:
        bounds = fetch_bounds(connection, self._connections, self._config, topic)
        return spi.PartitionInfo(
            spi.Partition(topic, 0),
            bounds.earliest,
            bounds.latest,
            incarnation=bounds.incarnation,
            written=bounds.written,
        )


class TableConsumerFactory(spi.ConsumerFactory):
    """Makes the two above; holds the connections of metadata."""

    CLAIMS = spi.Claims(replayable=True, durable=True, shared=True, redelivers=True)
    SPARSE_OFFSETS: ClassVar = True

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self._connections = Connections(config)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: spi.Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> TableConsumer:
        return TableConsumer(self.config, self._connections, partition, fields_to_read)

    def create_metadata_provider(self, client_id: str) -> TableMetadata:
        return TableMetadata(self.config, self._connections)

    def acknowledge(self, position: spi.Position) -> None:
        """Delete what is stored elsewhere, with ``delete.acknowledged``."""
        if not self.config["delete.acknowledged"]:
            return
        delete = sql.SQL("DELETE FROM {} WHERE {} < {}")
        for partition, offset in position.items():
            with self._connections.borrow() as connection, connection.transaction():
                bounds = fetch_bounds(
                    connection, self._connections, self.config, partition.topic
                )
                if position.incarnations.get(partition) != bounds.incarnation:
                    continue
                table = layout.table_of(partition.topic)
                column = sql.Identifier(self.config["offset.column"])
                stop = min(offset, bounds.latest)
                connection.execute(delete.format(table, column, stop))

    def claims(self) -> spi.Claims:
        if self.config["delete.acknowledged"]:
            return self.CLAIMS
        return spi.Claims(replayable=True, durable=True, shared=True)

    def close(self) -> None:
        self._connections.close()


def chosen_fields(schema: pa.Schema, fields: Sequence[str] | None) -> pa.Schema:
    """The columns of a schema that a reader needs; None means all."""
    if fields is None:
        return schema
    return pa.schema([column for column in schema if column.name in set(fields)])
