"""Expressions that select rows, and what the process that runs them refuses."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.everytype import EVERY_TYPE

from streamfactory.engines.search import process
from streamfactory.engines.search.columns import hidden, search_names, searchable
from streamfactory.engines.search.row_filter import RowFilter
from streamfactory.spi import MisuseError, StreamTimeout

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ROWS = pa.record_batch(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "name": ["a", None, "ab"],
        "nested": pa.array([{"x": {"y": 1}}, None, {"x": None}]),
        "_key": pa.array([b"user-1", b"\xff", None], pa.binary()),
        "_headers": pa.array([[("t", b"1")], None, []], HEADERS),
        "_offset": pa.array([10, 11, 12], pa.int64()),
    }
)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (
            """id > 1 AND (name LIKE 'a%' OR name IS NULL) AND nested.x IS NULL
            AND nested.x.y IS NULL -- a comment""",
            [False, True, True],
        ),
        (
            """key = 'user-1' OR key = '0xff' OR "offset" = 99
            OR map_from_entries(headers)['t'] = '2'""",
            [True, True, False],
        ),
    ],
)
def test_rows_are_selected(expression: str, expected: list[bool]) -> None:
    with RowFilter(expression, ROWS.schema) as found:
        assert found.matches(ROWS).tolist() == expected
        assert found.matches(ROWS.slice(1, 1)).tolist() == expected[1:2]
        assert found.matches(ROWS.slice(0, 0)).tolist() == []


class Evaluated:
    """Many expressions in one process, which is not confined: this one."""

    def __init__(self) -> None:
        self.evaluator = process.Evaluator()

    def __call__(self, expression: str) -> list[bool]:
        self.evaluator.prepare(expression, ROWS.schema.names)
        return [byte == 1 for byte in self.evaluator.evaluate(ROWS)]


@pytest.fixture(scope="module")
def evaluated() -> Evaluated:
    return Evaluated()


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "."),
        ("id >", "syntax error"),
        ("id > 1; SELECT 1", "syntax error"),
        ("id > 1) FROM rows --", "syntax error"),
        ("true), (SELECT 1", "."),
        ("1), (2", "not one expression|one value"),
        ("(SELECT 1) = 1", "a subquery"),
        ("id IN (FROM rows)", "a subquery"),
        ("EXISTS (SELECT 1)", "a subquery"),
        ("*", "a star"),
        ("COLUMNS('i') > 1", "a star"),
        ("id > $1", "a parameter"),
        ("row_number() OVER () > 1", "a window function"),
        ("sum(id) > 1", "aggregates"),
        ("count(*) > 0", "."),
        ("unnest([true, true])", "one value"),
        ("no_such_column = 1", "not found"),
        ("getenv('HOME') = ''", "does not exist"),
        ("read_text('/etc/hostname') IS NULL", "table function"),
        ("CAST(name AS INTEGER) = 1", "Could not convert"),
        ("x" * (process.MOST_TEXT + 1), "characters"),
        ("(" * 1500 + "id" + ")" * 1500, "."),
    ],
)
def test_what_is_no_expression_of_a_row_is_refused(
    evaluated: Evaluated, expression: str, why: str
) -> None:
    with pytest.raises(process.Refused, match=why):
        evaluated(expression)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('/*')",
        "COPY (SELECT 1) TO '/tmp/streamfactory-search.csv'",
        "ATTACH '/tmp/streamfactory-search.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SELECT * FROM ROWS_OF_PYTHON",
    ],
)
def test_the_engine_is_locked_whatever_the_statement(
    evaluated: Evaluated, statement: str
) -> None:
    """Behind the check of the expression: nothing depends on it alone."""
    ROWS_OF_PYTHON = pa.table({"a": [1]})  # noqa: N806, F841 - a name for SQL
    import duckdb

    with pytest.raises(duckdb.Error):
        evaluated.evaluator._connection.execute(statement)


def test_the_process_can_open_nothing_and_has_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "hunter2")
    script = (
        "import os, socket\n"
        "from streamfactory.engines.search import process\n"
        "process._warm_up(process.Evaluator())\n"
        "process._confine()\n"
        "found = []\n"
        "for attempt in (\n"
        "    lambda: open('/etc/hostname'), lambda: socket.socket(),\n"
        f"    lambda: open({str(tmp_path / 'new')!r}, 'w'), os.pipe,\n"
        "    lambda: bytearray(4 << 30),\n"
        "):\n"
        "    try:\n"
        "        attempt()\n"
        "    except (OSError, MemoryError) as error:\n"
        "        found.append(type(error).__name__)\n"
        "print(*found)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["OSError"] * 4 + ["MemoryError"]
    with RowFilter("id > 1", ROWS.schema) as found:
        variables = Path(f"/proc/{found._process.pid}/environ").read_text("utf-8")
    assert "hunter2" not in variables


def test_what_takes_too_long_or_too_much_is_ended() -> None:
    endless = "list_sum(list_transform(range(4000000000), lambda x: x + id)) > 1"
    with RowFilter(endless, ROWS.schema) as found:
        begin = time.monotonic()
        with pytest.raises((StreamTimeout, MisuseError)):
            found.matches(ROWS, seconds=5)
        assert time.monotonic() - begin < 60
    with (
        RowFilter("len(repeat('x', 3000000000)) > id", ROWS.schema) as found,
        pytest.raises(MisuseError, match=r"[Mm]emory"),
    ):
        found.matches(ROWS)


def test_a_process_that_answers_nonsense_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = (
        struct.pack("<Q", 1 << 60),
        struct.pack("<Q", 3) + b"jno",
        struct.pack("<Q", 4) + b"jnul",
        struct.pack("<Q", 3) + b"j[]",
        b"short",
    )
    started = subprocess.Popen
    for answer in answers:
        script = f"import sys; sys.stdout.buffer.write({answer!r})"

        def start(command: Any, *, text: str = script, **how: Any) -> Any:
            del command
            return started([sys.executable, "-c", text], **how)

        monkeypatch.setattr("subprocess.Popen", start)
        with pytest.raises(MisuseError, match="cannot be evaluated"):
            RowFilter("true", ROWS.schema)


def test_every_type_can_be_searched(evaluated: Evaluated) -> None:
    del evaluated
    evaluator = process.Evaluator()
    for name, column in columns_of_every_type().items():
        rows = pa.record_batch({"a": searchable(column)})
        assert len(rows.column(0)) == len(column), name
        assert rows.column(0).null_count >= column.null_count, name
        evaluator.prepare("a IS NULL OR CAST(a AS VARCHAR) = 'neither'", ["a"])
        hits = evaluator.evaluate(rows)
        nulls = rows.column(0).is_null().to_pylist()
        assert [bool(one) for one in hits] == nulls, name


def columns_of_every_type() -> dict[str, Any]:
    found = dict(EVERY_TYPE)
    odd = {
        "half": pa.array([1.5, None], pa.float16()),
        "wide": pa.array([Decimal("1.5"), None], pa.decimal256(60, 2)),
        "runs": pa.RunEndEncodedArray.from_arrays([1, 2], ["a", None]),
        "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
        "words": pa.array(["a", None]).dictionary_encode(),
        "view": pa.array(["a", None], pa.string_view()),
        "lists": pa.array([[1.5], None], pa.list_view(pa.float16())),
        "far": pa.array([2**62, None], pa.timestamp("s")),
        "ancient": pa.array([-(2**62), None], pa.timestamp("ms", "UTC")),
        "uuid": pa.array([b"a" * 16, None], pa.uuid()),
        "nothing": pa.nulls(2),
        "map": pa.array([[("a", b"1")], None], pa.map_(pa.string(), pa.binary())),
        "fixed": pa.array([b"ab\xff", None], pa.binary(3)),
        "empty": pa.array([{}, None], pa.struct([])),
        "union": pa.UnionArray.from_dense(
            pa.array([0, 0], pa.int8()),
            pa.array([0, 1], pa.int32()),
            [pa.array([1, 2])],
        ),
        "twice": pa.StructArray.from_arrays([pa.array([1, 2])] * 2, ["a", "A"]),
        "deep": pa.array([[{"a": [None, {"b": b"\xff"}]}], None]),
    }
    return found | odd


def test_a_null_struct_has_no_children() -> None:
    child = pa.array([1, 2], pa.int64())
    column = pa.StructArray.from_arrays([child], ["x"], mask=pa.array([True, False]))
    assert searchable(column).field(0).to_pylist() == [None, 2]


def test_names_are_unique_whatever_their_case() -> None:
    assert search_names(["a", "A", "_key", "offset", "_offset"]) == {
        "a": 0,
        "A_2": 1,
        "_key": 2,
        "offset": 3,
        "_offset": 4,
        "key": 2,
    }


SECRET = "hunter2"


def mask(text: str) -> str:
    return text.replace(SECRET, "***").replace("4711", "***")


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array(["a", f"x{SECRET}y", None]), ["a", "x***y", None]),
        (pa.array([b"a", SECRET.encode()]), ["a", "***"]),
        (pa.array([1, 4711, None]), [1, None, None]),
        (pa.array([[SECRET], ["b"]]), [None, ["b"]]),
        (pa.array([{"a": {"b": SECRET}}, {"a": None}]), [None, {"a": None}]),
        (pa.array(["a", SECRET]).dictionary_encode(), ["a", "***"]),
        (pa.array([Decimal(4711), Decimal(1)]), [None, Decimal(1)]),
    ],
)
def test_a_search_sees_masked_values(column: Any, expected: list[Any]) -> None:
    found = hidden(column, searchable(column), mask)
    assert found.to_pylist() == expected


def test_a_search_tells_nothing_about_a_masked_value() -> None:
    rows = pa.record_batch({"text": [f"token {SECRET}", "token other"]})
    with RowFilter("text LIKE '%hunter%'", rows.schema, mask=mask) as found:
        assert found.matches(rows).tolist() == [False, False]
    with (
        RowFilter("CAST(text AS INTEGER) = 1", rows.schema, mask=mask) as found,
        pytest.raises(MisuseError) as failed,
    ):
        found.matches(rows)
    assert SECRET not in json.dumps(failed.value.to_dict())


def test_random_expressions_select_or_are_refused(evaluated: Evaluated) -> None:
    chance = random.Random(7)
    words = (
        *("id", "name", "nested", "_key", "1", "'a'", "NULL", "(", ")", ",", "=", ">"),
        *("AND", "OR", "NOT", "SELECT", "FROM", "rows", ";", "--", "/*", "[", "]"),
        *("LIKE", "CASE", "WHEN", "END", "x ->", "::", "JSON", "*", "upper", "'"),
        *("UNION", "ORDER BY", "LIMIT", "{", "}", "$$", "?", "\0", "é", "\u202e"),
    )
    selected = 0
    for _ in range(400):
        text = " ".join(chance.choices(words, k=chance.randrange(1, 9)))
        try:
            selected += len(evaluated(text)) == ROWS.num_rows
        except process.Refused:
            continue
    assert selected > 2
