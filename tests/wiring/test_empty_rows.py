"""Streams without rows have a batch of every type, nested in every other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.fuzz.columns import columns

from streamfactory.conversion.conform import empty_rows

if TYPE_CHECKING:
    from collections.abc import Callable

AROUND: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "itself": lambda kind: kind,
    "list": pa.list_,
    "list_view": pa.list_view,
    "fixed_list": lambda kind: pa.list_(kind, 2),
    "struct": lambda kind: pa.struct([("a", kind)]),
    "map": lambda kind: pa.map_(pa.string(), kind),
    "union": lambda kind: pa.dense_union([pa.field("a", kind)]),
    "runs": lambda kind: pa.run_end_encoded(pa.int32(), kind),
}


@pytest.mark.parametrize("around", AROUND)
def test_no_rows_of_a_type_are_sound_and_can_be_written(around: str) -> None:
    kinds = {name: AROUND[around](column.type) for name, column in columns().items()}
    schema = pa.schema(kinds)
    rows = empty_rows(schema)
    rows.validate(full=True)
    assert rows.schema.equals(schema)
    assert rows.num_rows == 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(rows)
    with pa.ipc.open_stream(sink.getvalue()) as stream:
        assert stream.read_all().schema.equals(schema)
