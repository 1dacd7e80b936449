"""Tests of pipelines: what they compare, report and update."""

from __future__ import annotations

import gzip
import json
import tomllib
import xml.etree.ElementTree as ET
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.cli.junit import write_junit
from streamfactory.cli.testing import _lines
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.testing.cases import Case, Expected, Rows, read_suite
from streamfactory.spark.pipelines.testing.comparing import Compared, Result
from streamfactory.spark.pipelines.testing.differences import difference
from streamfactory.spark.pipelines.testing.rows import (
    expected_rows,
    file_text,
    given_rows,
    toml_text,
)
from streamfactory.spark.pipelines.testing.suites import Suites
from streamfactory.spark.pipelines.testing.updating import update
from streamfactory.spi import ConfigError, MisuseError, SchemaMismatch, StreamError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.pipelines.conftest import Works

TYPED = pa.schema(
    [
        pa.field("id", pa.int64()),
        ("price", pa.decimal128(38, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("on", pa.date32()),
        ("raw", pa.binary()),
        ("ok", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("by", pa.map_(pa.string(), pa.int32())),
        ("inner", pa.struct([("x", pa.float64()), ("name", pa.string())])),
    ]
)
ROW: dict[str, Any] = {
    "id": 2**60,
    "price": Decimal("123456789012345678901234567890.55"),
    "at": 1_700_000_000_123_456,
    "on": 19_000,
    "raw": b"\x00\xff",
    "ok": True,
    "tags": ["a", 'b"\x7f\n'],
    "by": [("k", 1)],
    "inner": {"x": 0.1, "name": None},
}


def typed() -> pa.Table:
    return pa.Table.from_pylist([ROW, {"id": 1, "price": Decimal("2.50")}], TYPED)


def inline(*records: dict[str, Any]) -> Rows:
    return Rows(None, records, "p.test.toml:3")


def test_rows_of_every_type_are_written_as_they_are_read(tmp_path: Path) -> None:
    rows = typed()
    path = tmp_path / "rows.jsonl"
    path.write_text(file_text(path, rows))
    assert expected_rows(Rows(path, (), ""), TYPED).equals(rows)
    found = tomllib.loads(f"x = {toml_text(rows)}")["x"]
    assert difference(given_rows(inline(*found), TYPED), rows) is None
    flat = rows.select(["id", "price", "at", "on", "raw", "ok"])
    path = tmp_path / "rows.csv"
    path.write_text(file_text(path, flat))
    assert expected_rows(Rows(path, (), ""), TYPED).equals(flat)
    with pytest.raises(MisuseError, match=r"\.parquet is not updated"):
        file_text(tmp_path / "x.parquet", flat)
    with pytest.raises(MisuseError, match="no null"):
        toml_text(pa.table({"x": [["a", None]]}))


def test_rows_that_do_not_fit_are_refused_with_their_place(tmp_path: Path) -> None:
    for record, words in (
        ({"idd": 1}, "column 'idd' is not in the declared schema"),
        ({"id": "x"}, "row 1"),
        ({"price": "1.005"}, "row 1"),
    ):
        with pytest.raises(StreamError, match=words) as caught:
            given_rows(inline(record), TYPED)
        assert "p.test.toml:3" in str(caught.value)
    path = tmp_path / "rows.csv"
    path.write_text("id,idd\n1,2\n")
    with pytest.raises(SchemaMismatch, match="idd"):
        given_rows(Rows(path, (), ""), TYPED)
    with pytest.raises(SchemaMismatch, match="idd"):
        expected_rows(Rows(path, (), ""), TYPED)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b'{"id": 1,\n', "line 1, row 1.* not JSON"),
        (b'{"id": 1, "tags": ["\xff"]}\n', "row 1.* not UTF-8"),
        (b"5\n", "row 1.* expected `object`"),
    ],
)
def test_lines_that_are_no_rows_are_refused_with_their_place(
    tmp_path: Path, text: bytes, words: str
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(text)
    for read in (given_rows, expected_rows):
        with pytest.raises(StreamError, match=words):
            read(Rows(path, (), ""), TYPED)


def test_a_line_feed_alone_ends_a_row_also_of_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    text = '\ufeff{"tags": ["a\u2028b\x85"]}\r\n\n{"id": 1}\n'
    path.write_bytes(gzip.compress(text.encode()))
    rows = expected_rows(Rows(path, (), ""), TYPED)
    first, second = {"id": None, "tags": ["a\u2028b\x85"]}, {"id": 1, "tags": None}
    assert rows.to_pylist() == [first, second]


def test_numbers_of_toml_that_json_lacks_are_values() -> None:
    found = tomllib.loads("x = [nan, inf, -inf]")["x"]
    rows = given_rows(inline(*({"inner": {"x": one}} for one in found)), TYPED)
    values = [row["inner"]["x"] for row in rows.to_pylist()]
    assert str(values) == "[nan, inf, -inf]"


def test_columns_that_no_expected_row_has_are_not_compared() -> None:
    rows = expected_rows(inline({"id": 1}, {"id": None, "ok": True}), TYPED)
    assert rows.column_names == ["id", "ok"]
    assert rows.to_pylist() == [{"id": 1, "ok": None}, {"id": None, "ok": True}]
    # Without rows there is nothing that could be left out.
    assert expected_rows(inline(), TYPED).column_names == TYPED.names


def test_a_difference_shows_rows_that_belong_together() -> None:
    def table(*rows: tuple[Any, ...]) -> pa.Table:
        kinds = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("x", pa.float64())])
        return pa.Table.from_pylist(
            [dict(zip(kinds.names, row, strict=True)) for row in rows], kinds
        )

    one = table((1, 1, 0.5), (2, 2, None), (3, 3, float("nan")))
    assert difference(one, table((3, 3, float("nan")), (1, 1, 0.5), (2, 2, None))) is (
        None
    )
    assert difference(one, one.slice(0, 2)) is not None
    twice = difference(table((1, 1, 0.5)), table((1, 1, 0.5), (1, 1, 0.5)))
    assert twice is not None
    assert str(twice) == "1 unexpected"
    found = difference(one, table((1, 7, 0.5), (2, 2, 0.0), (9, 9, 9.0)))
    assert found is not None
    assert str(found) == "2 differ, 1 missing, 1 unexpected"
    assert [*found.lines()] == [
        "id 1, x 0.5: n is 7, expected 1",
        "id 2, n 2: x is 0.0, expected null",
        'missing: {"id": 3, "n": 3, "x": "NaN"}',
        'unexpected: {"id": 9, "n": 9, "x": 9.0}',
    ]
    keyed = difference(table((1, 1, 0.5)), table((1, 7, 0.0)), ["id"])
    assert keyed is not None
    assert [*keyed.lines()] == ["id 1: n is 7, expected 1, x is 0.0, expected 0.5"]
    keyed = difference(table((1, 1, 0.5), (1, 2, 0.5)), table((1, 7, 0.0)), ["id"])
    assert str(keyed) == "1 differ, 1 missing"
    signs = difference(table((1, 1, 0.0)), table((1, 1, -0.0)))
    assert signs is not None
    assert [*signs.lines()] == ["id 1, n 1: x is -0.0, expected 0.0"]
    several = difference(table((1, 1, 0.5)), table((1, 2, 1.5)))
    assert str(several) == "1 missing, 1 unexpected"


