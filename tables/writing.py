"""Appends epochs to tables: the producer factory and the committer of every format.

A task stages data files beside the table. The committer makes one commit of all of
them, with a `Marker`: writer, epoch and source position, which the format keeps in the
table itself. A format implements `WritableTable`.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.arrowlog.disk.places import object_storage
from streamfactory.arrowlog.disk.rules import scheme_of
from streamfactory.spi import (
    Claims,
    ClosedError,
    EpochVisibility,
    IncarnationChanged,
    ProducerFactory,
    TopicNotFound,
    Unsupported,
)
from streamfactory.tables.columns import FIELDS, NAMES
from streamfactory.tables.committing import TableCommitter, tries
from streamfactory.tables.evolving import evolution, steps
from streamfactory.tables.keyed import KeyedChanges, check_key
from streamfactory.tables.matching import bare
from streamfactory.tables.options import PARTITIONS
from streamfactory.tables.staging import TableWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.spi import (
        LastCommit,
        StreamCommitter,
        StreamConfig,
        StreamWriter,
        WriteContext,
    )
    from streamfactory.tables.writable import Seen, WritableTable


class TableProducerFactory(ProducerFactory):
    """Writes one table, which its first writer creates. A format opens it."""

    CLAIMS: ClassVar = Claims(
        replayable=True,
        durable=True,
        shared=True,
        idempotent=True,
        epoch_visibility=EpochVisibility.WHOLE,
    )

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._lock = threading.Lock()
        self._table: WritableTable | None = None
        self._identity: str | None = None
        self._closed = False
        self.key = key_of(config)
        """Columns by which rows are written; none: rows are appended."""
        self.keeps_partitions = config["overwrite"] == PARTITIONS
        """Whether one that replaces rows keeps those of partitions it has none of."""

    @abstractmethod
    def open_table(self) -> WritableTable:
        """Open what the configuration names; there need not be a table yet."""

    def table(self) -> WritableTable:
        """The table, opened by the first call."""
        with self._lock:
            if self._closed:
                what = "the factory is closed"
                raise ClosedError(what)
            if self._table is None:
                self._table = self.open_table()
            return self._table

    def look(self) -> Seen:
        """The table as of now.

        Raises:
            TopicNotFound: permanent; there is none.
            IncarnationChanged: data_loss; it is another one than at the first look.
        """
        seen = self.table().look()
        with self._lock:
            expected = self._identity = self._identity or seen.identity
        if seen.identity != expected:
            what = "the table was made again while it was written to"
            raise IncarnationChanged(
                what,
                expected=expected,
                found=seen.identity,
                stream=self.config.name,
                remedy="to continue in the new one, open the sink again and name the "
                "epoch once with `epoch.adopt`",
            )
        return seen

    def create_writer(self, context: WriteContext) -> StreamWriter:
        try:
            seen = self.look()
        except TopicNotFound:
            if context.schema is None:
                raise
            self.table().create(columns_of_new(context.schema, self.config))
            seen = self.look()
        if (
            self.config.get("schema.contract") == "evolve"
            and context.schema is not None
        ):
            seen = self._evolve(seen, context.schema)
        changes = None
        if self.key:
            check_key(seen.schema, self.key)
            changes = KeyedChanges(self.key, self.config["key.max.bytes"])
        return TableWriter(self.table().storage, context, seen, changes)

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return TableCommitter(self, writer_id)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        try:
            held = self.table().marker(self.look(), writer_id)
        except TopicNotFound:
            return None
        return None if held is None else held.last()

    def fetch_partition_count(self, topic: str) -> int:
        return 1

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        try:
            schema = bare(self.look().schema)
        except TopicNotFound:
            return None
        return self._with_changes(schema)

    def evolve_schema(self, topic: str, rows: pa.Schema) -> pa.Schema | None:
        try:
            seen = self.look()
        except TopicNotFound:
            return None
        found = self._evolution(seen, rows)
        for step in steps(bare(seen.schema), found):
            self.table().check_type(step)
        return self._with_changes(found)

    def _with_changes(self, schema: pa.Schema) -> pa.Schema:
        """The columns that rows may have: with a key, those of changes, too."""
        if not self.key:
            return schema
        check_key(schema, self.key)
        # A row that is deleted may have its key only.
        return pa.schema([one.with_nullable(True) for one in (*schema, *FIELDS)])

    def _evolution(self, seen: Seen, rows: pa.Schema) -> pa.Schema:
        own = columns_of_new(rows, self.config)
        return evolution(seen.schema, own, widens=self.table().widens(seen))

    def _evolve(self, seen: Seen, rows: pa.Schema) -> Seen:
        """Give the table the columns of rows, unless it has them.

        In a commit before that of the rows: an epoch that is not committed leaves the
        columns, which are null, and finds them when it comes again.
        """
        for _ in tries("the commit of new columns"):
            changed = list(steps(bare(seen.schema), self._evolution(seen, rows)))
            if not changed:
                break
            self.table().evolve(seen, changed)
            seen = self.look()
        return seen

    def close(self) -> None:
        with self._lock:
            table, self._table, self._closed = self._table, None, True
        if table is not None:
            table.close()


def key_of(config: StreamConfig) -> Sequence[str]:
    """The columns by which rows are written; none: rows are appended."""
    return config.get("producer.key.columns") or ()


def columns_of_new(schema: pa.Schema, config: StreamConfig) -> pa.Schema:
    """The columns of a new table for rows of a schema.

    Raises:
        Unsupported: misuse; rows are changes, and there is no key to apply them by.
        SchemaMismatch: permanent; see `check_key`.
    """
    key = key_of(config)
    if key:
        schema = pa.schema([one for one in schema if one.name not in NAMES])
        check_key(schema, key)
    taken = [name for name in NAMES if name in schema.names]
    if taken:
        what = f"a table cannot be created with the column {taken[0]!r}: without a "
        what += "key, rows are appended, and updates and deletes are not applied"
        remedy = "set producer.key.columns to apply them; to append rows, read the "
        remedy += "source with change.columns=false"
        raise Unsupported(what, remedy=remedy)
    return schema


def table_storage(config: StreamConfig, location: str) -> Storage:
    """The storage of the folder, or the URL, of a table that is written.

    Raises:
        NotInstalled: plugin; what object stores need is missing.
    """
    if scheme_of(location):
        return object_storage(config, location)
    return LocalStorage(Path(location))
