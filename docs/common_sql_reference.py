# ruff: noqa: INP001 - part of a script, in no package
"""The tables of docs/pipelines-without-java.md, from the code and from DataFusion."""

from __future__ import annotations

import math
from datetime import date
from typing import Any, Final

import pyarrow as pa

from streamfactory.engines.common_sql.functions import FUNCTIONS
from streamfactory.engines.common_sql.translation import parse, translate
from streamfactory.engines.row_query import RowQuery
from streamfactory.spi import MisuseError, SchemaMismatch

ROW: Final = pa.RecordBatch.from_pydict(
    {
        "d": pa.array([math.nan], pa.float64()),
        "minus": pa.array([-0.0], pa.float64()),
        "zero": pa.array([0], pa.int64()),
        "seven": pa.array([7], pa.int64()),
        "huge": pa.array([2**63 - 1], pa.int64()),
        "word": pa.array([" 12 "]),
        "nothing": pa.array([None], pa.string()),
        "Mixed": pa.array(["x"]),
        "day": pa.array([date(2024, 2, 29)]),
    }
)
"""What the queries of the table read."""
DIFFERENCES: Final = (
    "minus = 0.0",
    "minus < 0.0",
    "d > 1e308",
    "seven / 2",
    "seven / zero",
    "huge + 1",
    "concat(word, nothing)",
    "cast(word as int)",
    "cast(' yes' as boolean)",
    "cast(nothing as int)",
    "MIXED",
    "isnan(cast(nothing as double))",
    "substring(word, 2, 2)",
    "length(word)",
    'concat("a", word)',
    "year(day)",
    "day",
    "sha2(word, 256)",
    "regexp_replace('a1b2', '[0-9]', '*')",
    "abs(huge)",
)
"""Expressions that the table shows. A test has the values of Spark for each."""


def evaluated(sql: str) -> str:
    """The value of an expression as the engine of pipelines has it."""
    try:
        parsed = parse(f"select {sql} as x from t")  # noqa: S608 - the table's
        query = translate(parsed, ROW.schema, "rows")
    except MisuseError:
        return "refused"
    return _value(query)


def _plain(sql: str) -> str:
    """The same by DataFusion's own SQL."""
    return _value(f"select {sql} as x from rows")  # noqa: S608 - the table's


def _value(query: str) -> str:
    try:
        column = RowQuery(ROW.schema, sql=query).apply(ROW).column(0)
    except MisuseError:
        return "no such SQL"
    except SchemaMismatch:
        return "an error"
    return shown(column.to_pylist()[0])


def shown(value: Any) -> str:
    """A value in the table."""
    return {None: "null", True: "true", False: "false"}.get(value, str(value)[:20])


def functions() -> str:
    """The names of all functions."""
    return ", ".join(f"`{name}`" for name in sorted(FUNCTIONS))


def differences() -> str:
    """Expressions whose value DataFusion's own SQL has not."""
    lines = [
        '| SQL | Spark, and `engine = "datafusion"` | `copy --sql` |',
        "|---|---|---|",
    ]
    for sql in DIFFERENCES:
        ours, own = evaluated(sql), _plain(sql)
        if ours != own:
            lines.append(f"| `{sql}` | {_code(ours)} | {_code(own)} |")
    return "\n".join(lines)


def _code(text: str) -> str:
    plain = text in ("refused", "an error", "no such SQL")
    return text if plain else f"`{text}`"
