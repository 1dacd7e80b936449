"""A message means what it means alone, whatever a batch holds beside it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.decoders import decoding
from tests.proving.generated import cases

from streamfactory.decoders.json import streamfactory_decoder
from streamfactory.decoders.json.decoder import JsonDecoder

if TYPE_CHECKING:
    from streamfactory.spi import Decoded

SCHEMA = (
    "i bigint, b tinyint, d double, f float, s string, o boolean, t timestamp, "
    "n timestamp_ntz, day date, x binary, l array<int>, "
    "r struct<i:int,l:array<struct<d:double>>>"
)


options = partial(decoding.options, streamfactory_decoder())


def decode(
    payloads: list[bytes], schema: str = SCHEMA, **chosen: str
) -> tuple[Decoded, list[dict[str, Any]], list[int]]:
    decoded = decoding.decode(JsonDecoder(options(schema, **chosen), "t"), payloads)
    source = decoded.source
    numbers = range(len(payloads)) if source is None else source.to_pylist()
    return decoded, decoded.rows.to_pylist(), list(numbers)


TOKENS = [
    *("0", "-0", "-0.0", "1", "1.0", "1e2", "127", "128", "2147483648", "1.5", "1e400"),
    *("9223372036854775807", "9223372036854775808", "9" * 400, "1e-400", "01", "+1"),
    *("NaN", "Infinity", "-Infinity", "Inf", "nan", "null", "true", "false", "True"),
    *(
        '""',
        '"a"',
        '"1"',
        '"\\u0000"',
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '"\n"',
        '"Inf"',
    ),
    *('"2013-01-01"', '"2013-01-01T05:00:00Z"', '"2013-01-01T05:00:00"', '"aGk="'),
    *('"2013-01-01T05:00:00.123456789Z"', '"aGk"', '"a=k="', '"2013-13-01"', '"é"'),
    *("[]", "[1,null,2]", "[1.5]", '["1"]', "{}", '{"i":1}', '{"i":"1"}', "[[[[1]]]]"),
    *('{"l":[{"d":1},null,{}]}', '{"l":[{"d":NaN}]}', '{"l":{}}', "[1,]", "3.4e39"),
]
keys = st.sampled_from(
    ["i", "b", "d", "f", "s", "o", "t", "n", "day", "x", "l", "r", "u", "\\u0069"]
)
pairs = st.tuples(keys, st.sampled_from(TOKENS)).map(lambda p: f'"{p[0]}":{p[1]}')
objects = st.lists(pairs, max_size=4).map(lambda p: ("{" + ",".join(p) + "}").encode())
WHOLE = [
    *(
        b"",
        b" ",
        b"null",
        b"[]",
        b"{",
        b"}",
        b"{}}",
        b"{}{}",
        b"{}\n{}",
        b"\xef\xbb\xbf{}",
    ),
    *(
        b' {"i":1}',
        b'{"i":1}\n',
        b'{"i":1},"x":{}',
        b'{"s":"}',
        b'{","i":2}',
        b"{\xff}",
    ),
    *(b'{"u":"\xff"}', b'{"i":\n1}', b'{"u":{"a":1}', b'{"u":' + b"[" * 300 + b"}"),
]
messages = st.one_of(objects, objects, st.sampled_from(WHOLE))


@pytest.mark.long("many random messages")
@pytest.mark.slow("1,000s of made-up messages")
@settings(max_examples=cases(150), deadline=None)
@given(st.one_of(st.lists(messages, max_size=5), st.lists(objects, max_size=20)))
@example([b'{"d":-0}', b"{}"])
@example([b'{"u":NaN}', b"{}"])
@example([b'{"i":1,"i":2}', b"{}"])
@example([b'{"s":"}', b'{","i":2}'])
@example([b'{"i":1}{"i":2}', b"", b"{}"])
def test_a_message_means_the_same_in_company_and_alone(payloads: list[bytes]) -> None:
    for chosen in (
        {},
        {"unknown_fields": "error"},
        {"missing_fields": "error", "schema": "i int, d double"},
        {"timestamp_unit": "millis"},
        {"schema": "i int not null, r struct<i:int not null,l:array<string>>"},
    ):
        together, rows, source = decode(payloads, **chosen)
        found = dict(zip(source, rows, strict=True))
        errors = {error.message: error.code for error in together.errors}
        for index, payload in enumerate(payloads):
            alone, its_rows, _ = decode([payload], **chosen)
            # -0.0 and 0.0 differ, NaN is itself
            assert repr(its_rows) == repr([found[index]] if index in found else [])
            assert [e.code for e in alone.errors] == [
                code for message, code in errors.items() if message == index
            ]


@settings(max_examples=cases(200), deadline=None)
@given(st.lists(messages, max_size=4))
def test_what_is_decoded_is_what_the_standard_library_reads(
    payloads: list[bytes],
) -> None:
    _, rows, source = decode(payloads, schema="i bigint, s string, d double")
    for row, index in zip(rows, source, strict=True):
        read = json.loads(payloads[index])
        assert (row["i"], row["s"]) == (read.get("i"), read.get("s"))
        assert row["d"] == read.get("d")
