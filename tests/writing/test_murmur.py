"""The partitioner is Kafka's: its own vectors, and its code read again, slowly."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfactory.wiring.writing.murmur import murmur2, partition_of


def signed(number: int) -> int:
    return number - 2**32 if number >= 2**31 else number


def javas(data: bytes) -> int:
    """Kafka's ``Utils.murmur2``, one key at a time."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := data[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return signed(h ^ h >> 15)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        # a Scala re-implementation of Kafka's tests itself by these
        (b"1", -1993445489),
        (b"12", 126087238),
        (b"1234", -1614185708),
        (b"12345", -1188365604),
    ],
)
def test_hashes_are_those_of_kafkas_own_tests(key: bytes, expected: int) -> None:
    assert signed(int(murmur2(pa.array([key], pa.binary()))[0])) == expected
    assert javas(key) == expected


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(1, 10_000))
def test_whole_columns_are_hashed_as_key_after_key(
    keys: list[bytes], partitions: int
) -> None:
    column = pa.array(keys, pa.binary())
    assert [signed(int(h)) for h in murmur2(column)] == [javas(key) for key in keys]
    expected = [(javas(key) & 0x7FFFFFFF) % partitions for key in keys]
    assert partition_of(column, partitions).tolist() == expected


def test_a_slice_of_a_column_is_hashed_from_its_own_first_key() -> None:
    column = pa.array([b"a", b"bb", b"", b"dddd", b"eeeee"], pa.binary()).slice(1, 3)
    assert [signed(int(h)) for h in murmur2(column)] == [
        javas(key) for key in (b"bb", b"", b"dddd")
    ]
