"""Converts dead letters back to messages or rows."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.conversion.conform import conform
from streamfactory.spi import CorruptData, Partition, envelope_schema, headers_type
from streamfactory.transfer.conversion import Converted
from streamfactory.wiring.decoding.deadletters import (
    DEAD_LETTER_SCHEMA,
    EVIDENCE,
    failed_now,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from streamfactory.spi import MessageBatch
    from streamfactory.wiring.decoding.deadletters import Bad
    from streamfactory.wiring.decoding.stage import DecodeStage, Staged
    from streamfactory.wiring.reading.source import Source

_LETTERS: Final = pa.schema([f.with_nullable(True) for f in DEAD_LETTER_SCHEMA])


@dataclass(slots=True)
class Again:
    """Counters of a replay."""

    others: int = 0
    """Dead letters of other streams."""


@final
class Messages:
    """Converts dead letters to the original messages, with key, headers and timestamp.

    Args:
        stream: The stream whose dead letters are converted; None for all.
        met: Counts those of other streams.
    """

    def __init__(self, stream: str | None, met: Again) -> None:
        self._stream = stream
        self._met = met
        self.schema = pa.schema(
            [
                pa.field("value", pa.binary()),
                pa.field("_key", pa.binary()),
                pa.field("_headers", headers_type()),
                pa.field("_timestamp", pa.timestamp("us", tz="UTC")),
            ]
        )

    def apply(self, batch: MessageBatch) -> Converted:
        """See `Conversion`: nothing is decoded, so nothing is bad."""
        letters, _ = own_letters(batch, self._stream, self._met)
        # A message of which several rows were bad is one message.
        whole = letters.filter(_first_of_each(letters))
        names = ("value", "key", "headers", "timestamp")
        columns = [whole.column(name) for name in names]
        return Converted(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def close(self) -> None:
        """See `Conversion`."""


@final
class Rows:
    """Decodes dead letters again to rows.

    Args:
        source: Their original stream, as it is configured now.
        count: Number of partitions of the sink, if rows of one partition stay together;
            None if keys determine it.
        met: Counts dead letters of other streams.
        left_out: Metadata columns that the sink has no column for.
    """

    def __init__(
        self,
        source: Source,
        count: int | None,
        met: Again,
        left_out: Collection[str] = (),
    ) -> None:
        self._source = source
        self._count = count
        self._met = met
        self._stages: dict[Partition, DecodeStage] = {}
        evidence = [field.name for field in EVIDENCE]
        without = {*evidence, "_partition", *left_out}
        fields = [field for field in source.schema if field.name not in without]
        if count is not None:
            fields.append(pa.field("_partition", pa.int32(), nullable=False))
        self.schema = pa.schema(fields)

    def apply(self, batch: MessageBatch) -> Converted:
        """See `Conversion`: messages that are bad again are dead letters again."""
        letters, places = own_letters(batch, self._source.config.name, self._met)
        parts = [pa.RecordBatch.from_pylist([], schema=self.schema)]
        again: list[pa.RecordBatch] = []
        offsets: list[pa.Array] = []
        named = (letters.column(name).to_pylist() for name in ("topic", "partition"))
        for partition in sorted(
            {Partition(*pair) for pair in zip(*named, strict=True)}
        ):
            chosen = pc.and_(
                pc.equal(letters.column("topic"), partition.topic),
                pc.equal(letters.column("partition"), partition.id),
            )
            part = letters.filter(chosen)
            rows, bad = self._decoded(partition, part)
            parts.append(rows)
            if bad:
                index = pa.array([one.index for one in bad], pa.int64())
                again.append(self._again(part.take(index), bad))
                offsets.append(places.filter(chosen).take(index))
        rows = pa.concat_batches(parts)
        if not again:
            return Converted(rows)
        return Converted(rows, pa.concat_batches(again), pa.concat_arrays(offsets))

    def close(self) -> None:
        """Close the decoders."""
        stages, self._stages = self._stages, {}
        with ExitStack() as last:
            for stage in stages.values():
                last.callback(stage.close)

    def _decoded(
        self, partition: Partition, letters: pa.RecordBatch
    ) -> tuple[pa.RecordBatch, list[Bad]]:
        """Return the rows of one partition, and the dead letters that are bad again."""
        stage = self._stages.get(partition)
        if stage is None:
            made = self._source.decode_stage(partition)
            assert made is not None
            stage = self._stages[partition] = made
        staged = stage.decode(_envelopes(letters))
        source = staged.source
        if source is None:
            source = pa.arange(0, staged.rows.num_rows).cast(pa.int32())
        wanted = letters.column("ordinal")
        mine = _ordinals(source, staged.bad)
        asked = wanted.take(source)
        kept = pc.or_kleene(asked.is_null(), pc.equal(asked, mine))
        rows, source = staged.rows.filter(kept), source.filter(kept)
        columns = [
            self._column(field.name, rows, source, letters, staged, partition)
            for field in self.schema
        ]
        bad = [
            one
            for one in staged.bad
            if wanted[one.index].as_py() in (None, one.ordinal) or one.ordinal is None
        ]
        plain = pa.RecordBatch.from_arrays(columns, names=self.schema.names)
        return conform(plain, self.schema), bad

    def _column(
        self,
        name: str,
        rows: pa.RecordBatch,
        source: pa.Array,
        letters: pa.RecordBatch,
        staged: Staged,
        partition: Partition,
    ) -> pa.Array:
        if name == "_partition" and self._count is not None:
            home = pa.scalar(partition.id % self._count, pa.int32())
            return pa.repeat(home, rows.num_rows)
        if name in rows.schema.names:
            return rows.column(name)
        if name == "_key" and staged.keys is not None:
            return staged.keys.take(source)
        return letters.column(name[1:]).take(source)  # metadata of the message

    def _again(self, letters: pa.RecordBatch, bad: Sequence[Bad]) -> pa.RecordBatch:
        """Return a dead letter for each in ``bad``, with the new cause."""
        origin = self._source.origin
        ordinals = [
            held if held is not None else one.ordinal
            for held, one in zip(
                letters.column("ordinal").to_pylist(), bad, strict=True
            )
        ]
        fields = {
            "ordinal": ordinals,
            "error_code": [one.code for one in bad],
            "error_message": [one.what for one in bad],
            "decoder": [origin.decoder] * len(bad),
            "decoder_version": [origin.version] * len(bad),
            "failed_at": [failed_now()] * len(bad),
        }
        columns = [
            pa.array(fields[field.name], field.type)
            if field.name in fields
            else letters.column(field.name)
            for field in DEAD_LETTER_SCHEMA
        ]
        return pa.RecordBatch.from_arrays(columns, schema=DEAD_LETTER_SCHEMA)


def own_letters(
    batch: MessageBatch, stream: str | None, met: Again
) -> tuple[pa.RecordBatch, pa.Array]:
    """Return the dead letters of one stream, and the offset of each.

    Args:
        batch: Dead letters, untrusted.
        stream: The stream whose dead letters are returned; None for all.
        met: Counts those of other streams.

    Raises:
        CorruptData: data_loss; a row is not a dead letter.
    """
    rows = batch.rows.select(_LETTERS.names)
    letters, places = conform(rows, _LETTERS), batch.offsets
    if places is None:
        first = batch.first_offset or 0
        places = pa.arange(first, first + letters.num_rows)
    _check(letters, places, batch.partition)
    if stream is None:
        return letters, places
    mine = pc.equal(letters.column("stream"), stream)
    chosen = letters.filter(mine)
    met.others += letters.num_rows - chosen.num_rows
    return chosen, places.filter(mine)


def _check(letters: pa.RecordBatch, places: pa.Array, partition: Partition) -> None:
    """Refuse invalid dead letters: other programs may write to their stream.

    Raises:
        CorruptData: data_loss; a required column is null, or out of range.
    """
    for field in DEAD_LETTER_SCHEMA:
        if field.nullable:
            continue
        column = letters.column(field.name)
        sound = column.is_valid()
        if field.name in ("partition", "offset"):
            sound = pc.and_kleene(sound, pc.greater_equal(column, 0))
        elif field.name == "topic":
            sound = pc.and_kleene(sound, pc.not_equal(column, ""))
        at = pc.index(pc.fill_null(sound, False), False).as_py()
        if at >= 0:
            value = column[at].as_py()
            msg = f"the row is not a dead letter: its {field.name} is {value!r}"
            remedy = "write it again without this row: only dead letters are replayed"
            raise CorruptData(
                msg, partition=partition, offset=places[at].as_py(), remedy=remedy
            )


def _first_of_each(letters: pa.RecordBatch) -> pa.Array:
    """Return which dead letters are the first of their message within the batch."""
    names = ("stream", "topic", "partition", "offset", "incarnation")
    keys = zip(*(letters.column(name).to_pylist() for name in names), strict=True)
    rows = letters.column("ordinal").is_valid().to_pylist()
    seen: set[tuple[object, ...]] = set()
    first = []
    for key, is_row in zip(keys, rows, strict=True):
        first.append(not (is_row and key in seen))
        seen.add(key)
    return pa.array(first, pa.bool_())


def _envelopes(letters: pa.RecordBatch) -> pa.RecordBatch:
    count = letters.num_rows
    columns = [
        pa.repeat(pa.scalar(-1, pa.int32()), count)
        if field.name == "timestampType"
        else letters.column(field.name)
        for field in envelope_schema()
    ]
    return pa.RecordBatch.from_arrays(columns, schema=envelope_schema())


def _ordinals(source: pa.Array, bad: Sequence[Bad]) -> pa.Array:
    """Return the number of each row within its message, including dropped ones."""
    index = source.to_numpy()
    found = np.arange(len(index)) - np.searchsorted(index, index)
    for one in bad:
        if one.ordinal is not None:
            found[(index == one.index) & (found >= one.ordinal)] += 1
    return pa.array(found, pa.int32())
