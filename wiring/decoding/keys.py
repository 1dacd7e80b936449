"""Decodes keys: to values of ``_key``, or to columns beside those of the values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.conversion.conform import conform
from streamfactory.spi import ConfigError
from streamfactory.wiring.decoding.calling import call_decoder
from streamfactory.wiring.decoding.deadletters import Bad

if TYPE_CHECKING:
    from streamfactory.spi import DecodeContext, Decoder, MessageDecoder, StreamConfig

KEY_PREFIX: Final = "key.decoder.prop."
_SUBJECT: Final = "schema.registry.subject"


def key_options(decoder: Decoder, config: StreamConfig) -> dict[str, Any]:
    """The parsed options of the decoder of keys.

    Its subject in a Schema Registry is ``TOPIC-key``, if none is set.

    Args:
        decoder: Of keys.
        config: Of the stream.
    """
    options = {
        key.removeprefix(KEY_PREFIX): config[key]
        for key in config
        if key.startswith(KEY_PREFIX)
    }
    declared = any(option.key == _SUBJECT for option in decoder.options)
    by_topic = options.get(f"{_SUBJECT}.strategy", "topic") == "topic"
    if declared and by_topic and options.get(_SUBJECT) is None:
        options[_SUBJECT] = f"{config.get('topic.name', '')}-key"
    return options


@final
class KeyStage:
    """Decodes the keys of one partition. Not thread-safe.

    Args:
        decoder: The decoder of keys; closed with this stage.
        prefix: Of the columns of rows that keys become; None if they become ``_key``.
    """

    def __init__(self, decoder: MessageDecoder, prefix: str | None = None) -> None:
        self._decoder = decoder
        fields = [field.with_nullable(True) for field in decoder.schema()]
        self._schema = pa.schema(fields)
        self._alone = len(fields) == 1
        self.columns: tuple[pa.Field, ...] = ()
        """Columns of the rows that keys become; none if they become ``_key``."""
        if prefix is not None:
            self.columns = tuple(f.with_name(prefix + f.name) for f in fields)
        self.type = fields[0].type if self._alone else pa.struct(fields)
        """Type of ``_key``: that of the key's only column, or a struct of its
        columns."""

    def decode(
        self, keys: pa.Array, context: DecodeContext
    ) -> tuple[pa.Array, list[Bad]]:
        """Return a decoded key per message; null if it has none or a bad one."""
        there = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        decoded = call_decoder(self._decoder, keys.drop_null(), context)
        rows = conform(decoded.rows, self._schema)
        bad = [
            Bad(int(there[error.message]), None, f"key_{error.code}", error.what)
            for error in decoded.errors
        ]
        source = np.arange(rows.num_rows)
        if decoded.source is not None:
            source = decoded.source.to_numpy()
            ill = {error.message for error in decoded.errors}
            counts = np.bincount(source, minlength=len(there))
            bad += [
                Bad(
                    int(there[at]),
                    None,
                    "key",
                    f"its key decodes to {counts[at]} rows, not 1",
                )
                for at in np.flatnonzero(counts != 1).tolist()
                if at not in ill
            ]
        place = np.full(len(keys), -1)
        place[there[source]] = np.arange(rows.num_rows)
        place[[one.index for one in bad]] = -1
        index = pa.array(place, mask=place < 0)
        columns = rows.columns
        column = (
            columns[0]
            if self._alone
            else pa.StructArray.from_arrays(columns, fields=list(self._schema))
        )
        return column.take(index), bad

    def joined(self, values: pa.Schema) -> pa.Schema:
        """The schema of rows: the columns of keys, and those of values.

        Raises:
            ConfigError: config; two of them have the same name.
        """
        twice = [field.name for field in self.columns if field.name in values.names]
        if twice:
            msg = f"the key and the value both have a column {twice[0]!r}"
            remedy = "set key.decoder.columns.prefix, or declare columns of other names"
            raise ConfigError(msg, remedy=remedy)
        return pa.schema([*self.columns, *values])

    def with_columns(
        self, rows: pa.RecordBatch, keys: pa.Array, source: pa.Int32Array | None
    ) -> pa.RecordBatch:
        """Insert the columns of keys before those of the values.

        Args:
            rows: The rows.
            keys: The result of `decode`.
            source: The message of each row; None if row i is of message i.
        """
        if source is not None:
            keys = keys.take(source)
        columns = [keys] if self._alone else keys.flatten()
        schema = pa.schema([*self.columns, *rows.schema])
        return pa.RecordBatch.from_arrays([*columns, *rows.columns], schema=schema)

    def close(self) -> None:
        """Close the decoder."""
        self._decoder.close()
