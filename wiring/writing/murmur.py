"""Kafka's partitioner over whole columns: murmur2, as the Java client computes it."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)


def murmur2(keys: pa.Array) -> np.ndarray:
    """The hash of each key, as unsigned 32-bit numbers.

    Args:
        keys: binary, no nulls.
    """
    if not len(keys):
        return np.empty(0, np.uint32)
    keys = keys.cast(pa.large_binary())
    lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset :][: len(keys)]
    data = keys.buffers()[2]
    octets = np.frombuffer(data or b"", np.uint8)
    hashes = np.empty(len(keys), np.uint32)
    # Keys of one length are hashed together, a word of four bytes at a time.
    for length in np.unique(lengths):
        chosen = np.nonzero(lengths == length)[0]
        index = offsets[chosen, None] + np.arange(length)
        hashes[chosen] = _hash(octets[index].astype(np.uint32), int(length))
    return hashes


def partition_of(keys: pa.Array, partitions: int) -> np.ndarray:
    """The partition of each key, as Java's default partitioner chooses it."""
    positive = murmur2(keys) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(partitions)).astype(np.int32)


def _hash(rows: np.ndarray, length: int) -> np.ndarray:
    """Hash rows of one length; columns are octets."""
    h = np.full(len(rows), _SEED ^ np.uint32(length), np.uint32)
    whole = length - length % 4
    for at in range(0, whole, 4):
        k = rows[:, at] | rows[:, at + 1] << 8 | rows[:, at + 2] << 16
        k = (k | rows[:, at + 3] << 24) * _M
        k ^= k >> np.uint32(24)
        h = (h * _M) ^ (k * _M)
    rest = length - whole
    if rest:
        for at in range(rest):
            h ^= rows[:, whole + at] << np.uint32(8 * at)
        h = h * _M
    h ^= h >> np.uint32(13)
    h = h * _M
    h ^= h >> np.uint32(15)
    return h
