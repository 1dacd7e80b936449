"""Copying the rows of an attempt into the database, before its epoch is decided."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final, LiteralString

import numpy as np
import pyarrow as pa
from psycopg import sql
from streamfactory import spi

from streamfactory_postgres import binary, columns, layout
from streamfactory_postgres.connection import Connection, Connections

ORDINAL: Final = "_ordinal"
"""Of staged tables: the number of a row within its attempt."""
_PART: Final = 8192
"""Rows that are sent at once, at most."""
_PART_BYTES: Final = 1 << 20
"""Of those rows, roughly: what is sent takes a multiple of them while it is made."""


class Load:
    """An open transaction, and the table that it copies rows into.

    Args:
        connections: Of the factory; the load returns its connection to it.
        config: The stream's configuration.
        context: Of the attempt.
        is_direct: Whether a committer of this process ends the transaction: rows go to
            the table itself then, and else to a staged one.
    """

    def __init__(
        self,
        connections: Connections,
        config: spi.StreamConfig,
        context: spi.WriteContext,
        *,
        is_direct: bool,
    ) -> None:
        self.attempt = context.attempt
        self.writer_id = context.writer_id
        self.epoch = context.epoch
        self.is_direct = is_direct
        self.rows = 0
        self._connections = connections
        self.connection: Connection = connections.take()
        try:
            begin(self.connection, config)
            self._open(config, context)
        except BaseException:
            self.connection.close()
            raise

    def write(self, rows: pa.RecordBatch) -> None:
        """Copy rows.

        Raises:
            spi.MessageTooLarge: permanent; a transaction cannot number so many rows.
        """
        check_rows(self.rows + len(rows))
        names = list(rows.schema.names)
        arrays = list(rows.columns)
        if self._number is not None:
            first = self._base + self.rows
            names.append(self._number)
            arrays.append(pa.array(np.arange(first, first + len(rows), dtype=np.int64)))
        kinds = self._kinds(names)
        is_binary = binary.KINDS.issuperset(kinds)
        copy = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT {})").format(
            self.target, _names(names), sql.SQL("binary" if is_binary else "csv")
        )
        batch = pa.RecordBatch.from_arrays(arrays, names=names)
        cursor = self.connection.cursor()
        with cursor.copy(copy) as copying:
            if is_binary:
                copying.write(binary.HEAD)
            # The server stores a part while the next one is made.
            size = max(1, min(_PART, len(rows) * _PART_BYTES // max(1, rows.nbytes)))
            for start in range(0, len(rows), size):
                part = batch.slice(start, size)
                copying.write(
                    binary.encode(part.columns, kinds)
                    if is_binary
                    else columns.text_of(part)
                )
            if is_binary:
                copying.write(binary.END)
        if cursor.rowcount != len(rows):
            msg = f"PostgreSQL took {cursor.rowcount} of {len(rows)} rows"
            raise spi.CorruptData(msg)
        self.rows += len(rows)

    def seal(self) -> Mapping[str, Any]:
        """End the attempt; the payload of its commit message."""
        if not self.is_direct:
            self.connection.execute("COMMIT")
            self._connections.give(self.connection)
        key = "attempt" if self.is_direct else "staged"
        name = self.attempt if self.is_direct else self._staged
        return {key: name, "rows": self.rows}

    def finish(self) -> None:
        """Return the connection, whose transaction has ended."""
        self._connections.give(self.connection)

    def discard(self) -> None:
        """Roll back; twice is allowed."""
        self.connection.close()

    def _kinds(self, names: list[str]) -> list[str]:
        """The types of columns of the target."""
        added = {self._number: "int8", self._change: "text"}
        found = zip(names, self._table.kinds(names), strict=True)
        return [kind or added[name] for name, kind in found]

    def _open(self, config: spi.StreamConfig, context: spi.WriteContext) -> None:
        table = columns.describe(self.connection, config.topic, config.get("columns"))
        offset: str = config["offset.column"]
        self._table, self._base = table, 0
        self._change: str | None = config.get("change.column")
        if self.is_direct and not config.given("key.columns"):
            self.target: sql.Composable = layout.table_of(config.topic)
            self._number = offset if table.has(offset) else None
            if self._number is not None:
                self._base = first_offset(self.connection)
            return
        self._number = ORDINAL
        self._staged = f"staged_{int(time.time() * 1000)}_{context.attempt}"
        kind = sql.SQL("UNLOGGED TABLE")
        self.target = sql.Identifier(config["state.schema"], self._staged)
        end = sql.SQL("")
        if self.is_direct:
            kind, end = sql.SQL("TEMPORARY TABLE"), sql.SQL("ON COMMIT DROP")
            self.target = sql.Identifier("pg_temp", self._staged)
        else:
            ensure_state(self.connection, config)
        names = table.writable(offset).names
        change = [
            sql.SQL("NULL::text AS {}").format(sql.Identifier(c))
            for c in (config.get("change.column"),)
            if c is not None and c not in names
        ]
        self.connection.execute(
            sql.SQL(
                "CREATE {} {} {} AS SELECT {}, 0::bigint AS {} FROM {} WITH NO DATA"
            ).format(
                kind,
                self.target,
                end,
                sql.SQL(", ").join([*map(sql.Identifier, names), *change]),
                sql.Identifier(ORDINAL),
                layout.table_of(config.topic),
            )
        )


class Loads:
    """The open transactions of a factory that its committers end. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimed: dict[str | None, int] = {}
        self._open: dict[str, Load] = {}

    def claim(self, writer_id: str | None) -> None:
        """A committer of a writer was made."""
        with self._lock:
            self._claimed[writer_id] = self._claimed.get(writer_id, 0) + 1

    def release(self, writer_id: str | None) -> None:
        """A committer of a writer was closed."""
        with self._lock:
            self._claimed[writer_id] -= 1

    def may_be_direct(self, writer_id: str | None) -> bool:
        """Whether a committer of this process will end the transaction of a load."""
        with self._lock:
            is_open = any(load.writer_id == writer_id for load in self._open.values())
            return self._claimed.get(writer_id, 0) > 0 and not is_open

    def add(self, load: Load) -> None:
        """Keep a load for the committer."""
        with self._lock:
            self._open[load.attempt] = load

    def find(self, attempt: str | None) -> Load | None:
        """A load that was added, and not removed."""
        with self._lock:
            return None if attempt is None else self._open.get(attempt)

    def remove(self, attempt: str) -> Load | None:
        """Forget a load."""
        with self._lock:
            return self._open.pop(attempt, None)

    def discard(self, writer_id: str | None, epoch: int, keep: Load | None) -> None:
        """Roll back the loads of a writer, up to an epoch, but for one."""
        with self._lock:
            gone = [
                load
                for load in self._open.values()
                if load is not keep
                and load.writer_id == writer_id
                and load.epoch <= epoch
            ]
            for load in gone:
                del self._open[load.attempt]
        for load in gone:
            load.discard()

    def close(self) -> None:
        """Roll back all."""
        with self._lock:
            loads, self._open = list(self._open.values()), {}
        for load in loads:
            load.discard()


