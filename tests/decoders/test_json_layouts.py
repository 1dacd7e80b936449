"""Messages decoded by their common layout mean what they mean to the parser."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.decoders import decoding

from streamfactory.decoders.json import streamfactory_decoder, uniform
from streamfactory.decoders.json.decoder import JsonDecoder
from streamfactory.decoders.json.layouts import learned
from streamfactory.spi import DecodeContext, Partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.decoders.json.decoder import _Call
    from streamfactory.spi import Decoded

options = partial(decoding.options, streamfactory_decoder())
FLAT = "i bigint, d double, s string, o boolean"
SCHEMAS = [
    FLAT,
    "i bigint not null, s string not null, d double",
    "b tinyint, f float, t timestamp, x binary, day date, s string",
    "i int, `é` string, d double",
]
NAMES = ["i", "d", "s", "o", "b", "f", "t", "x", "day", "é", "u", "I", ""]
KINDS = {"i": "number", "b": "number", "d": "number", "f": "number", "o": "boolean"}
TOKENS = [
    *("0", "-0", "-0.0", "1.0", "1e2", "127", "128", "1.5", "-0.5", "00.5", "-00"),
    *("-", "--1", "1-1", "1..2", "1.", ".5", "-.5", "1.e5", "1e400", "1e-400", "01"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "+1"),
    *("999999999999999999", "9" * 400, "4.9e-324", "9007199254740993", "0x1F", "NaN"),
    *("inf", "null", "nul", "true", "True", "false", "", "1 ", "1 \t", "[]", "{}"),
    *('""', '"a"', '"1"', '"é"', '"\\u0000"', '"\\ud800"', '"\\n"', '"\n"', '"\\""'),
    *('"\x7f"', '"null"', '"{"', '"},{"', '"a,b:c"', '"2013-01-01T05:00:00Z"'),
    *('"2013-01-01"', '"aGk="', '{"i":1}', '1,"i":2', "1}", '1}\n{"i":1', '"x" '),
]
TOLD = {
    "unknown_fields": "error",
    "missing_fields": "error",
    "numbers_as_text": "true",
    "timestamp_unit": "millis",
}
BYTES = b'"\\{}[]:, \n\t\0\x1f0129-+.eEnull\xff\xc3\xa9a'


def shown(decoded: Decoded) -> list[Any]:
    """Everything of a result, -0.0 unlike 0.0."""
    columns = (
        one.view(pa.int64()) if pa.types.is_timestamp(one.type) else one
        for one in decoded.rows.columns
    )
    source, misfits = decoded.source, decoded.misfits
    return [
        repr([column.to_pylist() for column in columns]),
        decoded.rows.schema,
        None if source is None else source.to_pylist(),
        decoded.errors,
        sorted((m.column or "", m.what, m.rows.to_pylist()) for m in misfits),
        list(decoded.lookalikes),
    ]


def assert_alike(
    decoder: JsonDecoder, parser: JsonDecoder, values: pa.Array, **given: Any
) -> None:
    context = DecodeContext(Partition("t", 0), **given)
    decoded = decoder.decode(values, context)
    decoded.rows.validate(full=True)
    assert shown(decoded) == shown(parser.decode(values, context))


def pair(schema: str, **told: str) -> tuple[JsonDecoder, JsonDecoder]:
    """A decoder, and one that parses every message."""
    decoder, parser = (JsonDecoder(options(schema, **told), "t") for _ in range(2))
    parser._flat = None
    return decoder, parser


@pytest.fixture
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uniform, "_FEWEST", 1)
    monkeypatch.setattr(uniform, "_PAUSE", 0)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages that were parsed, by call."""
    counts: list[int] = []
    parse = JsonDecoder._parsed

    def counted(self: JsonDecoder, texts: pa.StringArray, call: _Call) -> Any:
        counts.append(len(texts))
        return parse(self, texts, call)

    monkeypatch.setattr(JsonDecoder, "_parsed", counted)
    return counts


class Messages:
    """Random messages, alike but for some.

    Args:
        chance: Source of randomness.
        rate: Share of what is unlike.
    """

    def __init__(self, chance: random.Random, rate: float) -> None:
        self.chance, self.rate = chance, rate

    def batch(self, names: Sequence[str]) -> pa.Array:
        colon, comma = self.chance.choice([(":", ","), (": ", ", "), (" :", " , ")])
        kinds = [KINDS.get(n, self.chance.choice(["text", "text", "x"])) for n in names]
        fields = list(zip(names, kinds, strict=True))
        return pa.array(
            [
                self.message(fields, colon, comma)
                for _ in range(self.chance.randrange(1, 30))
            ],
            pa.binary(),
        )

    def message(
        self, fields: Sequence[tuple[str, str]], colon: str, comma: str
    ) -> bytes:
        fields = list(fields)
        if self.unlike(4):
            self.chance.shuffle(fields)
        if self.unlike(4):
            fields.pop()
        parts = (f'"{name}"{colon}{self.value(kind)}' for name, kind in fields)
        message = ("{" + comma.join(parts) + "}").encode()
        return self.spoilt(message) if self.unlike(2) else message

    def value(self, kind: str) -> str:
        chance = self.chance
        if kind == "x" or self.unlike(1):
            return chance.choice(TOKENS)
        if kind == "boolean":
            return chance.choice(["true", "false", "null"])
        if kind == "text":
            letters = chance.choices("ab c,:{}[]é/\x7f", k=chance.randrange(6))
            return json.dumps("".join(letters), ensure_ascii=False)
        whole = chance.randrange(-(10 ** chance.randrange(1, 20)), 10**9)
        if chance.random() < 0.5:
            return str(whole)
        return repr(chance.uniform(-1, 1) * 10.0 ** chance.randrange(-300, 300))

    def unlike(self, divisor: int) -> bool:
        return self.chance.random() < self.rate / divisor

    def spoilt(self, message: bytes) -> bytes:
        at, byte = self.chance.randrange(len(message)), self.chance.choice(BYTES)
        before, behind = message[:at], message[at:]
        put, rest = before + bytes([byte]), behind[1:]
        return self.chance.choice(
            [put + rest, put + behind, before + rest, before, behind]
        )


