"""From events to rows: which states of a row an event has, and the rows of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.casting import isolated
from streamfactory.decoders.columns.misfits import without
from streamfactory.decoders.debezium.layout import (
    CHANGE,
    COMMIT_TIME,
    OPERATION,
    SOURCE,
    TIME,
)
from streamfactory.spi import Decoded
from streamfactory.spi.ddl import type_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.decoders.columns.messages import BadMessages
    from streamfactory.decoders.debezium.encodings import Encoding
    from streamfactory.decoders.debezium.layout import Layout

_INSERT, _BEFORE, _AFTER, _DELETE, _TRUNCATE = _KINDS = (
    "insert",
    "update_before",
    "update_after",
    "delete",
    "truncate",
)
"""Values of ``_change``: as in the streams of tables, and ``truncate``."""
_COMPLETE: Final = (_KINDS.index(_INSERT), _KINDS.index(_AFTER))
_KNOWN: Final = pa.array(["c", "r", "u", "d", "t"])
_NO_EVENT: Final = (
    "the message is not a change event: it has no op; topics of schema changes, "
    "heartbeats and transactions are read with json or avro"
)


@dataclass(frozen=True, slots=True)
class Events:
    """The envelopes of a batch, one entry per event."""

    messages: np.ndarray
    """Index of the message of each, ascending."""
    operations: pa.StringArray
    has_before: np.ndarray
    has_after: np.ndarray
    times: pa.TimestampArray
    """When the connector processed the event."""
    commit_times: pa.TimestampArray
    """When the database made the change."""
    source: pa.StructArray | None
    """The declared fields of the source; None if there are none."""


@final
class Images:
    """The states of rows in a batch: those before and after each event, in order.

    Args:
        events: The events.
        truncate: ``error``, ``skip`` or ``row``.
        findings: Receives the events that are bad.
    """

    def __init__(self, events: Events, truncate: str, findings: BadMessages) -> None:
        found = events.operations
        known = np.asarray(pc.is_in(found, value_set=_KNOWN))
        missing = np.asarray(found.is_null())
        is_ = {op: np.asarray(pc.equal(found, op).fill_null(False)) for op in "udt"}
        update, delete = is_["u"], is_["d"]
        complete = known & ~delete & ~is_["t"]
        _refuse(events, findings, missing, "schema", _NO_EVENT)
        what = "the operation of the event is none of c, r, u, d and t"
        _refuse(events, findings, ~known & ~missing, "operation", what)
        what = "the event has no state after the change"
        _refuse(events, findings, complete & ~events.has_after, "schema", what)
        what = "the event of a delete has no state before it"
        _refuse(events, findings, delete & ~events.has_before, "schema", what)
        if truncate == "error":
            what = "the table was truncated: set truncate to skip, or to row"
            _refuse(events, findings, is_["t"], "truncate", what)
        before = np.flatnonzero((update | delete) & events.has_before)
        after = np.flatnonzero(complete & events.has_after)
        order = np.sort(np.concatenate([2 * before, 2 * after + 1]))
        self.events = order // 2
        """The event of each image, ascending."""
        self.is_after = order % 2 == 1
        """Whether an image is the state after its event; the one before it comes
        first."""
        of_update = update[self.events]
        self.kinds = np.where(
            of_update,
            np.where(self.is_after, _KINDS.index(_AFTER), _KINDS.index(_BEFORE)),
            np.where(self.is_after, _KINDS.index(_INSERT), _KINDS.index(_DELETE)),
        )
        """Index of the kind of change of each."""
        self.truncated = np.flatnonzero(is_["t"]) if truncate == "row" else order[:0]
        """Events that become a row of nulls."""

    def __len__(self) -> int:
        return len(self.events)


def _refuse(
    events: Events, findings: BadMessages, which: np.ndarray, code: str, what: str
) -> None:
    findings.add(events.messages[which], code, what)


@dataclass(slots=True)
class TableRows:
    """Collects the decoded images of a batch."""

    layout: Layout
    events: Events
    images: Images
    findings: BadMessages
    unavailable: str
    """Text that stands for a value that the database did not log."""
    unavailable_is_null: bool
    _parts: list[pa.RecordBatch] = field(default_factory=list)
    _images: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        layout: Layout,
        events: Events,
        findings: BadMessages,
        options: Mapping[str, Any],
    ) -> Self:
        """Prepare for the events of a batch, by the options of the decoder."""
        return cls(
            layout,
            events,
            Images(events, options["truncate"], findings),
            findings,
            options["unavailable.value.placeholder"],
            options["unavailable.values"] == "null",
        )

    def add(
        self, columns: Sequence[pa.Array], encodings: Sequence[Encoding], at: np.ndarray
    ) -> None:
        """Add rows.

        Args:
            columns: As they were decoded, in the order of the table's columns.
            encodings: Of each column.
            at: Image of each row, ascending.
        """
        made = [
            self._converted(column, one, encoding, at)
            for column, one, encoding in zip(
                columns, self.layout.table, encodings, strict=True
            )
        ]
        schema = pa.schema([one.with_nullable(True) for one in self.layout.table])
        self._parts.append(pa.RecordBatch.from_arrays(made, schema=schema))
        self._images.append(at)

    def messages_of(self, images: np.ndarray) -> np.ndarray:
        """The index of the message of each image."""
        found: np.ndarray = self.events.messages[self.images.events[images]]
        return found

    def _converted(
        self, column: pa.Array, one: pa.Field, encoding: Encoding, at: np.ndarray
    ) -> pa.Array:
        column = self._available(column, one.name, at)
        convert = encoding.convert
        if convert is not None:
            column, wrong = isolated(
                column, lambda piece: convert(piece, one.type), one.type
            )
            what = f"column {one.name!r} does not contain a valid "
            self._fault(wrong, at, one.name, "value", what + type_text(one.type))
        if not one.nullable and column.null_count:
            complete = np.isin(self.images.kinds[at], _COMPLETE)
            missing = np.flatnonzero(np.asarray(column.is_null()) & complete)
            what = f"column {one.name!r} is null but not nullable"
            self._fault(missing, at, one.name, "null", what)
        return column

    def _available(self, column: pa.Array, name: str, at: np.ndarray) -> pa.Array:
        kind = column.type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            return column
        text = pa.scalar(self.unavailable.encode(), pa.binary()).cast(kind)
        absent = np.flatnonzero(pc.fill_null(pc.equal(column, text), False))
        if not len(absent):
            return column
        if not self.unavailable_is_null:
            what = (
                f"column {name!r} was not changed, and its value is not in the event: "
                "set unavailable.values to null, or log full rows in the database "
                "(REPLICA IDENTITY FULL)"
            )
            self.findings.add(self.messages_of(at[absent]), "unavailable", what)
        return without(column, absent)

    def _fault(
        self, rows: np.ndarray, at: np.ndarray, name: str, code: str, what: str
    ) -> None:
        """Report rows: one that does not fit takes the other one of its event along."""
        messages = self.messages_of(at[rows])
        if self.findings.misfits.salvage:
            self.findings.misfits.add(messages, name, what)
        else:
            self.findings.add(messages, code, what)

    def decoded(self) -> Decoded:
        """The rows of good messages, in order, with the columns of their events."""
        events, layout = self.events, self.layout
        cut = self.images.truncated
        schema = pa.schema([one.with_nullable(True) for one in layout.table])
        blank = [pa.nulls(len(cut), one.type) for one in schema]
        parts = [*self._parts, pa.RecordBatch.from_arrays(blank, schema=schema)]
        rows = pa.concat_batches(parts)
        images = np.concatenate([*self._images, cut[:0]]).astype(np.int64)
        of_event = np.concatenate([self.images.events[images], cut])
        kinds = np.concatenate(
            [self.images.kinds[images], np.full(len(cut), _KINDS.index(_TRUNCATE))]
        )
        messages = events.messages[of_event]
        order = np.lexsort([kinds, messages])
        kept = ~np.isin(messages[order], self.findings.messages)
        of_row, order = messages[order], order[kept]
        rows, of_event = rows.take(pa.array(order)), of_event[order]
        at = pa.array(of_event)
        added: dict[str, pa.Array | None] = {
            CHANGE: pa.array(_KINDS),
            COMMIT_TIME: events.commit_times,
            OPERATION: events.operations,
            TIME: events.times,
            SOURCE: events.source,
        }
        columns = []
        for name in layout.schema.names:
            column = added.get(name)
            if column is None:
                columns.append(rows.column(name))
            else:
                index = pa.array(kinds[order]) if name == CHANGE else at
                columns.append(column.take(index))
        made = pa.RecordBatch.from_arrays(columns, schema=layout.schema)
        misfits = self.findings.misfits
        reported = misfits.reported(of_row, kept)
        source = pa.array(of_row[kept], pa.int32())
        lookalikes = sorted(misfits.lookalikes)
        return Decoded(made, source, self.findings.errors, reported, lookalikes)
