"""Decoding of protobuf batches: by columns with ptars where possible, else by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import ptars
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from streamfactory.decoders import isolation
from streamfactory.decoders.columns.buffers import lengths_of
from streamfactory.decoders.protobuf.merging import Merged
from streamfactory.decoders.protobuf.scanning import overflows, suspects
from streamfactory.decoders.protobuf.types import (
    BAD_TIME,
    Types,
    Unreadable,
    holds_time,
    times_are_right,
)
from streamfactory.spi.causes import is_failure

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

    from streamfactory.decoders.isolation import DecodedParts, Refusal

_LONG: Final = 4096
"""Bytes of a message above which protobuf validates it before ptars."""
_MALFORMED: Final[Refusal] = ("malformed", "the bytes are not a message of this type")
_RANGE: Final[Refusal] = ("range", BAD_TIME)


def handler_of(message: Descriptor, *, text: bool = False) -> Any:
    """The ptars handler of a message type."""
    config = ptars.PtarsConfig(
        timestamp_unit="us",
        duration_unit="us",
        enum_repr="string" if text else "int32",
    )
    return ptars.HandlerPool([message.file], config).get_for_message(message)


def library(message: Descriptor, schema: pa.Schema, *, text: bool) -> Any:
    """The ptars handler of a message type; None if it fails or has other columns."""
    try:
        found = handler_of(message, text=text)
        return found if found.schema().equals(schema) else None
    except BaseException as error:
        if not is_failure(error):
            raise
        return None


class ProtobufBatchDecoder:
    """Decodes messages of one type.

    Args:
        message: The type.
        text: Decode enums to names rather than numbers.

    Raises:
        DescriptorRefused: The type cannot be converted to columns.
    """

    def __init__(self, message: Descriptor, *, text: bool) -> None:
        types = Types(message, text=text)
        self.schema = types.schema
        self._handler = library(message, types.schema, text=text)
        self._merged = None if self._handler is None else Merged(message, handler_of)
        self._parse = message_factory.GetMessageClass(message).FromString
        self._row = types.row()
        self._timed = any(holds_time(kind) for kind in types.schema.types)
        self._struct = pa.struct(list(types.schema))
        self._doubtful = False

    @property
    def columnar(self) -> bool:
        """Whether whole batches are decoded by columns."""
        return self._handler is not None

    def run(self, values: pa.Array, messages: np.ndarray, result: DecodedParts) -> None:
        """Decode values; ``messages`` contains the message index of each."""
        self._doubtful = isolation.decode_isolating(
            values, messages, result, self, doubtful=self._doubtful
        )
        if result.misfits.undeclared:
            result.misfits.add_undeclared(messages[self._with_unknown_fields(values)])

    def batch(self, values: pa.Array) -> pa.RecordBatch | None:
        """Rows, or None where a message is bad."""
        found = self._decode(values)
        return found if isinstance(found, pa.RecordBatch) else None

    def check(self, value: pa.Array) -> Refusal | None:
        """Why a message is bad, or None."""
        found = self._decode(value)
        return found if isinstance(found, tuple) else None

    def suspects(self, values: pa.Array, fields: int) -> np.ndarray:
        """The messages that look bad within their first fields."""
        return suspects(values, fields)

    def _with_unknown_fields(self, values: pa.Array) -> np.ndarray:
        """Which messages have fields, at any depth, that their type does not define.

        No library reports this for a whole batch, so each message is parsed once more.
        """
        found = np.zeros(len(values), bool)
        for at, value in enumerate(values.to_pylist()):
            try:
                message = self._parse(value)
            except DecodeError:
                continue  # reported as bad already
            size = message.ByteSize()
            message.DiscardUnknownFields()
            found[at] = message.ByteSize() != size
        return found

    def _decode(self, values: pa.Array) -> Refusal | pa.RecordBatch:
        if self._handler is None or self._merged is None or not self.schema.names:
            return self._by_row(values)
        if not self._may_be_read(values):
            return _MALFORMED
        try:
            odd = self._merged.before(values)
            given = pc.if_else(pa.array(odd), b"", values) if odd.any() else values
            rows = self._handler.array_to_record_batch(given)
            merged = np.flatnonzero(odd | self._merged.after(rows))
        except BaseException as error:
            if is_failure(error):
                return _MALFORMED
            raise
        if len(merged):
            read = self._by_row(values.take(pa.array(merged)))
            if isinstance(read, tuple):
                return read
            rows = _replaced(rows.cast(self.schema), merged, read)
        if self._timed and not all(map(times_are_right, rows.columns)):
            return _RANGE
        return pa.RecordBatch.from_arrays(rows.columns, schema=self.schema)

    def _may_be_read(self, values: pa.Array) -> bool:
        """Whether protobuf accepts the messages that could make ptars fail.

        ptars 0.0.25 recurses into unknown groups without a limit: a hostile message of
        200,000 bytes exhausts the stack. It also prints a panic on stderr if a length
        overflows, which Python cannot suppress.
        """
        doubtful = overflows(values)
        if values.nbytes > _LONG:
            long = np.flatnonzero(lengths_of(values) > _LONG)
            doubtful = np.union1d(doubtful, long)
        try:
            for at in doubtful.tolist():
                self._parse(values[at].as_py())
        except DecodeError:
            return False
        return True

    def _by_row(self, values: pa.Array) -> Refusal | pa.RecordBatch:
        try:
            parsed = [self._parse(value) for value in values.to_pylist()]
            if not all(message.IsInitialized() for message in parsed):
                return "malformed", "a required field is missing"
            found = pa.array([self._row(message) for message in parsed], self._struct)
        except Unreadable:
            return _RANGE
        except (DecodeError, UnicodeDecodeError, pa.ArrowException, ValueError):
            return _MALFORMED
        return pa.RecordBatch.from_struct_array(found).cast(self.schema)


def _replaced(
    rows: pa.RecordBatch, places: np.ndarray, others: pa.RecordBatch
) -> pa.RecordBatch:
    """Rows of which those at some places are others."""
    order = np.arange(rows.num_rows)
    order[places] = rows.num_rows + np.arange(len(places))
    both = pa.Table.from_batches([rows, others]).combine_chunks()
    found: pa.RecordBatch = both.take(pa.array(order)).to_batches()[0]
    return found
