"""The compiled parser of JSON returns what msgspec does, or leaves a message to it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.decoders import decoding
from tests.decoders.test_json_layouts import TOKENS, assert_alike, pair

from streamfactory.compiled.flatjson import CompiledMessages
from streamfactory.decoders.json import streamfactory_decoder
from streamfactory.decoders.json.decoder import JsonDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.compiled.core import Core

options = partial(decoding.options, streamfactory_decoder())
FLAT = "i bigint, d double, s string, o boolean"
KINDS = {"i": pa.int64(), "d": pa.float64(), "s": pa.string(), "o": pa.bool_()}
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
FITTING = {
    "i": st.none() | st.integers(-(2**63), 2**63 - 1),
    "d": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "s": st.none() | st.text(max_size=40),
    "o": st.none() | st.booleans(),
}
ROWS = st.fixed_dictionaries({}, optional={**FITTING, "u": VALUES})


def parse(core: Core, *messages: bytes, **told: bool) -> tuple[list[int], Any]:
    """The messages that are left, and the rows of the others."""
    parser = CompiledMessages(core, KINDS, all_fields=told.get("all_fields", False))
    texts = pa.array(messages, pa.binary()).view(pa.string())
    parts, others = parser.parts(texts, undeclared=told.get("undeclared", True))
    rows = []
    for _, columns in parts:
        for column in columns:
            column.validate(full=True)
        rows = pa.RecordBatch.from_arrays(columns, names=[*KINDS]).to_pylist()
    return others.tolist(), rows


def test_flat_messages_in_any_order_are_parsed(compiled: Core) -> None:
    left, rows = parse(
        compiled,
        b'{"i":-12,"d":1.5e3,"s":"a","o":true}',
        b' { "o" : false , "s" : "\\u00e9\\n\\ud83d\\ude00" , "i" : null } ',
        b'{"u":{"a":[1,{"b":"}"}],"c":-0.5e-7},"d":3}',
        b"{}",
    )
    assert left == []
    assert rows == [
        {"i": -12, "d": 1500.0, "s": "a", "o": True},
        {"i": None, "d": None, "s": "é\n😀", "o": False},
        {"i": None, "d": 3.0, "s": None, "o": None},
        {"i": None, "d": None, "s": None, "o": None},
    ]


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"{", b"[]", b"{}x", b'{"i":1,}', b'{"i" 1}', b'{"i":1 "d":2}', b"{,}"),
        *(b'{"i":01}', b'{"i":-}', b'{"i":1.0}', b'{"i":1e2}', b'{"i":"1"}'),
        *(b'{"d":-0}', b'{"d":-0.0}', b'{"d":1e999}', b'{"d":.5}', b'{"d":1.}'),
        *(b'{"s":"\\ud800"}', b'{"s":"\\udc00"}', b'{"s":"\\x"}', b'{"s":"\x01"}'),
        *(b'{"s":"a', b'{"s":"\\', b'{"s":"\\u12', b'{"o":tru}', b'{"u":nul}'),
        *(b'{"i":1,"i":2}', b'{"o":true,"s":"b","o":null}', b'{"s":"b","d":1,"i":x}'),
        *(b'{"u":[1,]}', b'{"u":{"a"}}', b'{"u":' + b"[" * 99 + b"]" * 99 + b"}"),
    ],
)
def test_what_is_not_surely_good_is_left_with_nothing_of_it(
    message: bytes, compiled: Core
) -> None:
    good = b'{"i":1,"s":"x"}'
    left, rows = parse(compiled, good, message, good)
    assert left == [1]
    assert [row["s"] for row in rows] == ["x", "x"]


@pytest.mark.parametrize(
    ("name", "escaped", "other"),
    [
        ('a"b', b'a\\"b', b'a"b'),
        ("a\\b", b"a\\\\b", b"a\\b"),
        ("a\tb", b"a\\tb", b"a\tb"),
        ("\\u0041", b"\\\\u0041", b"\\u0041"),
    ],
)
def test_names_that_are_escaped_in_json_are_no_others(
    name: str, escaped: bytes, other: bytes, compiled: Core
) -> None:
    parser = CompiledMessages(compiled, {name: pa.int64()}, all_fields=True)
    messages = [b'{"%s":7}' % escaped, b'{"%s":8}' % other]
    texts = pa.array(messages, pa.binary()).view(pa.string())
    [(rows, [column])], others = parser.parts(texts, undeclared=True)
    assert (rows.tolist(), column.to_pylist(), others.tolist()) == ([0], [7], [1])


def test_control_characters_are_found_wherever_they_are(compiled: Core) -> None:
    # Blocks of 16 bytes, words of 8, and what is left.
    around = [(at, 41 - at) for at in range(42)]
    bad = [
        b'{"s":"' + b"a" * before + bytes([code]) + b"a" * behind + b'"}'
        for code in range(0x20)
        for before, behind in around
    ]
    good = b'{"s":"' + b" " * 42 + b'"}'
    assert parse(compiled, *bad, good)[0] == [*range(len(bad))]


@pytest.mark.parametrize("end", ["}", "}" + " " * 9])
def test_numbers_of_any_length_are_exact(end: str, compiled: Core) -> None:
    digits = "98765432109876543210"
    whole = [sign + digits[:n] for n in range(1, 19) for sign in ("", "-")]
    wide = [digits[:19], digits]
    messages = [f'{{"i":{one}{end}'.encode() for one in (*whole, *wide)]
    left, rows = parse(compiled, *messages)
    assert left == [len(whole), len(whole) + 1]
    assert [row["i"] for row in rows] == [*map(int, whole)]
    parts = [f"{digits[:n]}.{digits[:m]}" for n in range(1, 20) for m in range(1, 20)]
    messages = [f'{{"d":{one}{end}'.encode() for one in parts]
    assert [row["d"] for row in parse(compiled, *messages)[1]] == [*map(float, parts)]


@pytest.mark.parametrize("byte", [c for c in range(128) if not chr(c).isdigit()])
def test_what_follows_digits_is_no_digit(byte: int, compiled: Core) -> None:
    messages = [
        b'{"i":' + b"1" * n + bytes([byte]) + b"1" * m + b"}"
        for n in range(1, 9)
        for m in range(8)
    ]
    space = byte in b" \t\n\r"
    left, _ = parse(compiled, *messages)
    assert left == [at for at in range(len(messages)) if at % 8 or not space]


def test_fields_that_lack_or_are_undeclared_are_left_where_they_matter(
    compiled: Core,
) -> None:
    some, more = b'{"i":1}', b'{"i":1,"d":1,"s":"","o":true,"u":1}'
    assert parse(compiled, some, more) == ([], parse(compiled, some, more)[1])
    assert parse(compiled, some, more, all_fields=True)[0] == [0]
    assert parse(compiled, some, more, undeclared=False)[0] == [1]


def test_buffers_that_do_not_fit_are_an_error(compiled: Core) -> None:
    parser = compiled.FlatJson([("i", "int64")], False)
    data = pa.py_buffer(b'{"i":1}')

    def offsets(*numbers: int) -> pa.Buffer:
        return pa.array(numbers, pa.int32()).buffers()[1]

    assert not memoryview(parser.parse(offsets(0, 7), data, 0, 1, True)[0])
    for given_offsets, first, count in [
        (offsets(0, 8), 0, 1),
        (offsets(-1, 7), 0, 1),
        (offsets(7, 0), 0, 1),
        (offsets(0, 7), 1, 1),
        (offsets(0, 7), 0, 2**40),
        (offsets(0, 7), 2**63, 2**63),
    ]:
        with pytest.raises(ValueError, match="do not fit"):
            parser.parse(given_offsets, data, first, count, True)


@pytest.mark.usefixtures("compiled")
@given(
    st.lists(ROWS, min_size=1, max_size=8),
    st.booleans(),
    st.sampled_from([None, (",", ":"), (" ,", " : ")]),
)
@example([{"s": "\x7f\x80\u07ff\uffff"}, {"d": 5e-324}], False, None)
def test_generated_rows_decode_as_msgspec_decodes_them(
    rows: list[Mapping[str, Any]], ascii_only: bool, separators: Any
) -> None:
    payloads = [
        json.dumps(row, ensure_ascii=ascii_only, separators=separators).encode(
            errors="surrogatepass"
        )
        for row in rows
    ]
    decoder, parser = pair(FLAT)
    assert_alike(decoder, parser, pa.array(payloads, pa.binary()))


@pytest.mark.usefixtures("compiled")
@given(
    st.dictionaries(
        st.sampled_from(["i", "d", "s", "o", "u"]), st.sampled_from(TOKENS), min_size=1
    ),
    st.integers(0, 60),
    st.binary(max_size=2),
)
def test_damaged_messages_decode_as_msgspec_decodes_them(
    fields: Mapping[str, str], at: int, put: bytes
) -> None:
    text = ",".join(f'"{name}":{token}' for name, token in fields.items())
    message = ("{" + text + "}").encode()
    damaged = message[:at] + put + message[at + len(put) :]
    decoder, parser = pair(FLAT)
    values = pa.array([message, damaged, b'{"i":1}'], pa.binary())
    assert_alike(decoder, parser, values)


@pytest.mark.usefixtures("compiled")
def test_decoders_use_the_core() -> None:
    decoder = JsonDecoder(options(FLAT), "t")
    assert isinstance(decoder._flat, CompiledMessages)
    assert JsonDecoder(options("a array<int>"), "t")._flat is None
