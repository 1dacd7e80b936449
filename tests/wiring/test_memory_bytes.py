"""The bytes of a batch in memory, of every type, whole and in slices."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.fuzz.columns import columns

from streamfactory.conversion.arrays import memory_bytes

HEADER = 1024
"""More than the header of a message of one column takes."""


@pytest.mark.parametrize("name", columns())
def test_bytes_of_every_type_are_those_of_its_buffers(name: str) -> None:
    whole = pa.record_batch({"column": columns()[name]})
    for rows in (whole, whole.slice(3, 2), whole.slice(8), whole.slice(0, 0)):
        assert rows.nbytes <= memory_bytes(rows) <= rows.nbytes + HEADER


def test_bytes_of_a_slice_are_those_of_its_rows() -> None:
    whole = pa.record_batch({"n": pa.arange(0, 100_000), "s": ["abc"] * 100_000})
    assert memory_bytes(whole.slice(50_000, 1000)) == whole.nbytes / 100


def test_bytes_of_a_dictionary_include_its_values() -> None:
    values = pa.array([f"{number:05d}" for number in range(10_000)])
    indices = pa.array([7, 7], pa.int32())
    rows = pa.record_batch({"d": pa.DictionaryArray.from_arrays(indices, values)})
    assert memory_bytes(rows) > 50_000
