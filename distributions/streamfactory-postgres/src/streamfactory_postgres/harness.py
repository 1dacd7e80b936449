"""The conformance kit's access to PostgreSQL: plain SQL, nothing of the backend.

One server is started for the process. Only its tables are made by `layout`, as
``topics create`` makes them.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from psycopg import sql

from streamfactory_postgres import layout
from streamfactory_postgres.server import Server

_SCHEMA = pa.schema([pa.field("number", pa.int64(), nullable=False)])


class PostgresHarness:
    """A table of numbers for each case, in one server. See `Harness`."""

    single_partition = True
    reasons: ClassVar[Mapping[str, str]] = {
        "single_partition": "a table is one partition",
    }
    _server: ClassVar[Server | None] = None

    def __init__(self, folder: Path) -> None:
        self.topic = ""

    @classmethod
    def prepare(cls) -> None:
        """Start the server; it ends with the process."""
        if cls._server is None:
            folder = Path(tempfile.mkdtemp(prefix="streamfactory-postgres-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            server = Server(folder)
            server.start()
            atexit.register(server.close)
            cls._server = server

    def create(self, partitions: int) -> None:
        self.prepare()
        self.topic = f"t{uuid.uuid4().hex[:16]}"
        self._create()

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "postgres",
            "stream.postgres.topic.name": self.topic,
            "stream.postgres.columns": "number",
            "stream.postgres.timestamp.column": "at",
            **self._running().properties(),
        }

    def partitions(self) -> Sequence[int]:
        return [0]

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        insert = sql.SQL("INSERT INTO {} (number) SELECT * FROM unnest(%s::bigint[])")
        notify = sql.SQL("SELECT pg_notify('streamfactory_' || %s::regclass::oid, '')")
        with self._running().connect() as connection, connection.transaction():
            table = sql.Identifier(self.topic)
            connection.execute(insert.format(table), [list(numbers)])
            connection.execute(notify, [self.topic])

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        found: list[int] = rows.column("number").to_pylist()
        return found

    def truncate(self, partition: int, messages: int) -> None:
        delete = sql.SQL(
            "DELETE FROM {0} WHERE _offset IN "
            "(SELECT _offset FROM {0} ORDER BY _offset LIMIT %s)"
        )
        with self._running().connect() as connection:
            connection.execute(delete.format(sql.Identifier(self.topic)), [messages])

    def recreate(self) -> None:
        with self._running().connect() as connection:
            drop = sql.SQL("DROP TABLE {}").format(sql.Identifier(self.topic))
            connection.execute(drop)
        self._create()

    def nowhere(self) -> Mapping[str, str]:
        return {**self.properties(), "stream.postgres.topic.name": "nowhere"}

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        return pa.record_batch([pa.array(numbers, pa.int64())], schema=_SCHEMA)

    def visible(self) -> Mapping[int, Sequence[int]]:
        query = sql.SQL("SELECT number FROM {} ORDER BY _offset")
        with self._running().connect() as connection:
            found: Any = connection.execute(query.format(sql.Identifier(self.topic)))
            return {0: [number for (number,) in found.fetchall()]}

    def stop(self) -> None:
        self._running().stop()

    def start(self) -> None:
        self._running().start()

    def freeze(self) -> None:
        self._running().freeze()

    def thaw(self) -> None:
        self._running().thaw()

    def refused_login(self) -> Mapping[str, str]:
        return {"stream.postgres.password": "wrong"}

    def close(self) -> None:
        if self.topic:
            with self._running().connect() as connection:
                drop = sql.SQL("DROP TABLE IF EXISTS {}")
                connection.execute(drop.format(sql.Identifier(self.topic)))

    def _running(self) -> Server:
        assert self._server is not None
        return self._server

    def _create(self) -> None:
        with self._running().connect() as connection:
            connection.execute(layout.state("streamfactory"))
            create = (
                "CREATE TABLE {} (number bigint NOT NULL, _offset bigint PRIMARY KEY, "
                "at timestamptz DEFAULT clock_timestamp())"
            )
            connection.execute(sql.SQL(create).format(sql.Identifier(self.topic)))
            connection.execute(layout.adopt(self.topic, "_offset", "streamfactory"))
