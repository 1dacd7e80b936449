"""Decodes keys: each to one value of the column ``_key``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import pyarrow as pa

from streamfactory.conversion.conform import conform
from streamfactory.wiring.decoding.calling import call_decoder
from streamfactory.wiring.decoding.deadletters import Bad

if TYPE_CHECKING:
    from streamfactory.spi import DecodeContext, Decoder, MessageDecoder

KEY_PREFIX: Final = "key.decoder.prop."
_SUBJECT: Final = "schema.registry.subject"


def name_key_subject(decoder: Decoder, options: dict[str, Any], topic: str) -> None:
    """Set the subject of keys in a Schema Registry, if none is set: ``TOPIC-key``.

    Args:
        decoder: Of keys.
        options: Its parsed options.
        topic: Name of the topic.
    """
    declared = any(option.key == _SUBJECT for option in decoder.options)
    by_topic = options.get(f"{_SUBJECT}.strategy", "topic") == "topic"
    if declared and by_topic and options.get(_SUBJECT) is None:
        options[_SUBJECT] = f"{topic}-key"


@final
class KeyStage:
    """Decodes the keys of one partition. Not thread-safe.

    Args:
        decoder: The decoder of keys; closed with this stage.
    """

    def __init__(self, decoder: MessageDecoder) -> None:
        self._decoder = decoder
        fields = [field.with_nullable(True) for field in decoder.schema()]
        self._schema = pa.schema(fields)
        alone = len(fields) == 1
        self.type = fields[0].type if alone else pa.struct(fields)
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
            if len(columns) == 1
            else pa.StructArray.from_arrays(columns, fields=list(self._schema))
        )
        return column.take(index), bad

    def close(self) -> None:
        """Close the decoder."""
        self._decoder.close()
