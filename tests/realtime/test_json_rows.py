"""JSON by Spark's functions: the same rows, and the same messages refused."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from streamfactory.decoders.json.decoder import JsonDecoder
from streamfactory.decoders.json.encoder import JsonEncoder
from streamfactory.spark.realtime.json_rows import (
    ROW,
    WRONG,
    decode_json,
    json_value,
    judge_json,
    unreadable,
    unwritable,
)
from streamfactory.spark.types import spark_schema
from streamfactory.spi import DecodeContext, Partition, SchemaMismatch
from streamfactory.spi.ddl import parse_ddl
from streamfactory.spi.nesting import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

WIDE = (
    "i bigint, n int, b tinyint, d double, s string, f boolean, "
    "o struct<a: int, s: string>, l array<bigint>, r array<struct<a: double>>, "
    "ll array<array<string>>"
)
REFUSED_HERE = [b'{"i":1,"i":2}', b'{"u":%b}' % (b"1" * 1001)]
MESSAGES = [
    *REFUSED_HERE,
    b'{"u":%b}' % (b"1" * 1000),
    b'{"i":1}',
    b'{"i":1,"n":2,"b":3,"d":0.5,"s":"x","f":true,"o":{"a":1,"s":"y"},"l":[1,2]}',
    b'{"r":[{"a":1},{"a":2.5},{},null],"ll":[["a"],[],null,["b",null]]}',
    b"{}",
    b' \t\n{"i":1}\r\n ',
    b'{"i":1} x',
    b'{"i":1}{"i":2}',
    b'{"i":1},{"i":2}',
    b'{"i":1}] x',
    b'{"i":1},"',
    b'{"i":1}//c',
    b'{"i":/*c*/1}',
    b'{"i":1}\x00',
    b'{"i":"x","i":2}',
    b'{"i":2,"i":"x"}',
    b'{"I":1}',
    b'{"i":null,"o":null,"l":null}',
    b'{"o":{}}',
    b'{"o":[]}',
    b'{"o":{"a":"1"}}',
    b'{"o":{"a":2147483648}}',
    b'{"l":{}}',
    b'{"l":[1,"2"]}',
    b'{"l":[1.0]}',
    b'{"r":[1]}',
    b'{"r":[{"a":"x"}]}',
    b'{"unknown":{"deep":[1,{"x":null}]}}',
    *(
        b'{"i":1,"u":%b%b}' % (b"[" * depth, b"]" * depth)
        for depth in (DEEPEST - 1, DEEPEST)
    ),
    b'{"i":1,"u":["%b",%b"\\"]"]}' % (b"[" * 2 * DEEPEST, b"[],{}," * DEEPEST),
    b"[1]",
    b"null",
    b"1",
    b'"x"',
    b"",
    b" ",
    b"{",
    b"\xef\xbb\xbf{}",
    b'{"s":"\xff"}',
    b'{"s":"\xed\xa0\x80"}',
    b'{"s":"\\ud800"}',
    b'{"s":"\\ud83d\\ude00"}',
    b'{"s":"\\u0000"}',
    b'{"s":"a\nb"}',
    b'{"s":"a\\x"}',
    '{"s":"größe 😀"}'.encode(),
    b"{'s':'x'}",
    b'{s:"x"}',
    b'{"s":"x",}',
    b'{"f":tru}',
    b'{"f":1}',
    b'{"f":"true"}',
    b'{"s":1}',
    b'{"s":true}',
    b'{"s":{}}',
    b'{"n":2147483647,"b":-128}',
    b'{"n":-2147483649}',
    b'{"b":128}',
    b'{"i":9223372036854775807}',
    b'{"i":-9223372036854775808}',
    b'{"i":9223372036854775808}',
    b'{"i":-0}',
    b'{"i":01}',
    b'{"i":+1}',
    b'{"i":1.0}',
    b'{"i":1e2}',
    b'{"i":"1"}',
    *(
        b'{"d":%b}' % text
        for text in (
            *(b"0", b"-0", b"-0.0", b"0.1", b"1e2", b"1E-2", b"1e400", b"-1e400"),
            *(b"1e-400", b"5e-324", b"2.2250738585072011e-308", b".5", b"5.", b"NaN"),
            *(b"1.7976931348623157e308", b"1.7976931348623159e308", b"Infinity"),
            *(b"9223372036854775808", b"123456789012345678901234567890123456789012"),
            *(b"0.12345678901234567890123456789012345678901", b'"1"', b"true"),
            *(b"12345678901.123456789", b"9007199254740993", b"9007199254740993.0"),
        )
    ),
]


def decoder(ddl: str) -> JsonDecoder:
    options = {
        "schema": ddl,
        "unknown.fields": "ignore",
        "missing.fields": "null",
        "numbers.as.text": False,
    }
    return JsonDecoder(options, "clicks")


def ours(ddl: str, message: bytes) -> Any:
    """The row by the decoder; None if it refuses the message."""
    context = DecodeContext(Partition("clicks", 0))
    found = decoder(ddl).decode(pa.array([message], pa.binary()), context)
    return None if found.errors else found.rows.to_pylist()[0]


def received(spark: SparkSession, messages: Sequence[bytes | None]) -> DataFrame:
    """A frame as of Spark's Kafka source."""
    rows = [(value, "clicks", 0, offset) for offset, value in enumerate(messages)]
    kind = "value binary, topic string, partition int, offset bigint"
    return spark.createDataFrame(rows, kind)


