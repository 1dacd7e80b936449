"""Converts dead letters back to messages or rows."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.conversion.conform import conform
from streamfactory.spi import CorruptData, Partition, envelope_schema, headers_type
from streamfactory.transfer.conversion import Conversion, Converted
from streamfactory.transfer.ledger import Ledger, offsets_of, untagged
from streamfactory.wiring.decoding.deadletters import (
    DEAD_LETTER_SCHEMA,
    EVIDENCE,
    failed_now,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from streamfactory.spi import MessageBatch, Position
    from streamfactory.wiring.decoding.deadletters import Bad
    from streamfactory.wiring.decoding.stage import DecodeStage, Staged
    from streamfactory.wiring.reading.source import Source

_LETTERS: Final = pa.schema([f.with_nullable(True) for f in DEAD_LETTER_SCHEMA])


@dataclass(slots=True)
class SkippedLetters:
    """Counters of the dead letters that a replay leaves out."""

    others: int = 0
    """Dead letters of other streams."""
    repeated: int = 0
    """Dead letters whose message was counted before."""


@final
class Due:
    """Selects the letters that a replay has to process, for one pass.

    Args:
        open_ledger: Opens the ledger, and reads the letters before a position.
    """

    def __init__(self, open_ledger: Callable[[Position | None], Ledger]) -> None:
        self._open = open_ledger
        self._ledger: Ledger | None = None

    @property
    def ledger(self) -> Ledger:
        """That of the pass."""
        assert self._ledger is not None, "begin comes first"
        return self._ledger

    def begin(self, position: Position | None) -> None:
        """Begin a pass at a position."""
        self._ledger = self._open(position)

    def select(
        self, batch: MessageBatch, stream: str | None, skipped: SkippedLetters
    ) -> tuple[pa.RecordBatch, pa.Array]:
        """Return the letters of a batch that are to be processed, and their offsets.

        Raises:
            CorruptData: data_loss; a row is not a dead letter.
        """
        letters, places = own_letters(batch, stream, skipped)
        before = self.ledger.repeated
        due = self.ledger.due(batch.partition, letters, places)
        skipped.repeated += self.ledger.repeated - before
        return letters.filter(due), places.filter(due)

    def close(self) -> None:
        """Close the ledger; may be called twice."""
        if self._ledger is not None:
            self._ledger.close()


@final
class Messages(Conversion):
    """Converts dead letters to the original messages, with key, headers and timestamp.

    Args:
        stream: The stream whose dead letters are converted; None for all.
        due: Selects those that are to be processed.
        skipped: Counts the others.
    """

    def __init__(self, stream: str | None, due: Due, skipped: SkippedLetters) -> None:
        self._stream = stream
        self._due = due
        self._skipped = skipped
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
        letters, _ = self._due.select(batch, self._stream, self._skipped)
        whole = untagged(letters)
        names = ("value", "key", "headers", "timestamp")
        columns = [whole.column(name) for name in names]
        return Converted(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def begin(self, position: Position | None) -> None:
        """See `Conversion`: read which letters were processed."""
        self._due.begin(position)

    def close(self) -> None:
        """See `Conversion`."""
        self._due.close()


@final
class Rows(Conversion):
    """Decodes dead letters again to rows.

    Args:
        source: Their original stream, as it is configured now.
        count: Number of partitions of the sink, if rows of one partition stay together;
            None if keys determine it.
        due: Selects the letters that are to be processed.
        skipped: Counts the others.
        left_out: Metadata columns that the sink has no column for.
    """

    def __init__(
        self,
        source: Source,
        count: int | None,
        due: Due,
        skipped: SkippedLetters,
        left_out: Collection[str] = (),
    ) -> None:
        self._source = source
        self._count = count
        self._due = due
        self._skipped = skipped
        self._stages: dict[Partition, DecodeStage] = {}
        evidence = [field.name for field in EVIDENCE]
        without = {*evidence, "_partition", *left_out}
        fields = [field for field in source.schema if field.name not in without]
        if count is not None:
            fields.append(pa.field("_partition", pa.int32(), nullable=False))
        self.schema = pa.schema(fields)

    def apply(self, batch: MessageBatch) -> Converted:
        """See `Conversion`: messages that are bad again are dead letters again."""
        name = self._source.config.name
        letters, places = self._due.select(batch, name, self._skipped)
        letters = untagged(letters)
        parts = [pa.RecordBatch.from_pylist([], schema=self.schema)]
        again: list[pa.RecordBatch] = []
        named = (letters.column(name).to_pylist() for name in ("topic", "partition"))
        for partition in sorted(
            {Partition(*pair) for pair in zip(*named, strict=True)}
        ):
            chosen = pc.and_(
                pc.equal(letters.column("topic"), partition.topic),
                pc.equal(letters.column("partition"), partition.id),
            )
            part, offsets = letters.filter(chosen), places.filter(chosen)
            failed = partial(self._failed, batch.partition, offsets.to_pylist())
            rows, bad = self._decoded(partition, part, failed)
            parts.append(rows)
            if bad:
                index = pa.array([one.index for one in bad], pa.int64())
                rest = self._again(part.take(index), bad)
                offsets = offsets.take(index)
                ledger = self._due.ledger
                again.append(ledger.tagged(rest, batch.partition, offsets))
        rows = pa.concat_batches(parts)
        # The ledger knows those that were committed before a restart.
        return Converted(rows, pa.concat_batches(again) if again else None)

    def begin(self, position: Position | None) -> None:
        """See `Conversion`: read which letters were processed."""
        self._due.begin(position)

    def close(self) -> None:
        """Close the decoders and the ledger."""
        stages, self._stages = self._stages, {}
        with ExitStack() as last:
            last.callback(self._due.close)
            for stage in stages.values():
                last.callback(stage.close)

    def _decoded(
        self,
        partition: Partition,
        letters: pa.RecordBatch,
        failed: Callable[[int, int | None], bool],
    ) -> tuple[pa.RecordBatch, list[Bad]]:
        """Return the rows of one partition, and the dead letters that are bad again.

        Args:
            partition: Of the messages.
            letters: Its dead letters.
            failed: Whether a row of a letter, by index and ordinal, is a letter again
                already.
        """
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
        if self._due.ledger.interrupted:
            pairs = zip(source.to_pylist(), mine.to_pylist(), strict=True)
            fresh = pa.array([not failed(*pair) for pair in pairs], pa.bool_())
            kept = pc.and_(kept, fresh)
        rows, source = staged.rows.filter(kept), source.filter(kept)
        columns = [
            self._column(field.name, rows, source, letters, staged, partition)
            for field in self.schema
        ]
        bad = [
            one
            for one in staged.bad
            if (wanted[one.index].as_py() in (None, one.ordinal) or one.ordinal is None)
            and not failed(one.index, one.ordinal)
        ]
        plain = pa.RecordBatch.from_arrays(columns, names=self.schema.names)
        return conform(plain, self.schema), bad

    def _failed(
        self, partition: Partition, offsets: list[int], at: int, ordinal: int | None
    ) -> bool:
        return self._due.ledger.replaced(partition, offsets[at], ordinal)

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
    batch: MessageBatch, stream: str | None, skipped: SkippedLetters
) -> tuple[pa.RecordBatch, pa.Array]:
    """Return the dead letters of one stream, and the offset of each.

    Args:
        batch: Dead letters, untrusted.
        stream: The stream whose dead letters are returned; None for all.
        skipped: Counts those of other streams.

    Raises:
        CorruptData: data_loss; a row is not a dead letter.
    """
    rows = batch.rows.select(_LETTERS.names)
    letters, places = conform(rows, _LETTERS), offsets_of(batch)
    _check(letters, places, batch.partition)
    if stream is None:
        return letters, places
    mine = pc.equal(letters.column("stream"), stream)
    chosen = letters.filter(mine)
    skipped.others += letters.num_rows - chosen.num_rows
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