def result_of(expected: Expected, found: pa.Table) -> Result:
    """The result of the first test of a file, which has this as all rows."""
    wanted = expected_rows(expected.batches[0], found.schema)
    unlike = difference(wanted, found)
    assert unlike is not None
    case = Case(0, "x", {}, (expected,), None, "")
    return Result(case, (Compared(expected, (found,), {0: unlike}),), None, 0.0)


def test_an_update_changes_nothing_but_expected_rows(tmp_path: Path) -> None:
    path = tmp_path / "p.test.toml"
    before = '[[tests]]\nname = "\u2028\x85"\ngiven.input = [{ x = nan }]\n'
    path.write_text(before + "expect.out = [{ n = 1 }]\nkey.out = 'n'\n")
    expected = Expected("out", "out", (inline({"n": 1}),), True, (), "")
    assert update(path, [result_of(expected, pa.table({"n": [2]}))]) == [path]
    after = "expect.out = [\n  { n = 2 },\n]\nkey.out = 'n'\n"
    assert path.read_text() == before + after


TEXT = """
[[steps]]
id = "large"
sql = "select id, word, amount from input where amount > 1"

[[steps]]
id = "named"
sql = "select large.*, name from large left join names using (word)"

[[steps]]
id = "total"
sql = "select word, count(*) as n, sum(amount) as amount from named group by word"

[[expectations]]
name = "known"
on = "named"
condition = "name is not null"
"on.failure" = "drop"

[[expectations]]
name = "small"
on = "large"
condition = "amount < 100"
"on.failure" = "fail"

[[lookups]]
id = "names"
format = "csv"
path = "not-there.csv"
schema = "word string, name string"

[[sinks]]
stream = "out"
"""
GIVEN = """
given.input = [
  [ { id = 1, word = "a", amount = "2.50" }, { id = 2, word = "b", amount = "3.00" } ],
  [ { id = 3, word = "a", amount = "4.00" }, { id = 4, word = "a", amount = "1.00" } ],
]
given.names = [ { word = "a", name = "A" } ]
"""
SCHEMA = '[schemas]\ninput = "id bigint, word string, amount decimal(10,2)"\n'