def theirs(spark: SparkSession, ddl: str, messages: Sequence[bytes]) -> list[Any]:
    """The rows by Spark; None in place of those that it refuses."""
    judged = judge_json(received(spark, messages), spark_schema(parse_ddl(ddl)))
    found = []
    for row in judged.orderBy("offset").select(ROW, WRONG).collect():
        plain = row[ROW].asDict(recursive=True)
        found.append(plain if row[WRONG] is None else None)
    return found


def test_the_same_messages_are_rows_and_the_same_are_refused(
    spark: SparkSession,
) -> None:
    found = theirs(spark, WIDE, MESSAGES)
    wanted = [ours(WIDE, message) for message in MESSAGES]
    assert sum(row is None for row in wanted) > 30
    pairs = zip(MESSAGES, wanted, found, strict=True)
    different = [(message, row) for message, want, row in pairs if want != row]
    # Of a field that is named twice Spark would not check the first value. Its parser
    # reads no number of more than 1000 digits.
    assert different == [(message, None) for message in REFUSED_HERE]


def test_generated_messages_are_the_same_rows(spark: SparkSession) -> None:
    ddl = "a bigint not null, b struct<c: string not null, d: array<int>>, e double"
    chance = random.Random(7)
    fits: dict[str, list[Any]] = {
        "a": [0, -1],
        "b": [None, {"c": "x"}, {"c": "y", "d": [1, None]}],
        "e": [None, 1.5, 2],
        "z": [1],
    }
    values: list[Any] = [None, 0, -1, 1.5, "x", "", True, [], [1, None], ["a"], {}]
    values += [{"c": "x"}, {"c": None}, {"c": "y", "d": [1]}, {"d": [2**31]}, 2**63]
    messages = [
        json.dumps(
            {
                key: chance.choice(fits[key] if chance.random() < 0.8 else values)
                for key in chance.sample("abez", 3)
            }
        )
        for _ in range(400)
    ]
    encoded = [message.encode() for message in messages]
    wanted = [ours(ddl, message) for message in encoded]
    assert theirs(spark, ddl, encoded) == wanted
    assert 100 < sum(row is not None for row in wanted) < 300


def test_a_query_fails_at_a_bad_message_and_names_its_place(
    spark: SparkSession,
) -> None:
    schema = spark_schema(parse_ddl("a bigint, s string"))
    rows = decode_json(received(spark, [b'{"a":1}', b'{"a":"1"}']), schema)
    with pytest.raises(PySparkException) as caught:
        rows.select(f"{ROW}.s").collect()  # of another column
    what = "topic clicks, partition 0, offset 1: column a does not contain a valid "
    assert f"{what}bigint" in str(caught.value)


def test_a_message_without_a_value_is_a_row_of_nulls(spark: SparkSession) -> None:
    schema = spark_schema(parse_ddl("a bigint not null, s string"))
    [row] = decode_json(received(spark, [None]), schema).collect()
    assert row[ROW].asDict() == {"a": None, "s": None}
    assert row["offset"] == 0


def test_encoded_rows_are_the_same_values(spark: SparkSession) -> None:
    ddl = "i bigint, s string, d double, f boolean, o struct<a: int, d: double>"
    ddl += ", l array<string>"
    rows = [
        (1, 'a"b\\\n\u0001/ü😀', 0.1, True, (1, -2.5), ["x", None, ""]),
        (-(2**63), "", 1e300, False, (None, None), []),
        (None, None, None, None, None, None),
        (0, "\u2028", 5e-324, True, (0, 1e16), ["\u007f"]),
    ]
    schema = parse_ddl(ddl)
    frame = spark.createDataFrame(rows, spark_schema(schema))
    found = [
        bytes(row[0]) for row in frame.selectExpr(json_value(frame.schema)).collect()
    ]
    names = schema.names
    plain = [
        {
            name: _plain(schema.field(name).type, value)
            for name, value in zip(names, row, strict=True)
        }
        for row in rows
    ]
    batch = pa.RecordBatch.from_pylist(plain, schema)
    wanted = JsonEncoder({}, "out").encode(batch).to_pylist()
    assert [json.loads(text) for text in found] == [json.loads(t) for t in wanted]


def _plain(kind: pa.DataType, value: Any) -> Any:
    if not pa.types.is_struct(kind) or value is None:
        return value
    return dict(zip([field.name for field in kind], value, strict=True))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_cannot_represent_are_refused_by_both(
    spark: SparkSession, number: float
) -> None:
    batch = pa.RecordBatch.from_pylist([{"o": {"d": number}}])
    with pytest.raises(SchemaMismatch, match=r"'o\.d' contains NaN or an infinity"):
        JsonEncoder({}, "out").encode(batch)
    frame = spark.createDataFrame([((number,),)], "o struct<d: double>")
    with pytest.raises(PySparkException, match=r"o\.d contains NaN or an infinity"):
        frame.selectExpr(json_value(frame.schema)).collect()


@pytest.mark.usefixtures("spark")  # which parses the types
@pytest.mark.parametrize(
    "ddl", ["x float", "x decimal(9,2)", "x timestamp", "x date", "x binary"]
)
def test_types_without_the_same_result_are_named(ddl: str) -> None:
    kind = t.StructType.fromDDL(f"a struct<b: array<struct<{ddl.replace(' ', ': ')}>>>")
    reason = unreadable(kind)
    assert reason is not None
    assert reason.startswith("column 'a.b.element.x' is ")
    assert unwritable(kind) == reason


@pytest.mark.usefixtures("spark")
def test_arrays_of_floating_numbers_are_read_and_not_written() -> None:
    kind = t.StructType.fromDDL("a struct<b: array<double>>")
    assert unreadable(kind) is None
    assert "NaN in it is not found" in str(unwritable(kind))
