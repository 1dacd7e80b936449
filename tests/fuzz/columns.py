"""Columns of every Arrow type: the sound batches that the fuzz suite mutates."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

ROWS: Final = 8
"""Of each column."""
_WORDS: Final = [
    "a",
    "",
    None,
    "bäta",
    "a text that no view holds inline",
    "c",
    "d",
    "a",
]
_BYTES: Final = [None if word is None else word.encode() for word in _WORDS]
_LISTS: Final = [[1, 2], None, [], [3], [4, None, 5], [6], [], [7]]
_NUMBERS: Final = [1, None, 3, 4, 5, 6, 7, 8]
_TEXTS: Final = ["x", "y", "x", None, "z", "x", "y", "z"]


def _numbers() -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    for bits in (8, 16, 32, 64):
        for sign in ("", "u"):
            name = f"{sign}int{bits}"
            found[name] = pa.array(_NUMBERS, getattr(pa, name)())
    for name, kind in (("half", pa.float16()), ("float", pa.float32())):
        found[name] = pa.array(np.arange(ROWS, dtype=np.float16)).cast(kind)
    found["double"] = pa.array([0.5, None, 1e300, -0.0, 1.0, 2.0, 3.0, 4.0])
    found["bool"] = pa.array([True, None, False, True] * 2)
    for bits, kind in (
        (32, pa.decimal32(7, 2)),
        (64, pa.decimal64(15, 3)),
        (128, pa.decimal128(30, 5)),
        (256, pa.decimal256(60, -3)),
    ):
        money = [None if n is None else Decimal(n * 1000) for n in _NUMBERS]
        found[f"decimal{bits}"] = pa.array(money, kind)
    return found


def _times() -> dict[str, pa.Array]:
    day = dt.datetime(2013, 1, 1, 5, 30, tzinfo=dt.UTC)
    found = {"date32": pa.array([day.date(), None] * 4, pa.date32())}
    found["date64"] = pa.array([day.date(), None] * 4, pa.date64())
    for unit in ("s", "ms", "us", "ns"):
        moments = pa.array([day, None] * 4, pa.timestamp(unit, "UTC"))
        found[f"timestamp_{unit}"] = moments
        found[f"duration_{unit}"] = pa.array(_NUMBERS, pa.duration(unit))
        width = pa.time32 if unit in {"s", "ms"} else pa.time64
        found[f"time_{unit}"] = pa.array(_NUMBERS, width(unit))
    found["timestamp_zone"] = pa.array(
        [day] * ROWS, pa.timestamp("us", "Europe/Berlin")
    )
    found["timestamp_local"] = pa.array([day.replace(tzinfo=None)] * ROWS)
    interval = pa.MonthDayNano([1, 2, 3])
    found["interval"] = pa.array([interval, None] * 4, pa.month_day_nano_interval())
    return found


def _texts() -> dict[str, pa.Array]:
    found = {
        "string": pa.array(_WORDS, pa.string()),
        "large_string": pa.array(_WORDS, pa.large_string()),
        "string_view": pa.array(_WORDS, pa.string_view()),
        "binary": pa.array(_BYTES, pa.binary()),
        "large_binary": pa.array(_BYTES, pa.large_binary()),
        "binary_view": pa.array(_BYTES, pa.binary_view()),
        "fixed_binary": pa.array([b"abc", None] * 4, pa.binary(3)),
        "empty_binary": pa.array([b""] * ROWS, pa.binary(0)),
    }
    found["long_string"] = pa.array(["ü" * 40] * ROWS)
    found["ascii"] = pa.array([f"word {n}" for n in range(ROWS)])
    return found


def _nested() -> dict[str, pa.Array]:
    pairs = [[("k", 1)], None, [], [("a", 2), ("b", None)]] * 2
    rows = [{"u": "q", "v": [b"1"]}, None, {"u": None, "v": None}, {}] * 2
    kinds = pa.array([0, 1] * 4, pa.int8())
    parts = [pa.array(range(ROWS)), pa.array(["z"] * ROWS)]
    places = pa.array([0, 0, 1, 1, 2, 2, 3, 3], pa.int32())
    struct_of_views = pa.StructArray.from_arrays(
        [pa.array(_WORDS, pa.string_view()), pa.array(_LISTS)], ["v", "l"]
    )
    found = {
        "list": pa.array(_LISTS, pa.list_(pa.int64())),
        "list_of_text": pa.array([["a", None], None, [], ["bc"]] * 2),
        "list_of_lists": pa.array([[[1], []], None, [], [[2, 3]]] * 2),
        "large_list": pa.array(_LISTS, pa.large_list(pa.int32())),
        "list_view": pa.array(_LISTS, pa.list_view(pa.int64())),
        "large_list_view": pa.array(_LISTS, pa.large_list_view(pa.int64())),
        "list_view_of_text": pa.array([["a"], None] * 4, pa.list_view(pa.string())),
        "fixed_list": pa.array([[1, 2], None] * 4, pa.list_(pa.int32(), 2)),
        "fixed_list_of_text": pa.array([["a", "b"]] * ROWS, pa.list_(pa.string(), 2)),
        "empty_list": pa.array([[]] * ROWS, pa.list_(pa.int32(), 0)),
        "map": pa.array(pairs, pa.map_(pa.string(), pa.int64())),
        "map_of_lists": pa.array(
            [[(7, [1])], None] * 4, pa.map_(pa.int32(), pa.list_(pa.int8()))
        ),
        "struct": pa.array(
            rows, pa.struct({"u": pa.string(), "v": pa.list_(pa.binary())})
        ),
        "struct_of_views": struct_of_views,
        "sparse_union": pa.UnionArray.from_sparse(kinds, parts),
        "dense_union": pa.UnionArray.from_dense(kinds, places, parts),
        "null": pa.nulls(ROWS),
    }
    found["struct_of_nothing"] = pa.array([{}] * ROWS, pa.struct([]))
    found["list_of_structs"] = pa.array([[{"n": 1}], None] * 4)
    return found


def _encoded() -> dict[str, pa.Array]:
    ends = [3, 5, ROWS]
    found = {
        f"runs{bits}": pa.RunEndEncodedArray.from_arrays(
            pa.array(ends, getattr(pa, f"int{bits}")()), pa.array(["a", None, "b"])
        )
        for bits in (16, 32, 64)
    }
    found["runs_of_numbers"] = pa.RunEndEncodedArray.from_arrays(ends, [1, 2, 3])
    found["runs_of_lists"] = pa.RunEndEncodedArray.from_arrays(
        ends, pa.array([[1], [2, 3], None])
    )
    for bits in (8, 16, 32, 64):
        index = getattr(pa, f"int{bits}")()
        found[f"dictionary{bits}"] = pa.array(_TEXTS).cast(
            pa.dictionary(index, pa.string())
        )
    words = pa.array(_TEXTS).dictionary_encode()
    found["dictionary_of_numbers"] = pa.array(
        [10, 20, None, 10] * 2
    ).dictionary_encode()
    found["unsigned_dictionary"] = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2, 0] * 2, pa.uint8()), pa.array(["x", "y", None])
    )
    found["dictionary_of_lists"] = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 1, 0] * 2, pa.int8()), pa.array([[1, 2], [3]])
    )
    found["list_of_dictionaries"] = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3, 4, 5, 6, 7, 8], pa.int32()), words
    )
    found["struct_of_dictionaries"] = pa.StructArray.from_arrays([words], ["d"])
    found["runs_in_struct"] = pa.StructArray.from_arrays([found["runs32"]], ["r"])
    found["list_of_runs"] = pa.ListArray.from_arrays(
        pa.array([0, 1, 2, 3, 4, 5, 6, 7, 8], pa.int32()), found["runs32"]
    )
    found["uuid"] = pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([bytes(range(16)), None] * 4, pa.binary(16))
    )
    found["json"] = pa.ExtensionArray.from_storage(
        pa.json_(), pa.array(["{}", None] * 4)
    )
    tensor = pa.fixed_shape_tensor(pa.int32(), [2, 2])
    storage = pa.array([[1, 2, 3, 4]] * ROWS, tensor.storage_type)
    found["tensor"] = pa.ExtensionArray.from_storage(tensor, storage)
    found["bool8"] = pa.ExtensionArray.from_storage(
        pa.bool8(), pa.array([1, 0, None, 1] * 2, pa.int8())
    )
    return found


@cache
def columns() -> dict[str, pa.Array]:
    """A column of each type, by name; each has `ROWS` rows."""
    found = _numbers() | _times() | _texts() | _nested() | _encoded()
    assert {len(column) for column in found.values()} == {ROWS}
    return found


def _amplified(values: pa.Array, count: int) -> pa.Array:
    indices = pa.array(np.zeros(count, np.int32))
    return pa.DictionaryArray.from_arrays(indices, values)


def _list_view(count: int, size: int) -> pa.Array:
    return pa.ListViewArray.from_arrays(
        pa.array(np.zeros(count, np.int32)),
        pa.array(np.full(count, size, np.int32)),
        pa.array(np.zeros(size, np.int64)),
    )


def _views(count: int, size: int) -> pa.Array:
    views = struct.pack("<i4sii", size, b"xxxx", 0, 0) * count
    buffers = [None, pa.py_buffer(views), pa.py_buffer(b"x" * size)]
    return pa.Array.from_buffers(pa.string_view(), count, buffers)


def _runs(kind: Any, value: pa.Array, last: int) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([last], kind), value)


AMPLIFIERS: Final[dict[str, Callable[[], pa.Array]]] = {
    "dictionary": lambda: _amplified(pa.array(["x" * 20_000]), 100_000),
    "large_dictionary": lambda: _amplified(
        pa.array(["x" * 20_000], pa.large_string()), 50_000
    ),
    "dictionary_of_lists": lambda: _amplified(
        pa.array([[0] * 20_000], pa.list_(pa.int8())), 50_000
    ),
    "list_view": lambda: _list_view(20_000, 100_000),
    "views": lambda: _views(50_000, 20_000),
    "runs": lambda: _runs(pa.int32(), pa.array(["x" * 1000]), 2**31 - 1),
    "runs_of_long_text": lambda: _runs(pa.int32(), pa.array(["x" * 20_000]), 50_000),
    "nulls": lambda: pa.Array.from_buffers(pa.null(), 2**31 - 1, [None]),
    "structs_of_nulls": lambda: pa.Array.from_buffers(
        pa.struct({"n": pa.null()}),
        2**28,
        [None],
        children=[pa.Array.from_buffers(pa.null(), 2**28, [None])],
    ),
    "zeros": lambda: pa.array(np.zeros(2**24, np.int64)),
    "bytes_of_zeros": lambda: pa.array([bytes(2**26)]),
    "empty_text": lambda: pa.array([""]).take(pa.array(np.zeros(2**22, np.int8))),
    "fixed_lists": lambda: pa.Array.from_buffers(
        pa.list_(pa.null(), 2**14),
        2**14,
        [None],
        children=[pa.Array.from_buffers(pa.null(), 2**28, [None])],
    ),
    "empty_lists": lambda: pa.Array.from_buffers(
        pa.list_(pa.int32(), 0), 2**31 - 1, [None], children=[pa.array([], pa.int32())]
    ),
    "wide_bytes": lambda: pa.array([], pa.binary(2**27)),
    "wide_list": lambda: pa.array([], pa.list_(pa.int64(), 2**30)),
}
"""Columns that are small in a message, and large when they are unpacked."""


@cache
def batch_of(*names: str) -> pa.RecordBatch:
    """A batch of the columns of these names."""
    return pa.RecordBatch.from_arrays(
        [columns()[name] for name in names], names=list(names)
    )


def any_batch(chance: random.Random) -> pa.RecordBatch:
    """A batch of one to three columns; a third of them are of one."""
    count = chance.choice((1, 2, 3))
    return batch_of(*sorted(chance.sample(sorted(columns()), count)))


@cache
def amplifier(name: str) -> pa.RecordBatch:
    """A batch of one of `AMPLIFIERS`."""
    return pa.RecordBatch.from_arrays([AMPLIFIERS[name]()], names=["c"])