@pytest.fixture
def pipeline(works: Works) -> Path:
    works.topic("in")
    works.topic("out")
    return works.pipeline(TEXT, output_mode="update")


def run(spark: SparkSession, path: Path, tests: str) -> list[Result]:
    path.with_name("p.test.toml").write_text(SCHEMA + tests)
    suites = Suites([path], allow_class_paths=False)
    return [result for _, result in suites.run(spark)]


def test_batches_and_lookups_are_given_and_steps_compared(
    spark: SparkSession, pipeline: Path
) -> None:
    tests = f"""
[[tests]]
name = "by batch"
{GIVEN}
expect.total = [
  [ {{ word = "a", n = 1, amount = "2.50" }} ],
  [ {{ word = "a", n = 2, amount = 6.5 }} ],
]
expect.large = "large.csv"

[[tests]]
name = "wrong"
{GIVEN}
expect.out = [
  {{ word = "a", n = 1, amount = 2.5 }},
  {{ word = "a", n = 3, amount = 6.5 }},
]
key.out = "word"

[[tests]]
name = "fails"
given.input = [ {{ id = 1, amount = "100.00" }} ]
given.names = [ {{ word = "a", name = "A" }} ]
fails = "expectation 'small' of step 'large' failed for the row"

[[tests]]
name = "does not fail"
fails = "expectation"
"""
    large = pipeline.with_name("large.csv")
    large.write_text("id,word\n1,a\n3,c\n")
    results = run(spark, pipeline, tests)
    assert [[*one.lines()] for one in results] == [
        [
            "expect.large: 1 missing, 2 unexpected",
            '  missing: {"id": 3, "word": "c"}',
            '  unexpected: {"id": 2, "word": "b"}',
            '  unexpected: {"id": 3, "word": "a"}',
        ],
        [
            "expect.out: 1 differ",
            '  word "a": n is 2, expected 3',
        ],
        [],
        ["did not fail, expected 'expectation'"],
    ]
    assert not (pipeline.parent / "checkpoints").exists()
    # What came out is written where it was expected, and nothing else changes.
    path = pipeline.with_name("p.test.toml")
    before = path.read_text()
    assert {*update(path, results)} == {large, path}
    assert large.read_text() == "id,word\n1,a\n2,b\n3,a\n"
    old = 'expect.out = [\n  { word = "a", n = 1, amount = 2.5 },\n'
    old += '  { word = "a", n = 3, amount = 6.5 },\n]'
    new = old.replace("n = 3", "n = 2").replace("2.5 }", "2.50 }")
    assert path.read_text() == before.replace(old, new.replace("6.5 }", "6.50 }"))


def test_rows_leave_when_the_watermark_passes(
    spark: SparkSession, works: Works
) -> None:
    schema = "id bigint, at timestamp"
    works.topic("in", options={"schema": schema})
    works.topic("out")
    text = (
        '[source]\nstream = "in"\n"watermark.column" = "at"\n[[steps]]\nid = "hourly"\n'
    )
    text += (
        "sql = \"select window(at, '1 hour').start as hour, count(*) as n from input"
    )
    text += ' group by window(at, \'1 hour\')"\n[[sinks]]\nstream = "out"\n'
    path = works.pipeline(text)
    tests = """[[tests]]
name = "late"
given.input = [
  [ { id = 1, at = 2026-01-01T00:10:00Z }, { id = 2, at = 2026-01-01T00:20:00Z } ],
  [ { id = 3, at = 2026-01-01T02:00:00Z } ],
  [],  # Spark drops what is older than the watermark of the batch before
  [ { id = 4, at = 2026-01-01T00:30:00Z } ],
]
expect.out = [ { hour = 2026-01-01T00:00:00Z, n = 2 } ]
"""
    path.with_name("p.test.toml").write_text(tests)
    [(_, result)] = Suites([path], allow_class_paths=False).run(spark)
    assert [*result.lines()] == []


