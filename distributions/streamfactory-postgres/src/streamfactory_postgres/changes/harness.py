"""The conformance kit's access to the changes of a table: plain SQL."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from psycopg import sql

from streamfactory_postgres import layout
from streamfactory_postgres.harness import PostgresHarness


class PostgresChangesHarness:
    """A table of numbers with a slot for each case. See `Harness`."""

    single_partition = True
    reasons: ClassVar[Mapping[str, str]] = {
        "single_partition": "the changes of a table are one partition",
        "truncate": "a slot keeps what is not acknowledged",
        "rows": "changes are written by programs that write the table",
    }

    def __init__(self, folder: Path) -> None:
        self.topic = ""

    @classmethod
    def prepare(cls) -> None:
        """Start the server; it ends with the process."""
        PostgresHarness.prepare()

    def create(self, partitions: int) -> None:
        self.prepare()
        if self.topic:
            self._drop()
        self.topic = f"t{uuid.uuid4().hex[:16]}"
        self._create()

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "postgres-changes",
            "stream.postgres-changes.topic.name": self.topic,
            **self._server().properties("postgres-changes"),
        }

    def partitions(self) -> Sequence[int]:
        return [0]

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        insert = sql.SQL("INSERT INTO {} VALUES (%s)").format(
            sql.Identifier(self.topic)
        )
        with self._server().connect() as connection:
            for number in numbers:  # a transaction each
                connection.execute(insert, [number])

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def recreate(self) -> None:
        self._drop()
        self._create()

    def nowhere(self) -> Mapping[str, str]:
        return {**self.properties(), "stream.postgres-changes.topic.name": "nowhere"}

    def acknowledged(self) -> Mapping[int, int]:
        query = (
            "SELECT acknowledged FROM streamfactory.slots "
            "WHERE relation = to_regclass(%s)"
        )
        with self._server().connect() as connection:
            found: Any = connection.execute(query, [self.topic]).fetchone()
        return {0: found[0]}

    def stop(self) -> None:
        self._server().stop()

    def start(self) -> None:
        self._server().start()

    def freeze(self) -> None:
        self._server().freeze()

    def thaw(self) -> None:
        self._server().thaw()

    def refused_login(self) -> Mapping[str, str]:
        return {"stream.postgres-changes.password": "wrong"}

    def close(self) -> None:
        if self.topic:
            self._drop()

    def _server(self) -> Any:
        return PostgresHarness._server

    def _create(self) -> None:
        with self._server().connect() as connection:
            connection.execute(layout.state("streamfactory"))
            table = sql.Identifier(self.topic)
            for statement in (
                "CREATE TABLE {} (number bigint NOT NULL)",
                "ALTER TABLE {} REPLICA IDENTITY FULL",
            ):
                connection.execute(sql.SQL(statement).format(table))
            oid: Any = connection.execute("SELECT %s::regclass::oid", [self.topic])
            name = f"streamfactory_{oid.fetchone()[0]}"
            connection.execute(
                sql.SQL("CREATE PUBLICATION {} FOR TABLE {}").format(
                    sql.Identifier(name), table
                )
            )
            connection.execute(
                "INSERT INTO streamfactory.slots "
                "SELECT %s, %s::regclass, lsn, 0, "
                "(lsn - '0/0')::bigint >> 5 << 16, lsn, now() "
                "FROM pg_create_logical_replication_slot(%s, 'pgoutput')",
                [name, self.topic, name],
            )

    def _drop(self) -> None:
        with self._server().connect() as connection:
            found: Any = connection.execute(
                "DELETE FROM streamfactory.slots WHERE relation = to_regclass(%s) "
                "RETURNING slot",
                [self.topic],
            ).fetchall()
            for (name,) in found:
                connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
                publication = sql.SQL("DROP PUBLICATION IF EXISTS {}")
                connection.execute(publication.format(sql.Identifier(name)))
            drop = sql.SQL("DROP TABLE IF EXISTS {}")
            connection.execute(drop.format(sql.Identifier(self.topic)))
