"""Decodes and encodes messages: Arrow IPC."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.arrowipc import ROWS
from streamfactory.arrowipc.columns import plain_batches
from streamfactory.decoders.arrow.headers import NotArrow, PayloadScanner
from streamfactory.decoders.columns.misfits import Misfits
from streamfactory.decoders.columns.writing import fitted
from streamfactory.decoders.isolation import SCHEMA, DecodedParts, places, plain
from streamfactory.spi import (
    BatchValidator,
    ConfigError,
    CorruptData,
    DecodeContext,
    Decoded,
    MessageDecoder,
    MessageEncoder,
    SchemaMismatch,
    SchemaUnknown,
)
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.spi.ddl import type_text
from streamfactory.spi.decoder import find_lookalikes
from streamfactory.spi.soundness import UNPACKED_ROW_BYTES, can_rescale
from streamfactory.spi.soundness.rescaling import rescale

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.decoders.isolation import Refusal

_AT_ONCE: Final = 4096
"""Messages decoded per step. More live objects slow down Python's garbage collector."""
_REMEDY: Final = "give decoder.prop.schema or decoder.prop.schema.file"


def _declared(options: Mapping[str, Any], topic: str) -> pa.Schema:
    text, path = options.get("schema"), options.get("schema.file")
    if text is not None and path is not None:
        msg = "schema and schema.file are both given"
        raise ConfigError(msg, remedy="give one of them")
    if text is not None:
        schema, where = parse_schema(text), "schema"
    elif path is not None:
        schema, where = _of_file(path), f"schema.file {path!r}"
    else:
        msg = f"the schema of topic {topic!r} is unknown"
        raise SchemaUnknown(msg, remedy=_REMEDY)
    for field in schema:
        if not _is_plain(field.type):
            kind = type_text(field.type)
            msg = f"{where}: column {field.name!r} has the unsupported type {kind}"
            raise ConfigError(
                msg,
                remedy="declare the plain type of its values",
            )
    try:
        BatchValidator(schema)
    except SchemaMismatch as error:
        msg = f"{where}: {error.what}"
        raise ConfigError(msg, remedy="declare the type of its values") from error
    return schema.remove_metadata()


def _of_file(path: str) -> pa.Schema:
    try:
        with Path(path).open("rb") as file:
            opened = pa.ipc.open_file if file.read(6) == b"ARROW1" else None
            file.seek(0)
            return (opened or pa.ipc.open_stream)(file).schema
    except (OSError, pa.ArrowException) as error:
        reason = (
            getattr(error, "strerror", None)
            or "the file is neither an Arrow stream nor an Arrow file"
        )
        msg = f"schema.file {path!r} cannot be read: {reason}"
        raise ConfigError(msg) from error


class ArrowDecoder(MessageDecoder):
    """Decodes Arrow messages of any number of rows."""

    MESSAGE_BY_MESSAGE = True

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._schema = _declared(options, topic)
        self._limit = options.get("max.message.bytes", 1 << 28)
        self._walk = PayloadScanner(self._limit)
        self._declared = self._sent = BatchValidator(self._schema)
        self._sent_schema = self._schema
        """Schema of the previous stream. Most streams of a topic repeat it."""

    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        values = plain(values)
        result = DecodedParts(self._schema, misfits=Misfits(context))
        for start in range(0, len(values), _AT_ONCE):
            self._decode(values[start : start + _AT_ONCE], start, result)
        return result.decoded(len(values))

    def _decode(self, values: pa.Array, first: int, result: DecodedParts) -> None:
        parts, which = self._read(values, first, result)
        # Validate before the messages are concatenated: pyarrow trusts the offsets.
        if parts and not self._is_sound(parts):
            parts, which = self._without_corrupt(parts, which, result)
        if parts:
            whole = pa.Table.from_batches(parts, self._schema).combine_chunks()
            sizes = np.fromiter((part.num_rows for part in parts), np.int64, len(parts))
            for rows in whole.to_batches():  # one batch, or none without rows
                result.keep(rows, np.repeat(np.array(which), sizes))

    def _read(
        self, values: pa.Array, first: int, result: DecodedParts
    ) -> tuple[list[pa.RecordBatch], list[int]]:
        starts, lengths, data = places(values)
        fast = plain_batches(starts, lengths, data)
        parts: list[pa.RecordBatch] = []
        which: list[int] = []
        read, schema = pa.ipc.read_record_batch, self._schema
        pairs = zip(values, fast.tolist(), strict=True)
        for index, (value, is_plain) in enumerate(pairs, first):
            try:
                if is_plain:
                    parts.append(read(value.as_buffer(), schema))
                    which.append(index)
                else:
                    found = self._read_checked(value.as_buffer(), index, result.misfits)
                    parts += found
                    which += [index] * len(found)
            except NotArrow as error:
                result.refuse([index], (error.code, str(error)))
            except (pa.ArrowException, OSError, MemoryError, ValueError):
                result.refuse([index], _MALFORMED)
        return parts, which

    def _read_checked(
        self, payload: pa.Buffer, index: int, misfits: Misfits
    ) -> list[pa.RecordBatch]:
        """The record batches of the message ``index``.

        Raises:
            NotArrow: The message is malformed, too large, or has another schema.
        """
        if self._walk.kinds(memoryview(payload).cast("B")) == [ROWS]:
            return [pa.ipc.read_record_batch(payload, self._schema)]
        # Threads cost more than they save on small messages.
        options = pa.ipc.IpcReadOptions(use_threads=False)
        with pa.ipc.open_stream(payload, options=options) as stream:
            found = list(stream)
        if not found or found[0].schema.equals(self._schema):
            return found  # validated together with the other messages
        validator = self._validator(found[0].schema)
        size, limit = 0, min(self._limit, max(UNPACKED_ROW_BYTES, payload.size))
        for batch in found:
            try:
                validator.validate(batch)
            except CorruptData:
                raise NotArrow(_UNSOUND[1]) from None
            size += validator.unpacked_bytes(batch)
        if size > limit:
            why = f"the decompressed message exceeds {limit} bytes"
            raise NotArrow(why, "too_large")
        return [self._fitted(batch, index, misfits) for batch in found]

    def _validator(self, schema: pa.Schema) -> BatchValidator:
        if not schema.equals(self._sent_schema):
            try:
                self._sent = BatchValidator(schema)
            except SchemaMismatch as error:
                raise NotArrow(error.what, SCHEMA) from error
            self._sent_schema = schema
        return self._sent

    def _fitted(
        self, batch: pa.RecordBatch, index: int, misfits: Misfits
    ) -> pa.RecordBatch:
        """Select columns by name; undeclared columns are dropped."""
        found, names = batch.schema.names, self._schema.names
        misfits.lookalikes |= find_lookalikes(found, names)
        if not set(found) <= set(names):
            misfits.add_undeclared([index])
        columns = []
        for field in self._schema:
            try:
                columns.append(_column(batch, field))
            except NotArrow as error:
                if not misfits.salvage or error.code != SCHEMA or not field.nullable:
                    raise
                misfits.add([index], field.name, str(error))
                columns.append(pa.nulls(batch.num_rows, field.type))
        if not columns:
            return batch.select([])
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _is_sound(self, parts: list[pa.RecordBatch]) -> bool:
        try:
            self._declared.validate_all(parts)
        except CorruptData:
            return False
        return True

    def _without_corrupt(
        self, parts: list[pa.RecordBatch], which: list[int], result: DecodedParts
    ) -> tuple[list[pa.RecordBatch], list[int]]:
        """Drop messages that contain a corrupt batch; report them as errors."""
        pairs = list(zip(parts, which, strict=True))
        bad = {index for part, index in pairs if not self._is_sound([part])}
        result.refuse(sorted(bad), _UNSOUND)
        kept = [pair for pair in pairs if pair[1] not in bad]
        return [part for part, _ in kept], [index for _, index in kept]


