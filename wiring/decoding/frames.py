"""Names the frames of schema registries in messages that cannot be decoded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.spi.computing import pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import BadMessage, MessageDecoder

_URL: Final = "schema.registry.rest.url"
_ID: Final = slice(1, 5)
_GLUE_LENGTH: Final = 18
"""Bytes of AWS Glue's frame: version 3, compression (0 or 5), a UUID."""


def with_frames(
    errors: Sequence[BadMessage], values: pa.Array, decoder: MessageDecoder
) -> Sequence[BadMessage]:
    """Return bad messages; where one has a frame that is not expected, it is named.

    Args:
        errors: Of the decoder.
        values: The messages, binary.
        decoder: Expects frames if it has the URL of a registry.
    """
    if not errors:
        return errors
    bad = values.take(pa.array([error.message for error in errors], pa.int64()))
    heads = pc.binary_slice(bad.cast(pa.binary()), 0, _GLUE_LENGTH).to_pylist()
    expected = getattr(decoder, "options", {}).get(_URL) is not None
    return [
        error if hint is None else replace(error, what=f"{error.what}; {hint}")
        for error, hint in (
            (error, _hint(head, expected=expected))
            for error, head in zip(errors, heads, strict=True)
        )
    ]


def _hint(head: bytes, *, expected: bool) -> str | None:
    if len(head) == _GLUE_LENGTH and head[0] == 3 and head[1] in (0, 5):
        return (
            "this looks like a frame of AWS Glue's Schema Registry, which is not "
            "supported: write with a registry that has Confluent's frame"
        )
    number = int.from_bytes(head[_ID], "big", signed=True)
    if expected or len(head) <= 5 or head[0] or number <= 0:
        return None
    return (
        f"this looks like a Schema Registry frame (id {number}): set "
        f"decoder.prop.{_URL} of avro, json or protobuf, or of debezium"
    )
