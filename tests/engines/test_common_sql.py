"""SQL of pipelines without Java: the same rows as from Spark, or a refusal."""

from __future__ import annotations

import math
import re
import runpy
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest

from streamfactory.engines.common_sql.functions import FUNCTIONS
from streamfactory.engines.common_sql.translation import (
    parse,
    translate,
    translate_condition,
)
from streamfactory.engines.row_query import RowQuery
from streamfactory.spi import MisuseError, SchemaMismatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCS: Final = Path(__file__).parents[2] / "docs"
_DOUBLES: Final = (
    *(None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -0.9),
    *(9.3e18, 1e308, 5e-324, 2147483648.0),
)
_LONGS: Final = (None, 0, 1, -1, 2, 7, -7, 127, 2**31, 2**63 - 1, -(2**63), 10**15)
_TEXTS: Final = (
    *(None, "", " ", "12", " -5 ", "+7", "9223372036854775808", "1.5", "1e3", "NaN"),
    *("Straße İZ ΟΔΟΣ", "a\nb%_", "true", " No ", "2024-02-29", "2023-02-29", "0xff"),
    *("\t٣", "😀a😀b", "ann@x.org", "300", "1.", "inf", "1 2", "--", "é"),
)
_COLUMNS: Final[dict[str, tuple[pa.DataType, tuple[Any, ...]]]] = {
    "d": (pa.float64(), _DOUBLES),
    "f": (pa.float32(), (None, math.nan, -0.0, 0.0, 1.5, math.inf, 3e38, 16777216.0)),
    "l": (pa.int64(), _LONGS),
    "i": (pa.int32(), (None, 0, 1, -1, 3, 2**31 - 1, -(2**31), 16777217)),
    "t": (pa.int8(), (None, 0, 1, -1, 127, -128)),
    "s": (pa.string(), _TEXTS),
    "b": (pa.bool_(), (None, True, False)),
    "day": (
        pa.date32(),
        (
            None,
            date(1, 1, 1),
            date(1582, 10, 4),
            date(1969, 12, 31),
            date(2024, 2, 29),
            date(9999, 12, 31),
        ),
    ),
    "at": (
        pa.timestamp("us", "UTC"),
        (
            None,
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
            datetime(2024, 2, 29, 12, tzinfo=UTC),
        ),
    ),
}
"""By the name of a column: its type and odd values. With 2 at its end, a column has
some of them beside each of those of the first."""
_COMPARED: Final = ("=", "==", "<>", "!=", "<", "<=", ">", ">=", "<=>")
EXPRESSIONS: Final = (
    *(
        f"{x} {sign} {x}2"
        for x in ("d", "l", "s", "day", "at", "f")
        for sign in _COMPARED
    ),
    *(f"b {sign} b2" for sign in ("=", "<>", "<=>")),
    *(
        f"{x} {sign} {y}"
        for x, y in ("ld", "it", "fd", "il")
        for sign in ("=", "<", "<=>")
    ),
    *(f"{x} {sign} {x}2" for x in "dlitf" for sign in "+-*/"),
    *(f"{x} {sign} {y}2" for x, y in ("ld", "it", "fd", "ti") for sign in "+-*/"),
    *(f"{x} % {y}" for x, y in (("l", "l2"), ("i", "i2"), ("i", "l"), ("t", "t2"))),
    *(
        "d > 1.5",
        "f > 1.5",
        "f < 0.1",
        "l > 1e3",
        "i > 2147483648",
        "t + 1",
        "-l",
        "-d",
    ),
    *("-t", "-(-i)", "l = -9223372036854775808", "d = 1", "d in (0, 1.5)", "f = 1.5"),
    *("s in ('12', '')", "l in (1, 2, 10000000000)", "l between 0 and 7", "not b"),
    *("d between -1 and 2", "s between '' and 'b'", "b and b2", "b or b2", "b is true"),
    *("b is not false", "d is null", "s is not null", "l is distinct from l2"),
    *("day < date '2000-01-01'", "at >= timestamp '1970-01-01 01:00:00+01:00'"),
    *("s like '%a%'", "s like 'a_b%'", "s like ''", "s not like '_'", "s like '%\n%'"),
    *("s || s2", "concat(s, '-', s2)", "upper(s)", "lower(s)", "ucase(s)", "lcase(s)"),
    *("length(s)", "char_length(s)", "character_length(s)", "trim(s)", "ltrim(s)"),
    *("rtrim(s)", "substring(s, 2, 3)", "substr(s, 1)", "substring(s, 90, 0)"),
    *("left(s, 2)", "right(s, 2)", "left(s, 0)", "replace(s, 'a', s2)", "md5(s)"),
    *("replace(s, '1', '')", "startswith(s, s2)", "endswith(s, s2)", "contains(s, s2)"),
    *(f"sha2(s, {bits})" for bits in (224, 256, 384, 512)),
    *("regexp_replace(s, '[0-9]+', '*')", "regexp_replace(s, '[^@]+@', 'x@')"),
    *("regexp_replace(s, '^[a-z]', '#')", "s rlike '[0-9]{2,3}'", "s regexp 'a+'"),
    *("regexp_like(s, '[^a-z ]')", "coalesce(s, s2, 'x')", "nvl(l, 0)", "ifnull(d, l)"),
    *("coalesce(l, d)", "coalesce(t, i)", "nullif(d, d2)", "nullif(s, '12')", "abs(d)"),
    *("nullif(l, 1)", "abs(l)", "abs(i)", "abs(t)", "abs(f)", "isnan(d)", "isnull(d)"),
    *(
        "isnotnull(s)",
        "if(b, l, d)",
        "if(d > 0, 'up', null)",
        "year(day)",
        "month(day)",
    ),
    *("day(day)", "case when l > 0 then l when b then i end"),
    *(
        "case s when '12' then 1 when '' then 2 else 0 end",
        "case b when true then d end",
    ),
    *(f"cast(s as {kind})" for kind in ("tinyint", "smallint", "int", "bigint")),
    *(f"cast(s as {kind})" for kind in ("double", "boolean", "date", "string")),
    *(f"try_cast(s as {kind})" for kind in ("tinyint", "int", "bigint", "boolean")),
    *(
        f"{word}({x} as {kind})"
        for word in ("cast", "try_cast")
        for x in ("l", "i", "t")
        for kind in ("tinyint", "int", "bigint", "float", "double", "string", "boolean")
    ),
    *(
        f"cast({x} as {kind})"
        for x in "df"
        for kind in ("tinyint", "smallint", "int", "bigint", "float", "double")
    ),
    *(
        "cast(b as string)",
        "cast(b as int)",
        "cast(b as double)",
        "cast(day as string)",
    ),
    *("l2 <> 0 and l / l2 > 1", "l2 = 0 or l / l2 > 1", "b and l > 7 and l + i2 > 0"),
    *("not (s is null or s = '' or cast(s as int) > 7)", "if(d2 = 0, d, d / d2)"),
    *("coalesce(l2 = 0 or l % l2 = 1, false)", "case when l2 <> 0 then l / l2 end"),
    *("d / l2 / i", "d / (l2 / i)"),
    *("l + i2 > 0", "-l = 7", "cast(l as int) > 7", "try_cast(l as tinyint) = 1"),
    *(
        "cast(1.5 as float)",
        "if(b, at, null)",
        "nvl(timestamp '0099-01-01 00:00:00Z', null)",
        "d * -0.0",
        "cast(-0.0 as double)",
        "d * -0.0d",
        "cast(null as string)",
        "try_cast(b as tinyint)",
    ),
)


