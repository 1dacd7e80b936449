"""Tables of Delta and Iceberg that tests write, and that another library reads."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.types import StringType
from tests.tables import sink_proving

import streamfactory
from streamfactory.backends.delta.committing import WritableDeltaTable
from streamfactory.backends.iceberg.committing import WritableIcebergTable
from streamfactory.spi import ConnectionFailed
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest
    from pyiceberg.table import Table

    from streamfactory.spi import Position
    from streamfactory.wiring.writing.sink import Sink

ID = pa.schema([("id", pa.int64())])


class Lake(ABC):
    """A folder with a table of one format.

    Args:
        folder: Is created with the table.
        name: Of the table.
    """

    kind: ClassVar[str]
    """The stream type."""
    committing: ClassVar[type[Any]]
    """What commits, at one attempt, what the committer has decided."""
    proof: ClassVar[sink_proving.Proof]
    config: dict[str, str]

    def __init__(self, folder: Path, name: str = "orders") -> None:
        self.folder = folder
        self.name = name

    def sink(self, **options: Any) -> Sink:
        return open_sink(self.config, options=options)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def last(self, writer: str = "w") -> tuple[int | None, Position | None]:
        """What another instance finds of a writer, which it claims."""
        with (
            self.sink() as sink,
            contextlib.closing(sink.committer(writer_id=writer)) as committer,
        ):
            last = committer.last()
            return (None, None) if last is None else (last.epoch, last.source_position)

    def position_behind(self) -> Position:
        """Of a reader that has read the table."""
        with streamfactory.open(self.config, follow=False) as stream:
            list(stream)
            return stream.position

    def changes_since(self, at: Position) -> list[int]:
        """The ids that a reader gets which continues at a position."""
        with streamfactory.open(self.config, start=at, follow=False) as stream:
            return [row for batch in stream for row in batch.rows["id"].to_pylist()]

    def truncate(self, at: Position) -> None:
        """Remove what lies before a position."""
        with open_admin(self.config) as admin:
            admin.truncate({p.id: offset for p, offset in at.items()})

    def disturb(
        self,
        monkeypatch: pytest.MonkeyPatch,
        action: Callable[[], object],
        times: int = 1,
    ) -> None:
        """Do something between a committer's look at the table and its commit."""
        commit, left = self.committing.commit, [None] * times

        def disturbed(*arguments: Any) -> bool:
            if left:
                left.pop()
                action()
            done: bool = commit(*arguments)
            return done

        monkeypatch.setattr(self.committing, "commit", disturbed)

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Create the table, without our code."""

    @abstractmethod
    def append(self, rows: dict[str, list[Any]]) -> None:
        """Commit rows, without our code."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """All rows, as the other library reads them."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The table's, as the other library has it."""

    @abstractmethod
    def data_files(self) -> list[Path]:
        """All that are stored, whether the table has them or not."""

    @abstractmethod
    def widen(self) -> None:
        """Add a column ``more`` and a row of 7 and x, without our code."""

    @abstractmethod
    def remove(self) -> None:
        """Remove the table, without our code."""

    @abstractmethod
    def lose_an_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the next commit succeed, and fail to say so."""


class DeltaLake(Lake):
    """A table in a folder, as deltalake has it."""

    kind = "delta"
    committing = WritableDeltaTable
    proof = sink_proving.DELTA

    def __init__(self, folder: Path, name: str = "orders") -> None:
        super().__init__(folder, name)
        self.path = folder / name
        self.config = {"streamType": "delta", "stream.delta.path": str(self.path)}

    def table(self) -> DeltaTable:
        return DeltaTable(str(self.path))

    def create(self, schema: pa.Schema) -> None:
        DeltaTable.create(str(self.path), schema)

    def append(self, rows: dict[str, list[Any]]) -> None:
        write_deltalake(str(self.path), pa.table(rows), mode="append")

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.table().to_pyarrow_table().to_pylist()
        return found

    def schema(self) -> pa.Schema:
        return pa.schema(self.table().schema())

    def data_files(self) -> list[Path]:
        return [*self.path.rglob("part-*.parquet")]

    def widen(self) -> None:
        rows = pa.table({"id": [7], "more": ["x"]})
        write_deltalake(str(self.path), rows, mode="append", schema_mode="merge")

    def remove(self) -> None:
        self.path.rename(self.folder / "before")

    def lose_an_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        commit = WritableDeltaTable.commit

        def lost(*arguments: Any) -> bool:
            commit(*arguments)
            monkeypatch.setattr(WritableDeltaTable, "commit", commit)
            what = "the answer is lost"
            raise ConnectionFailed(what)

        monkeypatch.setattr(WritableDeltaTable, "commit", lost)


class IcebergLake(Lake):
    """A table of a catalog in the folder, as pyiceberg has it."""

    kind = "iceberg"
    committing = WritableIcebergTable
    proof = sink_proving.ICEBERG

    def __init__(self, folder: Path, name: str = "orders") -> None:
        super().__init__(folder, name)
        self.identifier = f"shop.{name}"
        """The table's, in its catalog."""
        self.config = {
            "streamType": "iceberg",
            "stream.iceberg.table": self.identifier,
            "stream.iceberg.warehouse": str(folder),
        }

    @contextlib.contextmanager
    def catalog(self) -> Iterator[SqlCatalog]:
        self.folder.mkdir(exist_ok=True)
        catalog = SqlCatalog(
            "default",
            uri=f"sqlite:///{self.folder}/catalog.db",
            warehouse=f"file://{self.folder}",
        )
        with contextlib.closing(catalog):
            yield catalog

    @contextlib.contextmanager
    def table(self) -> Iterator[Table]:
        with self.catalog() as catalog:
            yield catalog.load_table(self.identifier)

    def create(self, schema: pa.Schema) -> None:
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists("shop")
            catalog.create_table(self.identifier, schema)

    def append(self, rows: dict[str, list[Any]]) -> None:
        with self.table() as table:
            table.append(pa.table(rows))

    def rows(self) -> list[dict[str, Any]]:
        with self.table() as table:
            found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
            return found

    def schema(self) -> pa.Schema:
        with self.table() as table:
            return table.schema().as_arrow()

    def data_files(self) -> list[Path]:
        return [*(self.folder / "shop" / self.name / "data").iterdir()]

    def widen(self) -> None:
        with self.table() as table, table.update_schema() as update:
            update.add_column("more", StringType())
        self.append({"id": [7], "more": ["x"]})

    def remove(self) -> None:
        with self.catalog() as catalog:
            catalog.drop_table(self.identifier)

    def lose_an_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        commit = SqlCatalog.commit_table

        def lost(*arguments: Any) -> Any:
            commit(*arguments)
            monkeypatch.setattr(SqlCatalog, "commit_table", commit)
            what = "the answer is lost"
            raise CommitStateUnknownException(what)

        monkeypatch.setattr(SqlCatalog, "commit_table", lost)


def staged(sink: Sink, epoch: int, numbers: list[int]) -> Any:
    """The message of a task of the writer ``w``."""
    rows = pa.record_batch([pa.array(numbers, pa.int64())], schema=ID)
    with contextlib.closing(
        sink.writer(rows.schema, writer_id="w", epoch=epoch)
    ) as writer:
        writer.write(rows)
        return writer.commit()
