"""Writing: an epoch, its number and its position are one transaction.

Where a committer of the same factory has claimed the writer (``copy``, ``publish``,
``put``), rows are copied into the table at once, in a transaction that the committer
ends. Tasks in other processes stage them in tables, which the committer moves.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql
from streamfactory import spi

from streamfactory_postgres import columns, layout, merging
from streamfactory_postgres.connection import Connection, Connections
from streamfactory_postgres.loading import (
    ORDINAL,
    Load,
    Loads,
    begin,
    check_rows,
    ensure_state,
    first_offset,
)


class TableWriter(spi.StreamWriter):
    """Copies the rows of one attempt."""

    def __init__(
        self, factory: TableProducerFactory, context: spi.WriteContext
    ) -> None:
        self._factory = factory
        self._load: Load | None = Load(
            factory.connections,
            factory.config,
            context,
            is_direct=factory.loads.may_be_direct(context.writer_id),
        )

    def write(self, outgoing: spi.Outgoing) -> None:
        assert self._load is not None
        self._load.write(outgoing.rows)

    def commit(self) -> Any:
        load = self._load
        assert load is not None
        payload = load.seal()
        self._load = None
        if load.is_direct:
            self._factory.loads.add(load)
        return payload

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        load, self._load = self._load, None
        if load is not None:
            load.discard()


class TableCommitter(spi.StreamCommitter):
    """Decides the epochs of one writer. One instance of it."""

    def __init__(self, factory: TableProducerFactory, writer_id: str | None) -> None:
        self._factory = factory
        self._config = factory.config
        self._writer = writer_id
        self._instance = uuid.uuid4().hex
        self._has_claimed = False
        factory.loads.claim(writer_id)

    def last(self) -> spi.LastCommit | None:
        if self._writer is None:
            return None
        self._claim()
        return self._factory.fetch_last_commit(self._writer)

    def commit(
        self,
        epoch: int,
        messages: Sequence[spi.CommitMessage],
        source_position: spi.Position | None = None,
    ) -> spi.LastCommit | None:
        return self._commit(epoch, messages, source_position, replaces=False)

    def replace(
        self,
        epoch: int,
        messages: Sequence[spi.CommitMessage],
        source_position: spi.Position | None = None,
    ) -> spi.LastCommit | None:
        return self._commit(epoch, messages, source_position, replaces=True)

    def abort(self, epoch: int, messages: Sequence[spi.CommitMessage]) -> None:
        payloads = [message.payload for message in messages if message.payload]
        for payload in payloads:
            load = self._factory.loads.remove(payload.get("attempt", ""))
            if load is not None:
                load.discard()
        with self._factory.connections.borrow() as connection:
            _drop(connection, self._config, payloads)

    def close(self) -> None:
        self._factory.loads.release(self._writer)

    def _commit(
        self,
        epoch: int,
        messages: Sequence[spi.CommitMessage],
        source_position: spi.Position | None,
        *,
        replaces: bool,
    ) -> spi.LastCommit | None:
        self._claim()
        payloads = [message.payload for message in messages if message.payload]
        attempts = [p["attempt"] for p in payloads if "attempt" in p]
        load = self._factory.loads.find(attempts[0] if attempts else None)
        if attempts and load is None:
            msg = f"the rows of epoch {epoch} are in a transaction of another process"
            raise spi.CorruptData(msg, remedy="repeat the epoch with its rows")
        connection = (
            self._factory.connections.take() if load is None else load.connection
        )
        try:
            if load is None:
                begin(connection, self._config)
            relation = columns.describe(connection, self._config.topic).relation
            # A savepoint: an instance that is fenced keeps what it has copied, for one
            # that is not.
            with connection.transaction():
                last = self._check(connection, relation, epoch)
            if last is None:
                # Their rows may have the keys of these, which would wait for them.
                self._factory.loads.discard(self._writer, epoch, load)
                self._append(connection, payloads, load, replaces=replaces)
                self._remember(connection, relation, epoch, messages, source_position)
            elif load is not None:
                connection.execute("ROLLBACK")
                begin(connection, self._config)
            _drop(connection, self._config, payloads)
        except spi.WriterFenced:
            if load is None:
                connection.close()
            raise
        except BaseException:
            self._forget(load)
            connection.close()
            raise
        self._forget(load)
        return self._end(connection, epoch, last)

    def _end(
        self, connection: Connection, epoch: int, last: spi.LastCommit | None
    ) -> spi.LastCommit | None:
        """Commit; where the answer is lost, look for what was committed."""
        try:
            connection.execute("COMMIT")
        except psycopg.OperationalError:
            connection.close()
            if last is None and not self._has_committed(epoch):
                raise
        else:
            self._factory.connections.give(connection)
        return last

    def _has_committed(self, epoch: int) -> bool:
        """Whether this instance committed an epoch, once its last session has ended."""
        if self._writer is None:
            return False
        borrowed = self._factory.connections.borrow()
        with borrowed as connection, connection.transaction():
            relation = columns.describe(connection, self._config.topic).relation
            found = _record(connection, self._config, relation, self._writer, lock=True)
        return found is not None and found[:2] == (self._instance, epoch)

    def _forget(self, load: Load | None) -> None:
        if load is not None:
            self._factory.loads.remove(load.attempt)

    def _claim(self) -> None:
        """Once: an instance that was fenced stays fenced."""
        if self._writer is None or self._has_claimed:
            return
        schema = self._config["state.schema"]
        with self._factory.connections.borrow() as connection:
            with connection.transaction():
                ensure_state(connection, self._config)
                relation = columns.describe(connection, self._config.topic).relation
                connection.execute(
                    sql.SQL(
                        "INSERT INTO {} (relation, writer, instance)"
                        " VALUES (%s, %s, %s) ON CONFLICT (relation, writer)"
                        " DO UPDATE SET instance = excluded.instance"
                    ).format(sql.Identifier(schema, "writers")),
                    [relation, self._writer, self._instance],
                )
            sweep(connection, self._config)
        self._has_claimed = True

    def _check(
        self, connection: Connection, relation: int, epoch: int
    ) -> spi.LastCommit | None:
        """Lock the writer; what it has committed, if that is this epoch or later."""
        if self._writer is None:
            return None
        found = _record(connection, self._config, relation, self._writer, lock=True)
        if found is None or found[0] != self._instance:
            msg = f"writer {self._writer!r} was claimed by a later instance"
            raise spi.WriterFenced(msg)
        last = _parse(found)
        return last if last is not None and epoch <= last.epoch else None

    def _append(
        self,
        connection: Connection,
        payloads: Sequence[Mapping[str, Any]],
        load: Load | None,
        *,
        replaces: bool,
    ) -> None:
        """Move the rows of all attempts into the table."""
        table = layout.table_of(self._config.topic)
        if replaces:
            connection.execute(
                sql.SQL(
                    "DELETE FROM {} WHERE xmin <> pg_current_xact_id()::xid"
                ).format(table)
            )
        staged = [
            (sql.Identifier(self._config["state.schema"], p["staged"]), p["rows"])
            for p in payloads
            if "staged" in p
        ]
        check_rows(sum(payload["rows"] for payload in payloads))
        if self._config.given("key.columns"):
            here = [] if load is None else [(load.target, load.rows)]
            for source, rows in [*here, *staged]:
                merging.merge(connection, self._config, source, rows)
            return
        done = 0 if load is None else load.rows
        for source, rows in staged:
            append(connection, self._config, source, rows, done)
            done += rows

    def _remember(
        self,
        connection: Connection,
        relation: int,
        epoch: int,
        messages: Sequence[spi.CommitMessage],
        position: spi.Position | None,
    ) -> None:
        notify = [layout.channel(relation)]
        connection.execute("SELECT pg_notify(%s, '')", notify)
        if self._writer is None:
            return
        summary = sum((message.summary for message in messages), spi.Summary())
        update = sql.SQL(
            "UPDATE {} SET epoch = %s, position = %s, rows = %s, sums = %s,"
            " committed = now() WHERE relation = %s AND writer = %s"
        ).format(sql.Identifier(self._config["state.schema"], "writers"))
        values = [
            epoch,
            None if position is None else position.to_json(),
            summary.rows,
            json.dumps(dict(summary.sums)),
        ]
        connection.execute(update, [*values, relation, self._writer])


class TableProducerFactory(spi.ProducerFactory):
    """Makes the two above; holds their connections and transactions."""

    CLAIMS = spi.Claims(
        replayable=True,
        durable=True,
        shared=True,
        idempotent=True,
        epoch_visibility=spi.EpochVisibility.WHOLE,
    )

    def __init__(self, config: spi.StreamConfig) -> None:
        super().__init__(config)
        self.connections = Connections(config)
        self.loads = Loads()

    def create_writer(self, context: spi.WriteContext) -> TableWriter:
        return TableWriter(self, context)

    def create_committer(self, writer_id: str | None) -> TableCommitter:
        return TableCommitter(self, writer_id)

    def fetch_last_commit(self, writer_id: str) -> spi.LastCommit | None:
        with self.connections.borrow() as connection:
            relation = columns.describe(connection, self.config.topic).relation
            ensure_state(connection, self.config)
            found = _record(connection, self.config, relation, writer_id)
        return None if found is None else _parse(found)

    def fetch_partition_count(self, topic: str) -> int:
        with self.connections.borrow() as connection:
            columns.describe(connection, topic)
        return 1

    def fetch_schema(self, topic: str) -> pa.Schema:
        with self.connections.borrow() as connection:
            schema = columns.describe(
                connection, topic, self.config.get("columns")
            ).writable(self.config["offset.column"])
        change = self.config.get("change.column")
        if change is not None and change not in schema.names:
            schema = schema.append(pa.field(change, pa.string()))
        return schema

    def close(self) -> None:
        self.loads.close()
        self.connections.close()


def append(
    connection: Connection,
    config: spi.StreamConfig,
    source: sql.Composable,
    rows: int,
    done: int,
) -> None:
    """Move staged rows to the end of the table.

    Args:
        connection: In the transaction of the epoch.
        config: Of the stream.
        source: The staged table.
        rows: How many it has to have.
        done: Rows of this transaction that are in the table.

    Raises:
        spi.CorruptData: data_loss; staged rows are missing: the server has crashed
            since, and empties unlogged tables.
    """
    table = columns.describe(connection, config.topic, config.get("columns"))
    offset: str = config["offset.column"]
    names = [sql.Identifier(name) for name in table.writable(offset).names]
    target, values = list(names), list[sql.Composable](names)
    if table.has(offset):
        target.append(sql.Identifier(offset))
        first = first_offset(connection) + done
        values.append(sql.SQL("{} + {}").format(first, sql.Identifier(ORDINAL)))
    moved = connection.execute(
        sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ORDER BY {}").format(
            layout.table_of(config.topic),
            sql.SQL(", ").join(target),
            sql.SQL(", ").join(values),
            source,
            sql.Identifier(ORDINAL),
        )
    )
    check_moved(moved.rowcount, rows)


def check_moved(moved: int, rows: int) -> None:
    """Refuse an epoch of which staged rows are missing."""
    if moved != rows:
        msg = f"{rows - moved} of {rows} staged rows are not in PostgreSQL any more"
        raise spi.CorruptData(msg, remedy="repeat the epoch with its rows")


def sweep(connection: Connection, config: spi.StreamConfig) -> None:
    """Drop staged tables that were never decided."""
    before = int(time.time() * 1000) - config["staged.retention.millis"]
    found = connection.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s)"
        " AND relname ~ '^staged_[0-9]{13}_' AND substr(relname, 8, 13)::bigint < %s",
        [sql.Identifier(config["state.schema"]).as_string(), before],
    ).fetchall()
    _drop(connection, config, [{"staged": name} for (name,) in found])


def _drop(
    connection: Connection,
    config: spi.StreamConfig,
    payloads: Sequence[Mapping[str, Any]],
) -> None:
    for payload in payloads:
        if "staged" in payload:
            name = sql.Identifier(config["state.schema"], payload["staged"])
            connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))


def _record(
    connection: Connection,
    config: spi.StreamConfig,
    relation: int,
    writer: str,
    *,
    lock: bool = False,
) -> tuple[Any, ...] | None:
    """Instance, epoch, position, rows and sums of a writer."""
    query = sql.SQL(
        "SELECT instance, epoch, position, rows, sums FROM {} "
        "WHERE relation = %s AND writer = %s {}"
    ).format(
        sql.Identifier(config["state.schema"], "writers"),
        sql.SQL("FOR UPDATE" if lock else ""),
    )
    return connection.execute(query, [relation, writer]).fetchone()


def _parse(found: tuple[Any, ...]) -> spi.LastCommit | None:
    _, epoch, position, rows, sums = found
    if epoch is None:
        return None
    return spi.LastCommit(
        epoch,
        None if position is None else spi.Position.from_json(position),
        spi.Summary(rows, json.loads(sums)),
    )