_COUNT: Final = 144
"""Rows: each value of the numbers beside each other one."""


def rows() -> pa.RecordBatch:
    """Each odd value of a column, beside those of the column with a 2."""
    arrays = {}
    for name, (kind, values) in _COLUMNS.items():
        own = len(values)
        first = [values[n % own] for n in range(_COUNT)]
        second = [values[n // own % own] for n in range(_COUNT)]
        arrays[name] = pa.array(first, kind)
        arrays[f"{name}2"] = pa.array(second, kind)
    return pa.RecordBatch.from_pydict(arrays)


ROWS: Final = rows()


def count_of(sql: str) -> int:
    """Rows that an expression is evaluated for: without a second column they repeat."""
    return _COUNT if re.search(r"[a-z]2\b", sql) else 30


def evaluated(sql: str) -> tuple[pa.DataType, dict[int, Any]]:
    """The type of an expression, and its values by row; rows that fail are left out."""
    query = translate(parse(f"select {sql} as x from input"), ROWS.schema, "rows")
    made = RowQuery(ROWS.schema, sql=query)
    found = dict[int, Any]()

    def evaluate(start: int, count: int) -> None:
        try:
            values = made.apply(ROWS.slice(start, count)).column(0).to_pylist()
        except SchemaMismatch:
            if count > 1:
                evaluate(start, count // 2)
                evaluate(start + count // 2, count - count // 2)
            return
        found.update(enumerate(values, start))

    evaluate(0, count_of(sql))
    return made.schema.field(0).type, found


def test_every_function_is_compared() -> None:
    named = {name for name in FUNCTIONS for sql in EXPRESSIONS if f"{name}(" in sql}
    assert set(FUNCTIONS) == named


@pytest.fixture(scope="module")
def ours() -> dict[str, tuple[pa.DataType, dict[int, Any]]]:
    return {sql: evaluated(sql) for sql in EXPRESSIONS}


@pytest.fixture(scope="module")
def odd(spark: SparkSession) -> SparkSession:
    numbered = ROWS.append_column("n", pa.array(range(_COUNT), pa.int64()))
    frame = spark.createDataFrame(pa.Table.from_batches([numbered]))
    frame.createOrReplaceTempView("odd")
    return spark


@pytest.mark.long("two hundred expressions over all odd values")
def test_expressions_have_the_values_of_spark(
    odd: SparkSession, ours: dict[str, tuple[pa.DataType, dict[int, Any]]]
) -> None:
    selected = []
    for number, (sql, (_, values)) in enumerate(ours.items()):
        fine = ", ".join(map(str, values))
        selected.append(f"case when n in ({fine}) then ({sql}) end as x{number}")
    found = odd.sql(f"select n, {', '.join(selected)} from odd").toArrow()
    order, wrong = found.column("n").to_pylist(), []
    for number, (sql, (kind, values)) in enumerate(ours.items()):
        theirs = found.column(f"x{number}")
        if theirs.type != kind:
            wrong.append(f"{sql}: {kind}, Spark {theirs.type}")
        by_row = dict(zip(order, theirs.to_pylist(), strict=True))
        for row, value in values.items():
            # As text: signs of zero count, and NaN is NaN.
            if repr(by_row[row]) != repr(value):
                wrong.append(f"{sql}: {value!r}, Spark {by_row[row]!r}, row {row}")
    assert wrong == []


STRICTER: Final = {
    "cast(s as double)",
    "cast(s as date)",
    "cast(d as bigint)",
    "l % l2",
}
"""Expressions that fail for a value that Spark takes: a text such as NaN or 2024, and
numbers at the edge."""


@pytest.mark.long("a query of Spark for each expression that fails")
def test_what_fails_fails_in_spark(
    odd: SparkSession, ours: dict[str, tuple[pa.DataType, dict[int, Any]]]
) -> None:
    taken = set()
    for sql, (_, values) in ours.items():
        failed = sorted(set(range(count_of(sql))) - values.keys())
        for row in failed[:: max(1, len(failed) // 4)]:
            try:
                odd.sql(f"select {sql} as x from odd where n = {row}").collect()
            except Exception:
                continue
            taken.add(sql)
    assert sorted(taken - STRICTER) == []


def test_some_expressions_have_the_values_of_spark(odd: SparkSession) -> None:
    some = [
        "d = d2",
        "f < d2",
        "l + i",
        "s || s2",
        "upper(s)",
        "d / l2",
        "cast(s as int)",
    ]
    selected = []
    by_sql = {sql: evaluated(sql)[1] for sql in some}
    for number, (sql, values) in enumerate(by_sql.items()):
        fine = ", ".join(map(str, values))
        selected.append(f"case when n in ({fine}) then ({sql}) end as x{number}")
    found = odd.sql(f"select {', '.join(selected)} from odd order by n").toArrow()
    for number, values in enumerate(by_sql.values()):
        theirs = found.column(f"x{number}").to_pylist()
        assert repr([theirs[row] for row in values]) == repr(list(values.values()))


@pytest.mark.parametrize(
    "sql",
    [
        "l2 <> 0 and 7 / l2 > 1",
        "coalesce(l2, 0) = 0 or 7 / l2 > 1",
        "l2 is not null and l2 <> 0 and 7 % l2 > 1",
        "case when l2 <> 0 then 7 / l2 end",
        "if(l2 = 0, null, 7 / l2)",
        "s rlike '^[0-9]{2}' and length(s) = 2 and cast(s as int) > 7",
        "coalesce(l = 7 and l + 1 = 8, false)",
        "-1 between 0 and l + 1",
    ],
)
def test_what_a_condition_leaves_out_does_not_fail(sql: str) -> None:
    query = translate(parse(f"select {sql} as x from input"), ROWS.schema, "rows")
    found = RowQuery(ROWS.schema, sql=query).apply(ROWS)
    assert found.num_rows == _COUNT


@pytest.mark.parametrize(
    ("sql", "fails"),
    [
        ("l + 1 > 7", 2**63 - 1),
        ("l - 2 < 7", -(2**63)),
        ("-l = 7", -(2**63)),
        ("abs(l) > 7", -(2**63)),
        ("cast(l as int) > 7", 2**31),
        ("cast(l as tinyint) = 1", 2**31),
        ("b is null and l > 7 and l + 1 > 7", 2**63 - 1),
    ],
)
def test_what_is_too_large_fails_whatever_it_is_compared_with(
    sql: str, fails: int
) -> None:
    rows = pa.RecordBatch.from_pydict({"l": [fails], "b": pa.array([None], pa.bool_())})
    query = translate(parse(f"select {sql} as x from input"), rows.schema, "rows")
    with pytest.raises(SchemaMismatch):
        RowQuery(rows.schema, sql=query).apply(rows)


def test_a_cast_that_is_null_is_so_whatever_it_is_compared_with() -> None:
    rows = pa.RecordBatch.from_pydict({"l": [2**31]})
    sql = "select try_cast(l as int) > 7 as x from input"
    query = translate(parse(sql), rows.schema, "rows")
    found = RowQuery(rows.schema, sql=query).apply(rows)
    assert found.to_pylist() == [{"x": None}]


def test_a_panic_of_the_engine_is_an_error_of_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyO3 raises it as a `BaseException`, which would end a thread without a word."""
    query = RowQuery(ROWS.schema, sql="select * from rows")
    panic = type("PanicException", (BaseException,), {})

    def panicking(rows: pa.RecordBatch) -> None:
        raise panic("index out of bounds")

    monkeypatch.setattr(query, "_planned", panicking)
    with pytest.raises(SchemaMismatch, match="index out of bounds"):
        query.apply(ROWS)


SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("Name", pa.string()),
        ("amount", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("f", pa.float32()),
        ("at", pa.timestamp("us", "UTC")),
        ("where", pa.string()),
        ("wide", pa.decimal128(38, 0)),
    ]
)


@pytest.mark.parametrize(
    ("sql", "cause"),
    [
        ("select count(*) as n from input", "the function count is not"),
        ("select sum(id) as n from input", "the function sum is not in the common"),
        ("select distinct id from input", "DISTINCT"),
        ("select id from a join b", "'join' is not supported"),
        ("select id from input order by id", "'order'"),
        ("select id from input limit 3", "'limit'"),
        ("select id from (select * from input)", "is expected"),
        ("select id from input where id in (select 1)", "is expected"),
        ("select id from input union all select id from input", "'union'"),
        (
            "select row_number() over (order by id) as n from input",
            "the function row_number is not",
        ),
        ("select now() as n from input", "the function now"),
        ("select rand() as n from input", "the function rand"),
        ("select round(amount) as n from input", "the function round"),
        ("select id + 1 from input", "needs a name"),
        ("select 1.5 as n from input", "a column of type decimal"),
        ("select null as n from input", "a column of type null"),
        ("select no from input", "there is no column 'no'"),
        ("select id, ID from input", "two columns are named"),
        ("select input.name.x as n from input", "'.'"),
        ("select other.id from input", "a member of a column, or no id"),
        ("select id from input where name = 3", "a comparison of int and string"),
        ("select id from input where price > 3", "a comparison of"),
        ("select id from input where f > id", "a comparison of bigint and float"),
        ("select id from input where id > 1.5", "a comparison of bigint and decimal"),
        ("select id from input where name = null", "a comparison with null"),
        ("select id from input where name", "a condition of type string"),
        ("select id from input where at > timestamp '2026-01-01'", "time zone"),
        ("select year(at) as y from input", "time zone"),
        ("select cast(at as string) as y from input", "the engines differ"),
        ("select cast(amount as string) as y from input", "the engines differ"),
        ("select try_cast(amount as int) as y from input", "the engines differ"),
        ("select cast(name as decimal(3, 1)) as y from input", "a cast to a type"),
        ("select cast(name as timestamp) as y from input", "the engines differ"),
        ("select name || 'it''s' as y from input", "doubled quotes"),
        ("select 'a\\nb' as y from input", "a backslash"),
        ("select /*+ broadcast(x) */ id from input", "a comment"),
        ("select regexp_replace(name, '.*', 'x') as y from input", "the pattern"),
        ("select regexp_replace(name, '[a-z]+', '$0') as y from input", "without $"),
        ("select substring(name, 0, 2) as y from input", "from 1 on"),
        ("select left(name, id) as y from input", "a literal int"),
        ("select replace(name, '', 'x') as y from input", "not empty"),
        ("select sha2(name, 255) as y from input", "255 bits"),
        ("select amount % 2 as y from input", "'%' of floating"),
        ("select id from input where id < id < id", "needs brackets"),
        ("select id from input where not", "is expected"),
        ("select 99999999999999999999 as y from input", "no bigint"),
        ("select id from input; drop table x", "';' is not supported"),
        (f"select {'(' * 60}id{')' * 60} as y from input", "nested deeper"),
        (f"select {'id + ' * 5000}id as y from input", "nested deeper"),
        (f"select {'id * ' * 5000}id as y from input", "nested deeper"),
        (f"select {'not ' * 5000}true as y from input", "nested deeper"),
        (f"select {'case when ' * 5000}true", "nested deeper"),
        ("values (1)", "'select' is expected"),
        ("", "'select' is expected"),
        ("select id from input tablesample (1 rows)", "'tablesample'"),
        ("select interval 1 day as y from input", "is expected"),
        ("select where from input", "is expected"),
        ("select substring(name, 2147483648) as y from input", "a literal int"),
        (f"select amount > 1.{'0' * 38} as y from input", "more than 38 digits"),
        ("select 1_000 from input", "'1' is not supported"),
        (
            "select timestamp '0001-01-01 00:00:00+01:00' as y from input",
            "no timestamp",
        ),
        ("select timestamp '2024-W01-1T00:00:00Z' as y from input", "no timestamp"),
        ("select name rlike '[z-a]' as y from input", "bad character range"),
        ("select name rlike 'a{5,2}' as y from input", "min repeat greater"),
        (f"select {'id / (' * 25}1{')' * 25} as y from input", "too long"),
        (f"select id{' / 2' * 31} as y from input", "nested deeper"),
        ("select id / 2 / name as y from input", "'/' of double and string"),
        ("select name / name as y from input", "'/' of string"),
        (
            f"select {'cast(cast(' * 9}name{' as int) as string)' * 9} as y from a",
            "too long",
        ),
        (f"select {'(id / 1 > 0 and ' * 25}true{')' * 25} as y from input", "too long"),
        ("select wide > amount as y from input", "decimal128(38, 0) and double"),
    ],
)
def test_what_is_not_in_the_common_part_is_refused(sql: str, cause: str) -> None:
    with pytest.raises(MisuseError) as caught:
        translate(parse(sql), SCHEMA, "rows")
    assert cause in str(caught.value)
    assert "line 1 of the SQL: " in str(caught.value)


def test_a_chain_of_divisions_is_as_long_as_one_of_additions() -> None:
    schema = pa.schema({"a": pa.int32(), "b": pa.float64(), "c": pa.int64()})

    def divided(sql: str, *row: Any) -> Any:
        query = RowQuery(schema, sql=translate(parse(sql), schema, "rows"))
        rows = pa.RecordBatch.from_pylist(
            [dict(zip("abc", row, strict=True))], schema=schema
        )
        return query.apply(rows).column(0)[0].as_py()

    chain = "select a / b / c as y from input"
    assert divided(chain, 12, 2.0, 4) == 1.5
    nulls = [(None, 2.0, 4), (1, None, 0), (1, 0.0, None), (None, 0.0, 0)]
    for row in nulls:
        assert divided(chain, *row) is None  # as in Spark, whatever follows
    zeros = [(1, 0.0, 0), (1, -0.0, 4), (1, 2.0, 0)]
    for one in zeros:
        with pytest.raises(SchemaMismatch):
            divided(chain, *one)
    assert divided(f"select a{' / 2' * 30} as y from input", 1, 1.0, 1) == 2.0**-30
    assert divided("select a / (b / c) as y from input", 12, 8.0, 2) == 3.0


@pytest.mark.parametrize("layout", [pa.large_string(), pa.string_view()])
def test_texts_are_those_of_any_layout(layout: pa.DataType) -> None:
    """A column is passed on in its own; what is computed is a string."""
    schema = pa.schema({"s": layout, "t": pa.string()})
    sql = (
        "select s, upper(s) as u, s || t as st, "
        "case when s = t then s else 'x' end as c "
        "from input where s like 'a%' and s in ('ab', 'ac') and s is not null"
    )
    query = RowQuery(schema, sql=translate(parse(sql), schema, "rows"))
    values = pa.array(["ab", "ac", "b", None], layout)
    rows = pa.record_batch([values, pa.array(["ab"] * 4)], schema=schema)
    assert query.apply(rows).to_pylist() == [
        {"s": "ab", "u": "AB", "st": "abab", "c": "ab"},
        {"s": "ac", "u": "AC", "st": "acab", "c": "x"},
    ]
    assert query.schema.types == [layout, *[pa.string()] * 3]


def test_a_condition_may_have_many_parts_up_to_a_number() -> None:
    def planned(count: int) -> RowQuery:
        parts = " or ".join(f"id = {n}" for n in range(count))
        sql = f"select id from input where {parts}"
        return RowQuery(SCHEMA, sql=translate(parse(sql), SCHEMA, "rows"))

    assert planned(200).schema.names == ["id"]
    with pytest.raises(MisuseError, match="more than 1000 operators"):
        planned(2_000)
    with pytest.raises(MisuseError, match="too long"):
        planned(20_000)


def test_a_refusal_has_the_line() -> None:
    with pytest.raises(MisuseError, match=r"^line 3 of the SQL: there is no column"):
        translate(parse("select id -- one\n,\nnone from input"), SCHEMA, "rows")


def test_names_are_found_in_any_case_and_shown_as_written() -> None:
    sql = "SELECT i.NAME, `where`, I.ID as `a b` FROM Input AS i WHERE aMount IS NULL"
    rows = {
        "id": [1, 2],
        "Name": ["a", "b"],
        "amount": [None, 1.0],
        "where": ["x", "y"],
    }
    given = pa.RecordBatch.from_pylist(pa.table(rows).to_pylist(), schema=SCHEMA)
    query = RowQuery(SCHEMA, sql=translate(parse(sql), SCHEMA, "rows"))
    assert query.apply(given).to_pylist() == [{"NAME": "a", "where": "x", "a b": 1}]


def test_all_columns_but_some() -> None:
    found = translate(
        parse("select * except (NAME, `where`) from input"), SCHEMA, "rows"
    )
    names = RowQuery(SCHEMA, sql=found).schema.names
    assert names == ["id", "amount", "price", "f", "at", "wide"]


def test_quotes_do_not_leave_a_text() -> None:
    schema = pa.schema([('a"b', pa.string())])
    sql = """select "it's" as x, `a"b` as y from input"""
    query = RowQuery(schema, sql=translate(parse(sql), schema, "rows"))
    given = pa.RecordBatch.from_pydict({'a"b': ["z"]})
    assert query.apply(given).to_pylist() == [{"x": "it's", "y": "z"}]


def test_a_condition_is_one_expression() -> None:
    assert translate_condition("amount > 0 -- positive", SCHEMA).startswith("(")
    for text in ("true) or (true", "id", "id > 0; select 1", "select true"):
        with pytest.raises(MisuseError):
            translate_condition(text, SCHEMA)


def test_the_values_of_the_table_in_the_docs_are_those_of_spark(
    spark: SparkSession,
) -> None:
    page = runpy.run_path(str(DOCS / "common_sql_reference.py"))
    spark.createDataFrame(pa.Table.from_batches([page["ROW"]])).createOrReplaceTempView(
        "documented"
    )
    for sql in page["DIFFERENCES"]:
        ours = page["evaluated"](sql)
        try:
            found = spark.sql(f"select {sql} as x from documented").toArrow()
        except Exception:
            assert ours in ("an error", "refused"), sql
        else:
            assert ours == page["shown"](found.column(0).to_pylist()[0]), sql
