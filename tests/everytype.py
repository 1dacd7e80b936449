"""One array of every Arrow type: distinct values, extremes among them, and a null.

Only the nulls of the type null, and the values of run ends, come more than once.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

LONG = 2**63 - 1
TEXT: list[Any] = ["", "a", "a\0", "\x1b[31m\n\u202e", "ä😀", "x" * 70_000, None]
OCTETS: list[Any] = [b"", b"a", b"a\0", b"\xff\x00\n", b"12345678", b"123456789", None]
FLOATS: list[Any] = [
    0.0,
    -0.0,
    1.5,
    -65504.0,
    float("inf"),
    float("-inf"),
    float("nan"),
    None,
]
MONEY: list[Any] = [Decimal("0.00"), Decimal("-1.10"), Decimal("999.99"), None]


def _whole(kind: pa.DataType) -> pa.Array:
    signed = pa.types.is_signed_integer(kind)
    bits = kind.bit_width - signed
    least = [-(2**bits), -1] if signed else []
    return pa.array([*least, 0, 1, 2**bits - 1, None], kind)


def _time(kind: pa.DataType) -> pa.Array:
    """Values of a kind of time, out of what Python's datetime can have as well."""
    bits = kind.bit_width
    number = pa.int32() if bits == 32 else pa.int64()
    top = 2 ** (bits - 1) - 1
    return pa.array([-top - 1, -1, 0, 1, 86_399, top, None], number).view(kind)


def _clock(kind: pa.DataType, day: int) -> pa.Array:
    number = pa.int32() if kind.bit_width == 32 else pa.int64()
    return pa.array([0, 1, day // 2 + 1, day - 1, None], number).view(kind)


def _unions() -> dict[str, pa.Array]:
    parts = [pa.array([1, None, 3, 4]), pa.array(["x", "1", None, "y"])]
    codes = pa.array([5, 7, 7, 5], pa.int8())
    offsets = pa.array([0, 1, 2, 3], pa.int32())
    names, known = ["n", "s"], [5, 7]
    return {
        "sparse union": pa.UnionArray.from_sparse(codes, parts, names, known),
        "dense union": pa.UnionArray.from_dense(codes, offsets, parts, names, known),
    }


def _nested() -> dict[str, pa.Array]:
    lists: list[Any] = [[], [1], [1, None], [None, 1], [2, 1], None]
    pairs: list[Any] = [[], [("a", 1)], [("a", None), ("b", 2)], None]
    structs: list[Any] = [{"a": 1, "b": "x"}, {"a": None, "b": "x"}, None]
    struct = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    deep: list[Any] = [[{"m": [("k", [1])]}, None], [{"m": None}], None]
    tree = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int8())))]))
    twice = pa.StructArray.from_arrays(
        [pa.array([1, 2]), pa.array(["x", "y"])], names=["a", "a"]
    )
    return {
        "list": pa.array(lists, pa.list_(pa.int64())),
        "large_list": pa.array(lists, pa.large_list(pa.int64())),
        "list_view": pa.array(lists, pa.list_view(pa.int64())),
        "large_list_view": pa.array(lists, pa.large_list_view(pa.int64())),
        "fixed_size_list": pa.array([[1, 2], [2, None], None], pa.list_(pa.int8(), 2)),
        "map": pa.array(pairs, pa.map_(pa.string(), pa.int64())),
        "map of numbers": pa.array(
            [[(1, "a")], None], pa.map_(pa.int32(), pa.string())
        ),
        "struct": pa.array(structs, struct),
        "struct, equal names": twice,
        "struct, empty": pa.array([{}, None], pa.struct([])),
        "deep": pa.array(deep, tree),
        "list of times": pa.array([[0, 2**60], None], pa.list_(pa.int64())).cast(
            pa.list_(pa.timestamp("s", tz="UTC"))
        ),
    }


def _encoded() -> dict[str, pa.Array]:
    words = pa.array(["x", "y", None])
    stamps = pa.array([0, LONG], pa.int64()).view(pa.timestamp("us"))
    return {
        "dictionary": words.dictionary_encode(),
        "dictionary, null inside": pa.DictionaryArray.from_arrays(
            pa.array([0, 1], pa.int8()), pa.array(["x", None])
        ),
        "dictionary of times": pa.DictionaryArray.from_arrays(
            pa.array([1, 0, None], pa.int16()), stamps
        ),
        "run_end_encoded": pa.RunEndEncodedArray.from_arrays([2, 3, 5], words),
        "uuid": pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([b"0123456789abcdef", None], pa.binary(16))
        ),
        "json": pa.ExtensionArray.from_storage(
            pa.json_(), pa.array(['{"a": 1}', None])
        ),
        "bool8": pa.ExtensionArray.from_storage(
            pa.bool8(), pa.array([0, 1, None], pa.int8())
        ),
    }


def _all() -> dict[str, pa.Array]:
    whole = [
        getattr(pa, f"{sign}int{n}")() for sign in ("", "u") for n in (8, 16, 32, 64)
    ]
    units = ("s", "ms", "us", "ns")
    zones = ("UTC", "America/New_York", "+05:30", "Mars/Olympus")
    stamps = [pa.timestamp(unit) for unit in units]
    stamps += [pa.timestamp(unit, tz=zone) for unit in units for zone in zones]
    text = [pa.string(), pa.large_string(), pa.string_view()]
    octets = [pa.binary(), pa.large_binary(), pa.binary_view()]
    floats = [pa.float16(), pa.float32(), pa.float64()]
    money = [pa.decimal32(5, 2), pa.decimal64(9, 2), pa.decimal128(38, 2)]
    arrays = [_whole(kind) for kind in whole]
    arrays += [pa.array(FLOATS, kind) for kind in floats]
    arrays += [pa.array(TEXT, kind) for kind in text]
    arrays += [pa.array(OCTETS, kind) for kind in octets]
    arrays += [pa.array(MONEY, kind) for kind in [*money, pa.decimal256(76, 2)]]
    arrays += [_time(kind) for kind in stamps]
    arrays += [_time(pa.duration(unit)) for unit in units]
    arrays += [_time(pa.date32())]
    arrays += [
        _clock(pa.time32("s"), 86_400),
        _clock(pa.time32("ms"), 86_400_000),
        _clock(pa.time64("us"), 86_400_000_000),
        _clock(pa.time64("ns"), 86_400_000_000_000),
        pa.array([0, 86_400_000, -(2**60) // 86_400_000 * 86_400_000, None]).view(
            pa.date64()
        ),
        pa.array([True, False, None]),
        pa.nulls(2),
        pa.array([b"abc", b"\0\xff\n", None], pa.binary(3)),
        pa.array([pa.MonthDayNano([1, -2, 3]), pa.MonthDayNano([0, 0, LONG]), None]),
        pa.array([Decimal("1.2E+5"), None], pa.decimal128(5, -3)),
    ]
    found = {str(array.type): array for array in arrays}
    return {**found, **_nested(), **_unions(), **_encoded()}


EVERY_TYPE = _all()
"""By a name of the type."""
