"""Kafka's partitioner for columns: murmur2, as in the Java client."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_WORD: Final = 4
"""Bytes that are hashed at once."""
_TAILS: Final = np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)
"""The bytes of a word that a rest of so many bytes has."""


def murmur2(keys: pa.Array) -> np.ndarray:
    """Return the hash of each key, as unsigned 32-bit numbers.

    Args:
        keys: binary, no nulls.
    """
    if not len(keys):
        return np.empty(0, np.uint32)
    starts, lengths, octets = _buffers(keys)
    counts = lengths // _WORD
    if counts[0] == counts.max() == counts.min():
        return _hash(starts, lengths, octets, counts)
    # Keys with more words come last: each step hashes a word of the keys that have it.
    order = stable_order(counts)
    hashes = np.empty(len(keys), np.uint32)
    hashes[order] = _hash(starts[order], lengths[order], octets, counts[order])
    return hashes


def partition_of(keys: pa.Array, partitions: int) -> np.ndarray:
    """Return the partition of each key, like Java's default partitioner."""
    positive = murmur2(keys) & np.uint32(0x7FFFFFFF)
    return (positive % np.uint32(partitions)).astype(np.int32)


def stable_order(numbers: np.ndarray) -> np.ndarray:
    """The indices that sort numbers of at least 0; equal ones keep their order."""
    # NumPy sorts 16 bits by radix, which is seven times as fast.
    small = numbers.max() < 1 << 16
    return np.argsort(numbers.astype(np.uint16) if small else numbers, kind="stable")


def _buffers(keys: pa.Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start and length of each key, and the little-endian word at each start."""
    wide = pa.types.is_large_binary(keys.type)
    kind = np.int64 if wide else np.int32
    offsets = np.frombuffer(keys.buffers()[1], kind)[keys.offset :][: len(keys) + 1]
    first, end = int(offsets[0]), int(offsets[-1])
    octets = np.zeros(end - first + _WORD, np.uint8)  # a word is read past the end
    if end > first:
        octets[:-_WORD] = np.frombuffer(keys.buffers()[2], np.uint8)[first:end]
    words = np.ndarray((len(octets) - _WORD + 1,), "<u4", octets, strides=(1,))
    starts = offsets[:-1].astype(np.int64) - first
    return starts, np.diff(offsets).astype(np.int64), words


def _hash(
    starts: np.ndarray, lengths: np.ndarray, words: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Hash keys in ascending order of the words that they have."""
    h = lengths.astype(np.uint32) ^ _SEED
    begins = np.searchsorted(counts, np.arange(counts[-1]), side="right")
    for at, begin in enumerate(begins.tolist()):
        k = words[starts[begin:] + at * _WORD] * _M
        k ^= k >> np.uint32(24)
        k *= _M
        some = h[begin:]
        some *= _M
        some ^= k
    rest = lengths % _WORD
    if rest.any():
        h = np.where(
            rest, (h ^ (words[starts + counts * _WORD] & _TAILS[rest])) * _M, h
        )
    h ^= h >> np.uint32(13)
    h *= _M
    h ^= h >> np.uint32(15)
    return h
