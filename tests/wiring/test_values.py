"""How values of every Arrow type are shown: nothing fails and nothing is lost."""

from __future__ import annotations

import base64
import json
import re
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.everytype import EVERY_TYPE

from streamfactory.cli.rows import Table
from streamfactory.engines.search.outputs import json_lines
from streamfactory.wiring.core.values import (
    decode_leniently,
    encode_base64,
    plain_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
DATE = r"([+-]?\d{4,})-(\d\d)-(\d\d)"
CLOCK = r"(-?)(\d\d+):(\d\d):(\d\d)\.?(\d*)"
LAPSE = r"(-?)P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)\.?(\d*)S)?)?"


# --- a reader of what is shown --------------------------------------------------


def days(text: str) -> int:
    found = re.fullmatch(DATE, text)
    assert found is not None, text
    year, month, day = map(int, found.groups())
    cycles, rest = divmod(year - 2000, 400)
    inside = date(2000 + rest, month, day).toordinal()
    return cycles * 146_097 + inside - date(1970, 1, 1).toordinal()


def number(sign: str, seconds: int, rest: str, digits: int) -> int:
    assert len(rest) in (0, digits)
    found = seconds * int(10**digits) + int(rest or 0)
    return -found if sign else found


def clock(text: str, digits: int) -> int:
    found = re.fullmatch(CLOCK, text)
    assert found is not None, text
    sign, hours, minutes, seconds, rest = found.groups()
    whole = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return number(sign, whole, rest, digits)


def stamp(text: str, digits: int) -> int:
    day, _, time = text.removesuffix("Z").partition("T")
    return days(day) * 86_400 * int(10**digits) + (clock(time, digits) if time else 0)


def lapse(text: str, digits: int) -> int:
    found = re.fullmatch(LAPSE, text)
    assert found is not None, text
    sign, day, hours, minutes, seconds, rest = (part or "" for part in found.groups())
    parts = zip((day, hours, minutes, seconds), (86_400, 3600, 60, 1), strict=True)
    return number(sign, sum(int(n or 0) * k for n, k in parts), rest, digits)


def interval(text: str) -> pa.MonthDayNano:
    found = re.fullmatch(r"P(-?\d+)M(-?\d+)DT(-?)(\d+)\.(\d{9})S", text)
    assert found is not None, text
    months, day, sign, seconds, rest = found.groups()
    nanoseconds = number(sign, int(seconds), rest, 9)
    return pa.MonthDayNano([int(months), int(day), nanoseconds])


def read_back(shown: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of what JSON says."""
    types = pa.types
    if isinstance(kind, pa.UuidType):
        octets = [v and bytes.fromhex(v.replace("-", "")) for v in shown]
        return pa.ExtensionArray.from_storage(kind, pa.array(octets, pa.binary(16)))
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, read_back(shown, kind.storage_type))
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return read_back(shown, kind.value_type)
    if types.is_temporal(kind) and not types.is_interval(kind):
        whole = pa.int32() if kind.bit_width == 32 else pa.int64()
        read = time_reader(kind)
        return pa.array([None if v is None else read(v) for v in shown], whole)
    reader: Callable[[Any], Any] = {
        True: lambda value: value,
        types.is_floating(kind): float,
        types.is_decimal(kind): Decimal,
        types.is_interval(kind): interval,
        "binary" in str(kind): base64.b64decode,
    }[True]
    if types.is_struct(kind):
        return structs(shown, kind)
    if types.is_nested(kind):
        return lists(shown, kind)
    return pa.array([None if v is None else reader(v) for v in shown], kind)


def time_reader(kind: pa.DataType) -> Callable[[str], int]:
    types = pa.types
    if types.is_date32(kind):
        return days
    digits = 3 if types.is_date64(kind) else UNITS[kind.unit]
    read = stamp
    if types.is_duration(kind):
        read = lapse
    elif types.is_time(kind):
        read = clock
    return lambda text: read(text, digits)


def structs(shown: list[Any], kind: pa.DataType) -> pa.Array:
    pairs = [list(v.items()) if isinstance(v, dict) else v for v in shown]
    fields = []
    for index, field in enumerate(kind):
        assert all(v is None or v[index][0] == field.name for v in pairs)
        values = [None if v is None else v[index][1] for v in pairs]
        fields.append(read_back(values, field.type))
    mask = pa.array([v is None for v in pairs])
    if not fields:
        return pa.array([None if v is None else {} for v in pairs], kind)
    return pa.StructArray.from_arrays(
        fields, names=[field.name for field in kind], mask=mask
    )


def lists(shown: list[Any], kind: pa.DataType) -> pa.Array:
    is_map = pa.types.is_map(kind)
    inner = [item for value in shown for item in value or []]
    if is_map:
        keys = read_back([key for key, _ in inner], kind.key_type)
        items = read_back([item for _, item in inner], kind.item_type)
        values: pa.Array = pa.StructArray.from_arrays([keys, items], ["key", "value"])
    else:
        values = read_back(inner, kind.value_type)
    ends = [0]
    for value in shown:
        ends.append(ends[-1] + len(value or []))
    mask = pa.array([value is None for value in shown])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, mask=mask)


def same(column: pa.Array) -> pa.Array:
    """A column in the types that `read_back` has: times are numbers there."""
    kind, types = column.type, pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, same(column.storage))
    if types.is_dictionary(kind):
        return same(column.dictionary.take(column.indices))
    if types.is_run_end_encoded(kind):
        return same(pa.compute.run_end_decode(column))
    if types.is_temporal(kind) and not types.is_interval(kind):
        return column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    if types.is_struct(kind) and kind.num_fields:
        parts = [same(column.field(n)) for n in range(kind.num_fields)]
        names = [field.name for field in kind]
        return pa.StructArray.from_arrays(parts, names=names, mask=column.is_null())
    if types.is_map(kind):
        entries = column.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        return same(entries)
    if types.is_nested(kind) and not types.is_struct(kind):
        ends = [0]
        for value in column:
            ends.append(ends[-1] + len(value if value.is_valid else []))
        values = same(column.flatten())
        offsets = pa.array(ends, pa.int32())
        return pa.ListArray.from_arrays(offsets, values, mask=column.is_null())
    return column


def printed(column: pa.Array) -> list[Any]:
    """Values to compare: -0.0 differs from 0.0, and NaN is NaN."""
    if pa.types.is_struct(column.type):  # Python has none with equal names
        return [printed(part) for part in column.flatten()]
    return [repr(value) for value in column.to_pylist()]


def shown_in_json(column: pa.Array) -> list[Any]:
    rows = pa.RecordBatch.from_arrays([column], names=["v"])
    return [json.loads(line)["v"] for line in json_lines(rows)]


# --- every type -----------------------------------------------------------------

NAMES = [name for name in EVERY_TYPE if "union" not in name]


@pytest.mark.parametrize("name", NAMES)
def test_json_has_all_that_a_value_has(name: str) -> None:
    column = EVERY_TYPE[name]
    back, given = read_back(shown_in_json(column), column.type), same(column)
    assert back.is_null().equals(given.is_null())
    assert printed(back) == printed(given)


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_slice_is_shown_as_its_part_of_the_whole(name: str) -> None:
    column = EVERY_TYPE[name]
    whole = shown_in_json(column)
    for at in range(len(column)):
        assert shown_in_json(column.slice(at)) == whole[at:]
    assert len({json.dumps(value) for value in whole}) == (
        {"null": 1, "run_end_encoded": 3}.get(name, len(column))
    )


@pytest.mark.parametrize("name", EVERY_TYPE)
def test_table_has_one_printable_line_for_each_row(name: str) -> None:
    column = EVERY_TYPE[name]
    rows = pa.RecordBatch.from_arrays([column], names=["v"])
    lines = list(Table(["v"]).lines(rows))
    assert len(lines) == len(column) + 1
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= 60


def test_unions_name_the_child_of_each_value() -> None:
    for name in ("sparse union", "dense union"):
        assert shown_in_json(EVERY_TYPE[name]) == [
            {"n": 1},
            {"s": "1"},
            {"s": None},
            {"n": 4},
        ]
    twins = pa.UnionArray.from_sparse(
        pa.array([3, 9], pa.int8()),
        [pa.array([1, 2]), pa.array(["1", "2"])],
        ["a", "a"],
        [3, 9],
    )
    assert shown_in_json(twins) == [{"3": 1}, {"9": "2"}]


# --- numbers at random ----------------------------------------------------------

LONGS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-(10**12), 10**12), st.integers(-9, 9)
)
KINDS = [
    *(pa.timestamp(unit, zone) for unit in UNITS for zone in (None, "Mars/Olympus")),
    *map(pa.duration, UNITS),
    pa.date64(),
    pa.time64("us"),
    pa.time64("ns"),
]


@given(st.lists(LONGS, min_size=1), st.sampled_from(KINDS))
def test_times_read_back_as_their_numbers(numbers: list[int], kind: Any) -> None:
    column = pa.array(numbers, pa.int64()).view(kind)
    shown = plain_values(column, encode_base64)
    assert read_back(shown, kind).to_pylist() == numbers


@given(st.lists(st.floats(width=32)), st.lists(st.floats(width=16)))
def test_narrow_floats_read_back_as_their_bits(wide: Any, half: Any) -> None:
    for values, kind in ((wide, pa.float32()), (half, pa.float16())):
        column = pa.array(values, kind)
        shown = shown_in_json(column)
        back = read_back(shown, kind).to_pylist()
        assert [repr(v) for v in back] == [repr(v) for v in column.to_pylist()]


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_times_within_ten_thousand_years_are_what_arrow_prints(second: int) -> None:
    column = pa.array([second], pa.timestamp("s"))
    (text,) = column.cast(pa.string()).to_pylist()
    assert plain_values(column, encode_base64) == [text.replace(" ", "T")]
    day = pa.array([second // 86_400], pa.int32()).cast(pa.date32())
    assert plain_values(day, encode_base64) == day.cast(pa.string()).to_pylist()


# --- bytes that are none of their type ------------------------------------------


def test_text_that_is_no_utf8_is_shown_with_escapes() -> None:
    octets = pa.array([b"a\xff", None, b"\xed\xa0\x80"])
    text = pa.Array.from_buffers(pa.string(), 3, octets.buffers())
    assert shown_in_json(text) == ["a\\xff", None, "\\xed\\xa0\\x80"]
    assert plain_values(octets, decode_leniently)[0] == "a\\xff"


def test_times_beyond_a_day_are_shown_as_they_are() -> None:
    column = pa.array([86_400_000_000, -1], pa.int64()).view(pa.time64("us"))
    assert shown_in_json(column) == ["24:00:00.000000", "-00:00:00.000001"]
    column = pa.array([86_400_001, -1], pa.int64()).view(pa.date64())
    assert shown_in_json(column) == [
        "1970-01-02T00:00:00.001",
        "1969-12-31T23:59:59.999",
    ]


def test_columns_of_equal_names_are_shown_as_pairs() -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["x"])], ["a", "a"])
    assert list(json_lines(rows)) == ['[["a", 1], ["a", "x"]]']
