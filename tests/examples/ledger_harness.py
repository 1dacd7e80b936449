"""Harness of the example ``ledger``: SQL of its own."""

from __future__ import annotations

import importlib
import sqlite3
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pathlib import Path

ledger: Any = importlib.import_module("ledger")
"""The module under test: `examples` has to be on the path, of children too."""


class LedgerHarness:
    """A database; a number is the text of an entry."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "none"

    @staticmethod
    def plugin() -> Any:
        return ledger

    def create(self, partitions: int) -> None:
        self._path = self._folder / f"{uuid.uuid4().hex}.db"
        with closing(sqlite3.connect(self._path)) as database:
            database.executescript(ledger.TABLES)
        self._run("INSERT INTO ledger VALUES (?)", uuid.uuid4().hex)
        self.grow(partitions)

    def properties(self) -> dict[str, str]:
        return {
            "streamType": "ledger",
            "stream.ledger.topic.name": "numbers",
            "stream.ledger.path": str(self._path),
        }

    def partitions(self) -> list[int]:
        return [number for (number,) in self._run("SELECT id FROM partitions")]

    def write(self, partition: int, numbers: list[int]) -> None:
        query = "SELECT latest FROM partitions WHERE id = ?"
        [(latest,)] = self._run(query, partition)
        with closing(sqlite3.connect(self._path)) as database, database:
            rows = [(partition, latest + n, str(v)) for n, v in enumerate(numbers)]
            database.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows)
            moved = (latest + len(numbers), partition)
            database.execute("UPDATE partitions SET latest = ? WHERE id = ?", moved)

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        return [int(text) for text in rows.column("text").to_pylist()]

    def grow(self, partitions: int) -> None:
        for number in range(len(self.partitions()), partitions):
            self._run("INSERT INTO partitions VALUES (?, 0, 0)", number)

    def truncate(self, partition: int, messages: int) -> None:
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute(
                "UPDATE partitions SET earliest = earliest + ? WHERE id = ?",
                (messages, partition),
            )
            database.execute(
                "DELETE FROM entries WHERE partition = ? AND offset < "
                "(SELECT earliest FROM partitions WHERE id = ?)",
                (partition, partition),
            )

    def recreate(self) -> None:
        with closing(sqlite3.connect(self._path)) as database, database:
            database.execute("DELETE FROM entries")
            database.execute("UPDATE partitions SET earliest = 0, latest = 0")
            database.execute("UPDATE ledger SET incarnation = ?", (uuid.uuid4().hex,))

    def nowhere(self) -> dict[str, str]:
        return {"stream.ledger.path": str(self._folder / "nowhere.db")}

    def rows(self, numbers: list[int]) -> pa.RecordBatch:
        return pa.record_batch({"text": pa.array(map(str, numbers), pa.string())})

    def visible(self) -> dict[int, list[int]]:
        query = "SELECT text FROM entries WHERE partition = ? ORDER BY offset"
        return {
            number: [int(text) for (text,) in self._run(query, number)]
            for number in self.partitions()
        }

    def close(self) -> None:
        """Nothing is held open."""

    def _run(self, statement: str, *values: object) -> list[Any]:
        with closing(sqlite3.connect(self._path)) as database, database:
            return database.execute(statement, values).fetchall()
