"""The frame of a Schema Registry around messages, a batch at a time.

A framed message is a zero byte, four bytes with the id of the schema that it was
written with, and the payload.
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
"""Bytes before a payload: a zero, and the id of its schema."""


def heads(values: pa.Array, length: int) -> np.ndarray:
    """The first bytes of each value, one row each; shorter values end in zeros.

    Args:
        values: binary.
        length: How many bytes.
    """
    starts, lengths, data = places(values)
    data = np.append(data, np.zeros(length, np.uint8))
    found = data[starts[:, None] + np.arange(length)]
    found[np.arange(length) >= lengths[:, None]] = 0
    return found


def stripped(values: pa.Array, length: int) -> pa.Array:
    """The values without their first bytes; none may be shorter."""
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
    """What stands before a payload of the schema with this id."""
    return b"\0" + number.to_bytes(HEADER - 1, "big")


def framed(payloads: pa.Array, before: bytes) -> pa.Array:
    """The payloads with some bytes before each."""
    return pc.binary_join_element_wise(
        pa.scalar(before, pa.binary()), payloads, pa.scalar(b"", pa.binary())
    )


def by_schema(
    values: pa.Array,
    messages: np.ndarray,
    refuse: Callable[[Sequence[int], tuple[str, str]], None],
) -> Iterator[tuple[int, pa.Array, np.ndarray]]:
    """Framed messages by the id of their schema, in the order of the ids.

    Args:
        values: binary.
        messages: The message of each.
        refuse: Told which have no frame, and why.

    Yields:
        The id, the values with their frame, and the message of each.
    """
    found = heads(values, HEADER)
    right = (found[:, 0] == 0) & (lengths_of(values) >= HEADER)
    if not right.all():
        why = "the message does not begin with a zero byte and the id of a schema"
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
