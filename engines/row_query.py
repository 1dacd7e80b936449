"""SQL over the rows of a batch, executed by DataFusion, for copies.

A query is a function of each row: it filters, projects, renames, casts and masks. What
needs more than a row, or gives another answer later, is refused before rows are read.
"""

from __future__ import annotations

import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.conversion.conform import empty_rows
from streamfactory.engines.installing import load
from streamfactory.spi import MisuseError, SchemaMismatch
from streamfactory.spi.causes import first_line, is_failure
from streamfactory.wiring.core.bounded import Hung, bounded

if TYPE_CHECKING:
    from datafusion import SessionContext

TABLE: Final = "rows"
"""What a query reads from."""
_UNFILTERED: Final = "rows before the filter"
_SETTINGS: Final = {
    "datafusion.execution.target_partitions": "1",  # rows keep their order
    "datafusion.execution.batch_size": "65536",
    "datafusion.execution.time_zone": "+00:00",
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
}
_ALLOWED: Final = frozenset({"Projection", "Filter", "SubqueryAlias", "TableScan"})
_OPERATORS: Final = re.compile(
    r"[-+*/%|&^<>=~]+|\b(?:and|or|not|interval|union)\b", re.IGNORECASE
)
_MOST_OPERATORS: Final = 1000
"""DataFusion plans a chain of operators as one inside the other. Beyond about 4,000 the
stack of the process is too small, which ends it."""
_BRACKETS: Final = re.compile(
    r"""'[^']*'|"[^"]*"|--[^\n]*|/[*].*?[*]/|[(\[{]|[)\]}]""", re.DOTALL
)
"""Brackets, and the texts and comments that are none."""
_DEEPEST: Final = 40
"""DataFusion 55 refuses 50 levels, but tries each of some forms, such as CAST, in two
ways before: that takes years. Refused at once, it keeps no core busy."""
_SECONDS: Final = 20.0
"""For the planning, which takes milliseconds. Some forms, such as ROW and POSITION,
take minutes at 20 levels, and texts of some dialects hide brackets."""
_NAMES: Final = {
    "Aggregate": "an aggregate or GROUP BY",
    "Distinct": "DISTINCT",
    "EmptyRelation": "no FROM",
    "Join": "a join",
    "Limit": "LIMIT",
    "Sort": "ORDER BY",
    "Subquery": "a subquery",
    "Union": "a union",
    "Unnest": "unnest",
    "WindowExpr": "a window function",
}
_QUOTED: Final = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*")
"""Literals, names in quotes and comments."""
_REMEDY: Final = (
    f"use a SELECT of DataFusion over the columns of {TABLE}, with WHERE, functions "
    "of a row and names in quotes where they are not in lower case; run a pipeline "
    "on Spark for more"
)


