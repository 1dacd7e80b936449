"""Converts fetched rows to rows of the declared schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.conversion.conform import Conformer, empty_rows
from streamfactory.spi import (
    ContractBroken,
    SchemaMismatch,
    envelope_schema,
    headers_type,
)
from streamfactory.spi.producer import TOMBSTONE
from streamfactory.wiring.decoding.deadletters import EVIDENCE
from streamfactory.wiring.decoding.typed_rows import OLDER_REMEDY, REMEDY

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from streamfactory.spi import Fetched, Partition
    from streamfactory.wiring.decoding.stage import DecodeStage
    from streamfactory.wiring.decoding.typed_rows import TypedRows

METADATA_FIELDS: Final = (
    pa.field("_topic", pa.string(), nullable=False),
    pa.field("_partition", pa.int32(), nullable=False),
    pa.field("_offset", pa.int64(), nullable=False),
)
ENVELOPE_FIELDS: Final = (
    pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("_key", pa.binary()),
)
_HEADERS: Final = pa.field("_headers", headers_type())
_TOMBSTONE: Final = pa.field(TOMBSTONE, pa.bool_(), nullable=False)
_EVIDENCE: Final = frozenset(field.name for field in EVIDENCE)


def metadata_fields(
    source: pa.Schema,
    *,
    headers: bool,
    tombstones: bool = False,
    key: pa.DataType | None = None,
    own: Collection[str] = (),
) -> list[pa.Field]:
    """Return the metadata columns that a stream can have.

    Args:
        source: Schema of the consumers' rows.
        own: Columns of the stream itself: each hides the metadata column of its name.
        headers: Whether ``_headers`` is included.
        tombstones: Whether ``_tombstone`` is included.
        key: Type of ``_key``, if keys are decoded.
    """
    fields = [*METADATA_FIELDS]
    if source.equals(envelope_schema()):
        time, raw_key = ENVELOPE_FIELDS
        fields += [time, raw_key if key is None else raw_key.with_type(key)]
        fields += [_HEADERS] if headers else []
        fields += [_TOMBSTONE] if tombstones else []
    return [field for field in fields if field.name not in own]


@final
class Shaper:
    """Converts the results of one consumer to the declared schema. Not thread-safe.

    Args:
        base: The rows' schema before columns are added: that of the source or the
            decoder.
        fields: Columns of it to return, in this order; None means all.
        added: Added columns: `metadata_fields`, and `EVIDENCE` if the stage has it.
        envelopes: Whether the consumer returns envelopes.
        stage: Decodes them; None if rows are not decoded.
        typed: Fits rows that are not decoded to ``base``; None if they are, or are
            envelopes.
        opened_at: Where the partition ended when ``base`` was its schema.
    """

    def __init__(
        self,
        base: pa.Schema,
        *,
        fields: Sequence[str] | None,
        added: Sequence[pa.Field],
        envelopes: bool,
        stage: DecodeStage | None,
        typed: TypedRows | None = None,
        opened_at: int | None = None,
    ) -> None:
        self._base = base
        self._known = frozenset(base.names)
        self._names = list(base.names if fields is None else fields)
        self.added = tuple(field.name for field in added)
        """Columns that the stream itself does not have."""
        self.schema = pa.schema([*(base.field(name) for name in self._names), *added])
        """The schema of every batch."""
        self._declared = Conformer(self.schema)
        self._empty = empty_rows(self.schema)
        self._envelopes = envelopes
        self._stage = stage
        self._typed = typed
        self._opened_at = opened_at

    @property
    def bad_messages(self) -> int:
        """Messages that could not be decoded, and discarded rows, so far."""
        rows = self._stage or self._typed
        return 0 if rows is None else rows.bad

    def begin_range(self) -> None:
        """Begin a planned range: reset the error budget."""
        rows = self._stage or self._typed
        if rows is not None:
            rows.begin_range()

    def offsets_of(self, fetched: Fetched) -> pa.Int64Array | None:
        """Return the offset of each row; None if they are consecutive."""
        if fetched.offsets is not None or fetched.rows is None:
            return fetched.offsets
        if not self._envelopes:
            return None
        if not fetched.rows.schema.equals(envelope_schema()):
            msg = "the consumer returned rows without the envelope schema"
            raise ContractBroken(msg)
        return fetched.rows.column("offset")

    def shape(
        self,
        rows: pa.RecordBatch | None,
        offsets: pa.Int64Array | None,
        start: int,
        partition: Partition,
    ) -> tuple[pa.RecordBatch, pa.Int64Array | None, pa.RecordBatch | None]:
        """Return rows of the declared schema, their offsets, and the dead letters.

        Offsets of None mean consecutive ones from ``start``.

        Raises:
            SchemaMismatch: permanent; the rows do not fit (rule D4).
            DecodeError: decode.
        """
        if rows is None:
            return self._empty, None, None
        if not isinstance(rows, pa.RecordBatch):
            msg = (
                f"the consumer returned a {type(rows).__name__}, expected a RecordBatch"
            )
            raise ContractBroken(msg)
        try:
            return self._shape(rows, offsets, start, partition)
        except SchemaMismatch as error:
            if self._typed is not None:
                # Offsets may have gaps: the rows can be far behind the start.
                first = offsets[0].as_py() if offsets else start
                error.remedy = error.remedy or self._remedy(rows.schema, first)
            raise

    def _remedy(self, given: pa.Schema, start: int) -> str:
        """What helps where typed rows do not fit the schema of the stream."""
        base = self._base
        if all(
            field.name in self._known and base.field(field.name).type == field.type
            for field in given
        ):
            return "the schema is that of the source: repair the rows there"
        older = self._opened_at is not None and start < self._opened_at
        return OLDER_REMEDY if older else REMEDY

    def _shape(
        self,
        rows: pa.RecordBatch,
        offsets: pa.Int64Array | None,
        start: int,
        partition: Partition,
    ) -> tuple[pa.RecordBatch, pa.Int64Array | None, pa.RecordBatch | None]:
        source = keys = letters = None
        shaped = rows
        if self._stage is not None:
            staged = self._stage.decode(rows)
            shaped, source, keys = staged.rows, staged.source, staged.keys
            letters = staged.letters
            if source is not None:
                assert offsets is not None
                offsets = offsets.take(source)
        elif self._typed is not None:
            shaped, offsets = self._typed.fit(rows, offsets, start)
        if self.added or len(self._names) != shaped.num_columns:
            if keys is not None:
                rows = rows.set_column(0, pa.field("key", keys.type), keys)
            shaped = self._assemble(rows, shaped, source, offsets, start, partition)
        return self._declared.conform(shaped), offsets, letters

    def close(self) -> None:
        """Close the decoder."""
        if self._stage is not None:
            self._stage.close()

    def _assemble(
        self,
        rows: pa.RecordBatch,
        shaped: pa.RecordBatch,
        source: pa.Array | None,
        offsets: pa.Int64Array | None,
        start: int,
        partition: Partition,
    ) -> pa.RecordBatch:
        have, count = shaped.schema.names, shaped.num_rows
        # Unselected columns are dropped here; `Conformer` reports unknown ones.
        kept = [n for n in have if n in self._names or n not in self._known]
        columns = {name: shaped.column(name) for name in kept}
        for name in self.added:
            if name == "_topic":
                column = pa.repeat(pa.scalar(partition.topic, pa.string()), count)
            elif name == "_partition":
                column = pa.repeat(pa.scalar(partition.id, pa.int32()), count)
            elif name == "_offset":
                column = pa.arange(start, start + count) if offsets is None else offsets
            elif name in _EVIDENCE:
                column = shaped.column(name)
            else:
                # `null` that a decoder returns for a value is no tombstone.
                deleted = name == TOMBSTONE
                column = (
                    rows.column("value").is_null() if deleted else rows.column(name[1:])
                )
                column = column if source is None else column.take(source)
            columns[name] = column
        return pa.RecordBatch.from_pydict(columns)