_MALFORMED: Final[Refusal] = (
    "malformed",
    "the message is neither an Arrow stream nor a record batch",
)
_UNSOUND: Final[Refusal] = (
    "malformed",
    "the record batch is corrupt: invalid offsets, lengths or values",
)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    found = batch.schema.get_all_field_indices(field.name)
    if len(found) > 1 or (not found and not field.nullable):
        why = f"column {field.name!r} occurs {len(found)} times instead of once"
        raise NotArrow(why, SCHEMA)
    if not found:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(found[0])
    if pa.types.is_dictionary(column.type):
        column = _decode_dictionary(column, field)
    if column.type == field.type:
        return column
    if not _is_plain(column.type) or not _casts(column.type, field.type):
        why = f"column {field.name!r} does not have the type {type_text(field.type)}"
        raise NotArrow(why, SCHEMA)
    try:
        if pa.types.is_decimal(field.type):
            return rescale(column, field.type)
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        why = (
            f"column {field.name!r} has values that do not fit {type_text(field.type)}"
        )
        raise NotArrow(why, SCHEMA) from None


def _decode_dictionary(column: pa.DictionaryArray, field: pa.Field) -> pa.Array:
    """Replace dictionary indices by their values. The size was limited before."""
    kind = column.type.value_type
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    if not (is_text or pa.types.is_primitive(kind)):
        why = f"column {field.name!r} has a dictionary of {kind}"
        raise NotArrow(why, SCHEMA)
    return column.dictionary_decode()


def _casts(have: pa.DataType, want: pa.DataType) -> bool:
    """Whether the cast keeps the meaning. pyarrow's "safe" casts include more."""
    groups = (
        lambda kind: pa.types.is_integer(kind) or pa.types.is_floating(kind),
        lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
        lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
        pa.types.is_date,
        pa.types.is_time,
        lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind),
        lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind),
    )
    if pa.types.is_decimal(have) and pa.types.is_decimal(want):
        return can_rescale(have, want)
    if pa.types.is_floating(have) and pa.types.is_floating(want):
        return bool(have.bit_width <= want.bit_width)
    return any(group(have) and group(want) for group in groups)


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values need about as many bytes in memory as in the message."""
    odd = (
        pa.types.is_dictionary,
        pa.types.is_run_end_encoded,
        pa.types.is_union,
        pa.types.is_string_view,
        pa.types.is_binary_view,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    if any(check(kind) for check in odd) or isinstance(kind, pa.BaseExtensionType):
        return False
    return all(_is_plain(kind.field(at).type) for at in range(kind.num_fields))


class ArrowEncoder(MessageEncoder):
    """Encodes each row as one Arrow message.

    No library serializes many messages in one call, so this is the slowest way to send
    rows. A producer should put many rows into one message where it can.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        declared = {"schema", "schema.file"} & {k for k, v in options.items() if v}
        self._schema = _declared(options, topic) if declared else None
        self._bare = options.get("payload", "stream") == "batch"

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        rows = self._fitted(rows)
        singles = (rows.slice(at, 1) for at in range(rows.num_rows))
        if self._bare:
            return pa.array([bytes(row.serialize()) for row in singles], pa.binary())
        return pa.array([_stream(row) for row in singles], pa.binary())

    def _fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._schema is None:
            return rows
        columns = fitted(rows, self._schema)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _stream(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    return bytes(sink.getvalue())