@final
class RowQuery:
    """A query that makes rows of the rows of a batch. One thread uses it.

    Args:
        schema: Of the batches.
        sql: A query that reads from `TABLE`; None: all columns.
        where: A condition, true for the rows that the query reads.

    Raises:
        NotInstalled: plugin; names the command that installs DataFusion.
        MisuseError: misuse; the query is no function of a row, or no SQL.
    """

    def __init__(
        self, schema: pa.Schema, *, sql: str | None = None, where: str | None = None
    ) -> None:
        for text in filter(None, (sql, where)):
            if "tablesample" in _unquoted(text).lower():  # DataFusion ignores it
                what = "it has TABLESAMPLE"
                raise _refused(what)
        _check_length(sql or "", where or "")
        viewed = sql is not None and where is not None
        self._source = _UNFILTERED if viewed else TABLE
        filtered = f'SELECT * FROM "{self._source}"'  # noqa: S608 - SQL of its user
        if where is not None:
            # On separate lines: a comment at its end would hide the bracket.
            filtered += f" WHERE (\n{where}\n)"
        self._sql = filtered if sql is None else sql
        self._view = filtered if viewed else None
        self._context = _context()
        try:
            planning = partial(self._planned, empty_rows(schema))
            planned = bounded("planning of the query", _SECONDS, planning)
        except Hung as error:
            msg = f"the query is nested too deeply: not planned within {_SECONDS:g} s"
            raise MisuseError(msg, remedy=_REMEDY) from error
        except BaseException as error:
            if not is_failure(error):
                raise
            reason = first_line(error)
            if "RecursionLimitExceeded" in reason:
                reason = "it is nested too deeply"
            msg = f"the query cannot be planned: {reason}"
            raise MisuseError(msg, remedy=_REMEDY) from error
        plan = planned.logical_plan()
        _check(plan, self._source)
        self.schema: pa.Schema = planned.schema()
        """Of what `apply` returns."""
        unchanged = _unchanged(plan, frozenset(schema.names))
        self.computed = frozenset(self.schema.names) - unchanged
        """Names of columns that are not a column of the same name, unchanged."""

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that the query returns, in their order.

        Raises:
            SchemaMismatch: permanent; a value cannot be computed, as in a cast.
        """
        try:
            found = self._planned(rows).collect()
        except BaseException as error:
            if not is_failure(error):
                raise
            msg = f"the query cannot be evaluated: {first_line(error)}"
            raise SchemaMismatch(msg, remedy="use try_cast, or a condition") from error
        # Whether a column has nulls is known better with rows than in the plan.
        fitting = [
            pa.RecordBatch.from_arrays(one.columns, schema=self.schema) for one in found
        ]
        batches = pa.Table.from_batches(fitting, self.schema).combine_chunks()
        return next(iter(batches.to_batches()), empty_rows(self.schema))

    def _planned(self, rows: pa.RecordBatch) -> Any:
        context = self._context
        for name in {TABLE, self._source}:
            context.deregister_table(name)
        context.register_record_batches(self._source, [[rows]])
        if self._view is not None:
            before = context.sql_with_options(self._view, _queries())
            context.register_view(TABLE, before)
        return context.sql_with_options(self._sql, _queries())


@cache
def _queries() -> Any:
    """The options of statements: queries only."""
    options = load("datafusion").SQLOptions()
    for deny in ("ddl", "dml", "statements"):
        options = getattr(options, f"with_allow_{deny}")(False)
    return options


@cache
def _changing() -> tuple[str, ...]:
    """Names of functions whose value is not a function of their arguments."""
    datafusion = load("datafusion")
    config = datafusion.SessionConfig().with_information_schema(enabled=True)
    found = datafusion.SessionContext(config).sql(
        "SELECT DISTINCT routine_name FROM information_schema.routines "
        "WHERE NOT is_deterministic"
    )
    return tuple(found.to_pydict()["routine_name"])


def _context() -> SessionContext:
    """A session whose functions have one value for the same arguments."""
    datafusion = load("datafusion")
    context: SessionContext = datafusion.SessionContext(
        datafusion.SessionConfig(_SETTINGS)
    )
    for name in _changing():
        context.deregister_udf(name)
        context.deregister_udtf(name)
    return context


def _unquoted(text: str) -> str:
    """A query without literals, names in quotes and comments.

    Unchanged where a block comment, a dollar or a backslash may hide a quote.
    """
    hiding = any(one in text for one in ("/*", "$", "\\"))
    return text if hiding else _QUOTED.sub(" ", text)


def _check_length(*texts: str) -> None:
    if sum(len(_OPERATORS.findall(text)) for text in texts) > _MOST_OPERATORS:
        msg = f"the query has more than {_MOST_OPERATORS} operators"
        raise MisuseError(msg, remedy="compare with a list, as in id IN (1, 2, 3)")
    if any(_depth(text) > _DEEPEST for text in texts):
        msg = f"the query is nested too deeply: more than {_DEEPEST} brackets"
        raise MisuseError(msg, remedy=_REMEDY)


def _depth(text: str) -> int:
    """How many brackets are open at once."""
    deepest = depth = 0
    for found in _BRACKETS.findall(text):
        if len(found) == 1:
            depth += 1 if found in "([{" else -1
            deepest = max(deepest, depth)
    return deepest


def _check(plan: Any, source: str) -> None:
    """Refuse a plan that is more than a function of each row.

    Raises:
        MisuseError: misuse.
    """
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        waiting += node.inputs()
        kind = node.to_variant()
        name = type(kind).__name__
        if name not in _ALLOWED:
            what = f"it has {_NAMES.get(name, name)}"
            raise _refused(what)
        if name == "TableScan" and kind.table_name() not in {source, TABLE}:
            what = f"it reads from {kind.table_name()!r}"
            raise _refused(what)
        names = [str(one.canonical_name()) for one in _expressions(kind)]
        if any("(<subquery>)" in name for name in names):
            what = "it has a subquery"
            raise _refused(what)


def _expressions(node: Any) -> list[Any]:
    if hasattr(node, "projections"):
        return list(node.projections())
    return [node.predicate()] if hasattr(node, "predicate") else []


def _unchanged(plan: Any, names: frozenset[str]) -> frozenset[str]:
    """Which columns of the table a checked plan passes on under the same names."""
    for node in plan.inputs():
        names = _unchanged(node, names)
    kind = plan.to_variant()
    if not hasattr(kind, "projections"):
        return names
    columns = [one for one in kind.projections() if one.variant_name() == "Column"]
    return names & {one.to_variant().name() for one in columns}


def _refused(what: str) -> MisuseError:
    msg = f"the query is not a function of each row: {what}"
    return MisuseError(msg, remedy=_REMEDY)
