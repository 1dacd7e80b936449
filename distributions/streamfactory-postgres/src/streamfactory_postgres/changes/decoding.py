"""Turns messages of ``pgoutput`` into rows with offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from streamfactory import spi

from streamfactory_postgres import columns, layout
from streamfactory_postgres.changes.messages import (
    Change,
    Commit,
    Message,
    Truncate,
    Values,
    parse,
)
from streamfactory_postgres.changes.numbering import offset_of
from streamfactory_postgres.changes.rows import Rows, text_of_change
from streamfactory_postgres.changes.transactions import Transactions
from streamfactory_postgres.connection import Connections


class Decoder:
    """Collects the rows behind an offset. One thread, and one session at a time.

    Args:
        config: Of the stream.
        connections: To look up types.
        topic: The table.
        fields: The columns that are read; None for all.
    """

    def __init__(
        self,
        config: spi.StreamConfig,
        connections: Connections,
        topic: str,
        fields: Sequence[str] | None,
    ) -> None:
        chosen: Sequence[str] | None = config.get("columns")
        self._wanted = [set(names) for names in (chosen, fields) if names is not None]
        self._connections = connections
        self._topic = topic
        self.next_offset = 0
        """Where the rows that were not taken begin."""
        self.seek(0, 0)

    def seek(self, start: int, oid: int) -> None:
        """Begin with the messages of a new session.

        Args:
            start: Changes before this offset are left out.
            oid: Of the table.
        """
        self.next_offset = self.rows_end = self._start = start
        self._oid = oid
        self._transactions = Transactions(oid)
        self._rows = Rows()
        self._schema = pa.schema([])
        self._indices: list[int] = []
        self._binary: list[bool] = []
        self._waiting: Message | None = None
        self._committed = start

    @property
    def ready(self) -> int:
        """Rows that can be taken."""
        return self._rows.ready

    def is_at(self, start: int) -> bool:
        """Whether what follows is what follows an offset."""
        return self.rows_end <= start <= self.next_offset

    @property
    def is_between(self) -> bool:
        """Whether nothing of a transaction is held."""
        return not self._transactions.is_open and not len(self._rows)

    def is_full(self, limits: spi.FetchLimits) -> bool:
        """Whether rows have to be taken before the next message."""
        if not self.ready:
            return False
        return (
            self._waiting is not None
            or self.ready >= limits.max_rows
            or self._rows.size >= limits.max_bytes
        )

    def decode(self, data: bytes) -> Commit | None:
        """Take a message.

        Returns:
            It, where it is a commit.

        Raises:
            spi.DataLossError: data_loss; the table was truncated.
            spi.Unsupported: misuse; a change lacks the old row.
        """
        if self._waiting is not None:
            self._apply(self._waiting)
        message = parse(data)
        if message is None:
            return None
        if isinstance(message, Change):
            if message.oid == self._oid:
                self._add(message)
            return None
        if isinstance(message, Truncate):
            self._truncate(message)
            return None
        if self._transactions.follow(message):
            self._hold(message)
        if not isinstance(message, Commit):
            return None
        self._rows.complete()
        self._committed = max(self._committed, offset_of(message.end))
        return message

    def take(self) -> tuple[pa.RecordBatch, pa.Int64Array, int]:
        """Remove the rows that are ready: with their offsets and bytes."""
        size = self._rows.size
        self.next_offset = self._rows.next_offset
        rows, offsets = self._rows.take(self._schema)
        self.rows_end = offsets[-1].as_py() + 1
        if self.is_between:
            self.next_offset = max(self.next_offset, self._committed)
        return rows, offsets, size

    def pass_over(self, reached: int) -> None:
        """Nothing was committed before a position in the WAL that was not taken."""
        if self.is_between:
            self.next_offset = max(self.next_offset, offset_of(reached))

    def _add(self, change: Change) -> None:
        if change.old is not None and change.whole:
            kind = "delete" if change.new is None else "update_before"
            self._add_row(kind, change.old)
        elif not change.whole:
            raise needs_identity(self._topic, offset=self._transactions.number())
        if change.new is not None:
            kind = "insert" if change.old is None else "update_after"
            self._add_row(kind, change.new)

    def _add_row(self, kind: str, values: Values) -> None:
        held = self._transactions
        offset = held.number()
        if offset < self._start:
            return
        chosen: Values = []
        for index, is_binary in zip(self._indices, self._binary, strict=True):
            value = values[index]
            # Bytes are sent as \x00ff.
            chosen.append(value[2:] if is_binary and value is not None else value)
        self._rows.add(offset, chosen, text_of_change(kind, held.lsn, held.time))

    def _truncate(self, message: Truncate) -> None:
        if self._oid not in message.oids:
            return
        self._transactions.begin_run()
        offset = self._transactions.number()
        self._transactions.begin_run()
        if offset >= self._start:
            self._truncated = offset
            self._hold(message)

    def _hold(self, message: Message) -> None:
        """What is behind the rows that are held, and does not apply to them."""
        if len(self._rows):
            self._rows.complete()
            self._waiting = message
        else:
            self._apply(message)

    def _apply(self, message: Message) -> None:
        self._waiting = None
        if isinstance(message, Truncate):
            msg = (
                f"table {self._topic!r} was truncated: the rows that it had were "
                "removed without a delete of each"
            )
            raise spi.DataLossError(
                msg,
                resume=self._truncated + 1,
                offset=self._truncated,
                remedy="set `out.of.range` to earliest or latest to continue with a "
                "loss record, or create the topic again",
            )
        self._install()

    def _install(self) -> None:
        """Look up the types of the table's columns, as they were at this change."""
        relation = self._transactions.relation
        assert relation is not None
        with self._connections.borrow() as connection:
            found = connection.execute(
                """
SELECT t.oid::bigint, coalesce(base.typname, t.typname),
    CASE WHEN t.typtype = 'd' THEN t.typtypmod END
FROM pg_type t LEFT JOIN pg_type base ON t.typtype = 'd' AND base.oid = t.typbasetype
WHERE t.oid = ANY(%s::oid[])
""",
                [[oid for _, oid, _ in relation.columns]],
            ).fetchall()
        types = {oid: (name, modifier) for oid, name, modifier in found}
        fields = []
        self._indices = []
        for index, (name, oid, modifier) in enumerate(relation.columns):
            if all(name in wanted for wanted in self._wanted):
                kind, own = types.get(oid, ("text", None))  # the type was dropped
                arrow = columns.arrow_type(kind, modifier if own is None else own)
                fields.append(pa.field(name, arrow))
                self._indices.append(index)
        self._schema = pa.schema(fields)
        self._binary = [pa.types.is_binary(field.type) for field in fields]


def needs_identity(topic: str, **where: Any) -> spi.Unsupported:
    """The refusal of a table whose updates and deletes have no old rows."""
    table = layout.table_of(topic).as_string()
    msg = f"updates and deletes of table {topic!r} have no old rows in the WAL"
    remedy = f"ALTER TABLE {table} REPLICA IDENTITY FULL, and create the topic again"
    return spi.Unsupported(msg, remedy=remedy, **where)