def begin(
    connection: Connection,
    config: spi.StreamConfig,
    isolation: LiteralString = "READ COMMITTED",
) -> None:
    """Begin a transaction whose statements may take as long as they need.

    For locks of others they wait ``connection.timeout.millis``, then StreamTimeout is
    raised, and nothing was written.
    """
    connection.execute(f"BEGIN ISOLATION LEVEL {isolation}")
    connection.execute("SET LOCAL statement_timeout = 0")
    timeout = int(config["connection.timeout.millis"])
    connection.execute(f"SET LOCAL lock_timeout = {timeout}")


def ensure_state(connection: Connection, config: spi.StreamConfig) -> None:
    """Create the schema of state, where it is missing."""
    # The newest of its tables.
    name = sql.Identifier(config["state.schema"], "slots")
    found = connection.execute(
        "SELECT to_regclass(%s) IS NOT NULL", [name.as_string()]
    ).fetchone()
    if found != (True,):
        connection.execute(layout.state(config["state.schema"]))


def first_offset(connection: Connection) -> int:
    """The offset of the first row of the transaction.

    Raises:
        spi.Unsupported: misuse; the cluster has used up the ids that fit.
    """
    found = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
    assert found is not None
    if found[0] >= 1 << (63 - layout.ORDINAL_BITS):
        msg = f"transaction {found[0]} has no offset: its id exceeds 39 bits"
        raise spi.Unsupported(msg)
    return int(found[0]) << layout.ORDINAL_BITS


def check_rows(rows: int) -> None:
    """Refuse an epoch whose rows cannot be numbered.

    Raises:
        spi.MessageTooLarge: permanent.
    """
    if rows > layout.MOST_ROWS:
        msg = f"a transaction writes at most {layout.MOST_ROWS} rows"
        raise spi.MessageTooLarge(msg, remedy="write smaller epochs")


def _names(names: list[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
