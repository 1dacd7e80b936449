"""The message frame of Confluent's Schema Registry, for whole batches.

A framed message is a zero byte, the id of its schema in four bytes, and the payload.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import lengths_of
from streamfactory.decoders.isolation import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HEADER: Final = 5
"""Bytes of the frame: a zero byte and the schema id."""


def heads(values: pa.Array, length: int) -> np.ndarray:
    """The first bytes of each value, one row each, padded with zeros.

    Args:
        values: binary.
        length: Number of bytes.
    """
    starts, lengths, data = places(values)
    data = np.append(data, np.zeros(length, np.uint8))
    found = data[starts[:, None] + np.arange(length)]
    found[np.arange(length) >= lengths[:, None]] = 0
    return found


def stripped(values: pa.Array, length: int) -> pa.Array:
    """The values without their first ``length`` bytes; none may be shorter."""
    if not length or not len(values):
        return values
    starts, sizes, data = places(values)
    kept = np.ones(len(data), bool)
    for byte in range(length):
        kept[starts + byte] = False
    offsets = np.concatenate([[0], np.cumsum(sizes - length)]).astype(np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data[kept])]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def head(number: int) -> bytes:
    """The frame of a schema id."""
    return b"\0" + number.to_bytes(HEADER - 1, "big")


def framed(payloads: pa.Array, before: bytes) -> pa.Array:
    """The payloads, each with a prefix."""
    return pc.binary_join_element_wise(
        pa.scalar(before, pa.binary()), payloads, pa.scalar(b"", pa.binary())
    )


def by_schema(
    values: pa.Array,
    messages: np.ndarray,
    refuse: Callable[[Sequence[int], tuple[str, str]], None],
) -> Iterator[tuple[int, pa.Array, np.ndarray]]:
    """Group framed messages by schema id, in ascending order of the ids.

    Args:
        values: binary.
        messages: Message index of each value.
        refuse: Called with the messages that have no frame, and the reason.

    Yields:
        The id, the values with their frame, and the message index of each.
    """
    found = heads(values, HEADER)
    right = (found[:, 0] == 0) & (lengths_of(values) >= HEADER)
    if not right.all():
        why = "the message does not begin with a zero byte and a schema id"
        refuse(messages[~right], ("framing", why))
        kept = np.flatnonzero(right)
        values, messages, found = (
            values.take(pa.array(kept)),
            messages[kept],
            found[kept],
        )
    ids = found[:, 1:].astype(np.int64) @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
    unique = np.unique(ids)
    for number in unique.tolist():
        if len(unique) == 1:
            yield number, values, messages
        else:
            at = np.flatnonzero(ids == number)
            yield number, values.take(pa.array(at)), messages[at]
