"""Encodes keys of messages by the decoder of keys, from columns of the rows."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import pyarrow as pa

from streamfactory.conversion.conform import check_names, conform
from streamfactory.spi import (
    ConfigError,
    ContractBroken,
    SchemaMismatch,
    Unsupported,
)
from streamfactory.spi.computing import pc
from streamfactory.wiring.core.canonical import canonical_schema
from streamfactory.wiring.decoding.keys import key_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamfactory.spi import Decoder, MessageEncoder, StreamConfig
    from streamfactory.wiring.writing.producer import Producer

T = TypeVar("T")
"""A decoder or an encoder."""
_KEY: Final = "_key"
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)


@final
class KeyColumns:
    """Determines which columns of rows are encoded to keys. Immutable.

    Args:
        decoder: Of keys.
        config: Of the sink.
    """

    def __init__(self, decoder: Decoder, config: StreamConfig) -> None:
        self.decoder = decoder
        self.config = config
        self.names: Sequence[str] = config.get("producer.key.columns") or ()
        self.apart: bool = config["key.decoder.columns"]
        """Whether the columns of keys are left out of the values."""
        self.prefix = config["key.decoder.columns.prefix"] if self.apart else ""

    def rest(self, rows: pa.Schema) -> pa.Schema:
        """The schema of rows whose keys were encoded.

        Raises:
            ConfigError: config; the columns of keys are not named.
            SchemaMismatch: permanent; the rows lack one.
            Unsupported: misuse; the format of keys is only read.
        """
        if self.apart and not self.names:
            msg = "key.decoder.columns requires the columns of keys for writing"
            raise ConfigError(msg, remedy="set producer.key.columns")
        if not self.encoded(rows):
            return rows
        if self.decoder.encoder is None:
            msg = f"the decoder {self.decoder.name!r} cannot encode keys"
            raise Unsupported(msg, remedy="write _key as bytes")
        left = {_KEY, *(self.names if self.apart else ())}
        kept = [field for field in rows if field.name not in left]
        return pa.schema([*kept, pa.field(_KEY, pa.binary())])

    def encoded(self, rows: pa.Schema) -> bool:
        """Whether keys of rows are encoded: not if they are bytes already."""
        if _KEY in rows.names and not self.apart:
            kind = rows.field(_KEY).type
            return not any(is_one(kind) for is_one in _BYTES)
        missing = [name for name in self.names if name not in rows.names]
        if missing:
            msg = f"the key column {missing[0]!r} is not among the rows"
            remedy = "write it, or remove it from producer.key.columns"
            raise SchemaMismatch(msg, remedy=remedy)
        return bool(self.names)


@final
class KeyEncoder:
    """Encodes the keys of one writer. One thread.

    Args:
        columns: Which columns are encoded.
        producer: Translates the errors of the encoder.
    """

    def __init__(self, columns: KeyColumns, producer: Producer) -> None:
        self._columns = columns
        self._producer = producer
        self._encoder: MessageEncoder | None = None

    def encode(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with their keys as bytes in ``_key``, as `KeyColumns.rest` says.

        A key whose columns are all null is null.

        Raises:
            SchemaMismatch: permanent; the columns cannot be encoded.
        """
        check_names(rows.schema)
        schema = self._columns.rest(rows.schema)
        if not self._columns.encoded(rows.schema):
            return rows
        given = self._key_rows(rows)
        given = conform(given, canonical_schema(given.schema))
        keys = self._keys(given)
        kept = [rows.column(name) for name in schema.names[:-1]]
        return pa.RecordBatch.from_arrays([*kept, keys], schema=schema)

    def close(self) -> None:
        """Close the encoder."""
        if self._encoder is not None:
            self._producer.call(self._encoder.close)

    def _key_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of keys, with the names that they have in keys."""
        columns = self._columns
        if columns.apart or _KEY not in rows.schema.names:
            names = [name.removeprefix(columns.prefix) for name in columns.names]
            found = [rows.column(name) for name in columns.names]
            return pa.RecordBatch.from_arrays(found, names=names)
        key = rows.column(_KEY)
        if pa.types.is_struct(key.type):
            return pa.RecordBatch.from_arrays(key.flatten(), names=key.type.names)
        return pa.RecordBatch.from_arrays([key], names=[self._only_column()])

    def _only_column(self) -> str:
        """The name of the only column of keys."""
        make = self._columns.decoder.decoder
        assert make is not None
        with closing(self._made(make)) as decoder:
            names = self._producer.call(decoder.schema).names
        if len(names) != 1:
            msg = f"keys have the columns {', '.join(names)}, and {_KEY} is one value"
            raise SchemaMismatch(msg, remedy=f"write {_KEY} as a struct of them")
        return str(names[0])

    def _keys(self, rows: pa.RecordBatch) -> pa.Array:
        valid = [column.is_valid() for column in rows.columns]
        present = valid[0]
        for one in valid[1:]:
            present = pc.or_(present, one)
        if self._encoder is None:
            make = self._columns.decoder.encoder
            assert make is not None
            self._encoder = self._made(make)
        given = rows.filter(present)
        keys = self._producer.call(self._encoder.encode, given).cast(pa.binary())
        if len(keys) != given.num_rows or keys.null_count:
            msg = f"the encoder returned {len(keys) - keys.null_count} keys for "
            msg += f"{given.num_rows} rows"
            raise ContractBroken(msg, stream=self._columns.config.name)
        place = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
        return keys.take(pc.if_else(present, place, pa.scalar(None, pa.int64())))

    def _made(self, make: Callable[[dict[str, Any], str], T]) -> T:
        columns = self._columns
        options = key_options(columns.decoder, columns.config)
        topic = columns.config.get("topic.name", "")
        return self._producer.call(lambda: make(options, topic))
