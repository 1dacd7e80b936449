"""Validates Arrow schemas and batches from untrusted bytes.

Every reader of Arrow bytes of another program uses `BatchValidator` before any other
computation. Arrow's IPC reader verifies the metadata of a message and the number of its
buffers, not what is in them: an offset, a view, a run end or an index outside its
buffer makes the first concatenation, cast or conversion read other memory.

    validator = BatchValidator(reader.schema)
    rows = reader.read_next_batch()
    validator.validate(rows)
    for part in validator.split(rows):
        ...

A function that takes `SoundRows`, which `validated` returns, cannot be given a batch
that was not validated.

Importing this module does not load Arrow; creating a validator does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

__all__ = [
    "UNPACKED_BYTES",
    "UNPACKED_ROW_BYTES",
    "BatchValidator",
    "SoundRows",
    "can_rescale",
]

UNPACKED_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes of a slice after its encodings are unpacked."""
UNPACKED_ROW_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of one row after its encodings are unpacked."""


@final
class SoundRows:
    """A batch that a `BatchValidator` has accepted; only a validator creates one.

    pyarrow has no annotations, so that a type checker accepts its batches everywhere:
    a function that takes `SoundRows` unwraps them, and fails for any other batch.
    """

    __slots__ = ("_batch",)
    _batch: pa.RecordBatch

    def __init__(self) -> None:
        msg = "only BatchValidator.validated creates SoundRows"
        raise TypeError(msg)

    def __reduce__(self) -> NoReturn:
        msg = "SoundRows cannot be pickled: validate the rows where they are read"
        raise TypeError(msg)

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows."""
        return self._batch

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self._batch.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows. Arrow reads offsets and type codes to measure them."""
        return int(self._batch.nbytes)

    def slice(self, start: int, count: int) -> SoundRows:
        """Return some of the rows; nothing is copied."""
        return _sound(self._batch.slice(start, count))


def _sound(rows: pa.RecordBatch) -> SoundRows:
    made = object.__new__(SoundRows)
    made._batch = rows
    return made


@final
class BatchValidator:
    """Validates batches of one schema.

    The checks are derived from the schema once; a batch of numbers costs about a
    microsecond, text about as much as reading it once. Thread-safe.

    Supported types: null, booleans, whole and floating numbers, decimals, dates, times,
    timestamps, durations, month-day-nano intervals, text and bytes in all their forms
    (large, view, fixed size), lists in all their forms, structs, maps, unions,
    dictionaries, run-end encoded columns, and extension types of these.

    Args:
        schema: The schema of all batches.
        values: Whether values are checked. False checks the lengths of buffers only:
            for bytes that only a trusted program can have written.

    Raises:
        SchemaMismatch: permanent; the schema has an unsupported type, a parameter out
            of range (digits and scale of a decimal, sizes), a name or time zone that is
            not UTF-8, two columns of one name, a null type that is declared not
            nullable, more than 64 levels or 100,000 fields. The message has the dotted
            path and the type.
    """

    def __init__(self, schema: pa.Schema, *, values: bool = True) -> None:
        from streamfactory.spi.soundness.checking import BatchChecks
        from streamfactory.spi.soundness.schemas import check_schema
        from streamfactory.spi.soundness.unpacking import Unpacking

        check_schema(schema)
        self.schema = schema
        self._checks = BatchChecks(schema, values=values)
        self._unpacking = Unpacking(schema)

    def validate(self, rows: pa.RecordBatch) -> None:
        """Check a batch, before any other computation on it.

        At least as strict as ``rows.validate(full=True)``: every buffer's length,
        offsets, views, run ends and indices within what they refer to, numbers of nulls
        that agree with the bitmaps, UTF-8, times within a day, whole days, decimals
        within their digits. In addition, columns and children that are declared not
        nullable must have no null.

        Args:
            rows: The batch, as it was read: no slice, and not concatenated.

        Raises:
            CorruptData: data_loss; a value is invalid. The message has the column, but
                no value.
            SchemaMismatch: permanent; the batch has another schema.
        """
        self._checks.run(rows)

    def validated(self, rows: pa.RecordBatch) -> SoundRows:
        """Check a batch as `validate` does, and return it as `SoundRows`."""
        self._checks.run(rows)
        return _sound(rows)

    def validate_all(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Validate several batches; faster than `validate` for many small ones.

        Raises:
            CorruptData: data_loss; one of them is invalid.
            SchemaMismatch: permanent; one of them has another schema.
        """
        self._checks.run_all(batches)

    @property
    def is_encoded(self) -> bool:
        """Whether a small batch of the schema can stand for very many values."""
        return self._unpacking.is_encoded

    def unpacked_bytes(self, rows: pa.RecordBatch) -> int:
        """Return the bytes of the encoded columns of a batch after unpacking.

        A dictionary repeats its values, a run its value, and list and text views may
        share theirs, so that few bytes can stand for very many. Columns without such
        encodings count 0: their size is that of their buffers.

        Args:
            rows: A batch that was validated.
        """
        return self._unpacking.total(rows)

    def split(
        self, rows: pa.RecordBatch, max_bytes: int = UNPACKED_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Split a batch into slices that are safe to convert, in order.

        A batch whose columns take no more than ``max_bytes`` is returned as it is.
        Slices copy nothing.

        Args:
            rows: A batch that was validated.
            max_bytes: `unpacked_bytes` of each slice. A slice of one row may have more:
                up to `UNPACKED_ROW_BYTES`, or the size of the buffers of the whole
                batch.

        Raises:
            MessageTooLarge: permanent; one row is larger. The message has the largest
                column.
        """
        return self._unpacking.split(rows, max_bytes, UNPACKED_ROW_BYTES)


def can_rescale(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether Arrow can cast one decimal type to another.

    Arrow 26 rescales by a table that ends at the maximum precision of the type: beyond
    it, the cast reads other memory.

    Args:
        have: A decimal type.
        want: A decimal type.
    """
    from streamfactory.spi.soundness.schemas import most_digits

    limit = max(most_digits(have), most_digits(want))
    return bool(abs(have.scale - want.scale) <= limit)