def test_an_aggregation_in_complete_mode_has_the_last_batch_and_steps_before_all(
    spark: SparkSession, works: Works
) -> None:
    works.topic("in", options={"schema": "id bigint"})
    works.topic("out")
    text = '[[steps]]\nid = "once"\nsql = "select * from input"\n'
    text += '"distinct.by" = "id"\n[[steps]]\nid = "n"\n'
    text += 'sql = "select count(*) as n from once"\n[[sinks]]\nstream = "out"\n'
    path = works.pipeline(text, output_mode="complete")
    path.with_name("p.test.toml").write_text("""[[tests]]
name = "all"
given.input = [[{ id = 1 }, { id = 1 }], [{ id = 1 }, { id = 2 }]]
expect.once = [{ id = 1 }, { id = 2 }]
expect.out = [{ n = 2 }]
""")
    [(_, result)] = Suites([path], allow_class_paths=False).run(spark)
    assert [*result.lines()] == []


def test_problems_of_a_file_of_tests_are_reported_at_once(pipeline: Path) -> None:
    path = pipeline.with_name("p.test.toml")
    path.write_text("""[schemas]
inptu = "id bigint"
[[tests]]
name = "one"
given.input = 3
given.names = [[], []]
expect.totl = []
keys.out = "id"
[[tests]]
name = "one"
[[tests]]
""")
    found = read_pipeline(pipeline).pipeline
    assert found is not None
    problems = [str(one) for one in read_suite(path, found).problems]
    shown = [text.replace(f"{path}", "p.test.toml") for text in problems]
    assert shown == [
        (
            "schemas: 'inptu' is no id; there are input, names; did you mean input?"
            " [p.test.toml:2]"
        ),
        "keys: is no key of a test; did you mean key? [p.test.toml:8]",
        (
            "given: is neither a file nor a list of rows, nor a list of these"
            " [p.test.toml:5]"
        ),
        (
            "given: the lookup 'names' has several batches; give it one list of rows"
            " [p.test.toml:6]"
        ),
        (
            "expect: 'totl' is no id; there are input, large, named, out, total;"
            " did you mean total? [p.test.toml:7]"
        ),
        "expect: is required, or fails; expect.ID = [...] [p.test.toml:9]",
        'name: is required; write name = "..." [p.test.toml:11]',
        "expect: is required, or fails; expect.ID = [...] [p.test.toml:11]",
        "name: 'one' is a name already [p.test.toml:10]",
    ]


def test_queries_and_rows_are_checked_before_a_test_runs(
    spark: SparkSession, pipeline: Path
) -> None:
    tests = (
        '[[tests]]\nname = "x"\ngiven.input = "none.csv"\nexpect.out = [{ q = 1 }]\n'
    )
    with pytest.raises(ConfigError) as caught:
        run(spark, pipeline, tests)
    assert [one.key for one in caught.value.problems] == ["given.input", "expect.out"]
    path = pipeline.with_name("p.test.toml")
    path.write_text('[[tests]]\nname = "x"\nexpect.out = []\n')
    suites = Suites([pipeline], allow_class_paths=False)
    with pytest.raises(ConfigError) as caught:
        next(suites.run(spark))
    assert "the columns of the source 'input' are not known" in str(caught.value)


def test_results_are_text_and_junit_xml(
    spark: SparkSession, pipeline: Path, tmp_path: Path
) -> None:
    tests = '[[tests]]\nname = "nothing \\u0001"\nexpect.large = [{ id = 1 }]\n'
    path = pipeline.with_name("p.test.toml")
    path.write_text(SCHEMA + tests)
    results = [*Suites([pipeline], allow_class_paths=False).run(spark)]
    document = {"updated": ["x.csv"], "passed": 0, "failed": 1}
    assert [*_lines(results, document)] == [
        f"p ({path}):",
        "  failed  nothing \x01",
        "    expect.large: 1 missing",
        '      missing: {"id": 1}',
        "updated x.csv",
        "1 test: 1 failed",
    ]
    write_junit(tmp_path / "results.xml", results)
    root = ET.parse(tmp_path / "results.xml").getroot()
    assert root.attrib["failures"] == "1"
    [case] = root.iter("testcase")
    assert case.attrib["name"] == "nothing \N{REPLACEMENT CHARACTER}"
    [failure] = case
    assert failure.text == 'expect.large: 1 missing\n  missing: {"id": 1}'
    json.dumps(case.attrib)