@pytest.mark.usefixtures("of_any_size", "way")
@pytest.mark.parametrize("seed", range(4))
def test_random_messages_decode_as_the_parser_decodes_them(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        told = {k: v for k, v in TOLD.items() if chance.random() < 0.15}
        schema = chance.choice(SCHEMAS)
        decoder, parser = pair(schema, **told)
        made = Messages(chance, chance.choice([0, 0.02, 0.1, 0.4]))
        for _ in range(4):
            names = list(decoder.schema().names)
            if chance.random() < 0.3:
                names = chance.sample(NAMES, chance.randrange(1, 6))
            if chance.random() < 0.1:
                names.append(chance.choice(NAMES))
            values = made.batch(names)
            values = values.slice(chance.randrange(len(values)))
            undeclared, salvage = chance.random() < 0.3, chance.random() < 0.3
            assert_alike(
                decoder, parser, values, undeclared=undeclared, salvage=salvage
            )


@pytest.mark.usefixtures("of_any_size", "way")
@pytest.mark.parametrize(
    "odd",
    [
        b'{"i": ,"s":"x"}',
        b'{"i": 1 ,"s":"x"',
        b'{"i": 1 ,"s":"}',
        b'{"i": 1 ,"s":"x\\"}',
        b'{"i": 1 ,"s":"x\\\\"}',
        b'{"i": 1 ,"s":"x\n"}',
        b'{"i": 1 ,"s":"\xff"}',
        b'{"i": 1 ,"s":"x"}{"i": 1 ,"s":"x"}',
        b'{"i": 1 ,"t":"x"}',
        b'{"i": 1 ,"s":"x"} ',
        b' {"i": 1 ,"s":"x"}',
        b'{"i": 1,2 ,"s":"x"}',
        b'{"i": "1" ,"s":"x"}',
        b'{"i": 1 ,"s":null}',
        b'""""""',
        b"",
        b'"',
    ],
)
@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_message_unlike_the_others_is_parsed(
    odd: bytes, at: int, parsed: list[int]
) -> None:
    alike = [f'{{"i": {i} ,"s":"t{i}"}}'.encode() for i in range(20)]
    payloads = [*alike[:at], odd, *alike[at:]] if at < 3 else [*alike, odd]
    decoder, parser = pair("i bigint, s string")
    assert_alike(decoder, parser, pa.array(payloads, pa.binary()))
    assert max(parsed[:-1], default=0) <= 1  # the last call is the parser's


@pytest.mark.usefixtures("of_any_size")
@pytest.mark.parametrize(
    "repeated", ['{"s":"a%d","s":null}', '{"i":%d,"i":1}', '{"u":%d,"u":"x"}']
)
def test_messages_with_a_name_twice_are_parsed(
    repeated: str, parsed: list[int]
) -> None:
    payloads = [(repeated % i).encode() for i in range(20)]
    decoder, parser = pair("i bigint, s string")
    assert_alike(decoder, parser, pa.array(payloads, pa.binary()))
    assert parsed == [20, 20]


@pytest.mark.usefixtures("way")
def test_large_batches_of_one_layout_are_not_parsed(parsed: list[int]) -> None:
    count = 40_000
    payloads = [
        json.dumps({"i": i, "d": i / 7, "s": f"text {i}", "o": i % 2 > 0}).encode()
        for i in range(count)
    ]
    payloads[7::10_000] = [b"oops"] * 4
    decoder = JsonDecoder(options(FLAT), "t")
    decoded = decoding.decode(decoder, payloads)
    assert parsed == [4]
    assert decoding.bad(decoded) == [(i, "malformed") for i in range(7, count, 10_000)]
    assert decoded.source is not None
    assert decoded.rows.column("i").equals(decoded.source.cast(pa.int64()))
    assert decoded.rows.column("d")[-1].as_py() == (count - 1) / 7


def test_batches_of_many_layouts_are_parsed_without_further_attempts(
    parsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def counted(*arguments: Any) -> Any:
        attempts.append(1)
        return learned(*arguments)

    monkeypatch.setattr(uniform, "learned", counted)
    payloads = [b'{"i": 1}', b'{"s": "a"}', b'{"d": 1.5}'] * 2_000
    decoder = JsonDecoder(options(FLAT), "t")
    for _ in range(3):
        assert decoding.decode(decoder, payloads).rows.num_rows == 6_000
    assert len(attempts) == 1
    assert parsed == [4_000, 6_000, 6_000]
