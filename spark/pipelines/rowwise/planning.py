"""What such a pipeline may have, and its steps as queries of DataFusion."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.engines.common_sql.grammar import Parser
from streamfactory.engines.common_sql.nodes import Query
from streamfactory.engines.common_sql.translation import (
    parse,
    translate,
    translate_condition,
)
from streamfactory.engines.row_query import TABLE, RowQuery
from streamfactory.spark.pipelines.expectations import failed_id
from streamfactory.spark.pipelines.model import Table
from streamfactory.spark.pipelines.problems import refuse
from streamfactory.spi import MisuseError, NotInstalled, Problem
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.spark.pipelines.model import Draft, Expectation, Step

EXPECTATION: Final = "_expectation"
"""Column of rows in a dead letter stream: the name of the expectation."""
FULFILLED: Final = "__fulfilled_{}"
"""Columns that tell whether a row fulfils an expectation, by its number."""
_TOP: Final = ("trigger", "output.mode", "idle.stop.rounds", "spark")
_SPARK: Final = 'remove engine = "datafusion" to run it on Spark'


@dataclass(frozen=True, slots=True)
class RowStep:
    """A step, ready to be evaluated."""

    id: str
    reads: str
    query: RowQuery
    """Its rows, with a column `FULFILLED` for each expectation behind them."""
    expectations: tuple[Expectation, ...]
    schema: pa.Schema
    """Of its rows."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in an order in which each follows the one that it reads."""

    source: str
    steps: tuple[RowStep, ...]
    schemas: Mapping[str, pa.Schema]
    """By id: of the source, of steps, and of rows that fail an expectation."""


def written_steps(draft: Draft) -> list[Step]:
    """The steps as the file has them: expectations make several of one."""
    own = [step for step in draft.steps if step.of is None or step.expectations]
    return [replace(step, id=step.shown) for step in own]


def check_rowwise(draft: Draft, schema: pa.Schema | None) -> list[Problem]:
    """Problems of a pipeline that runs without Spark. Connects to nothing.

    Args:
        draft: The pipeline, as far as it could be parsed.
        schema: Of its source; None if it is unknown: then columns are not checked.
    """
    problems = [*_wider_parts(draft), *_wider_pipeline(draft)]
    queries = _parsed(draft, problems)
    order = _order(draft, queries, problems)
    if problems:
        return problems
    problems += _unread(draft, dict(order))
    if schema is None:
        return problems
    try:
        _planned(draft, schema, order, queries, problems)
    except NotInstalled as error:
        problems.append(Problem("engine", error.what, draft.origin, error.remedy))
    return problems


def plan_of(draft: Draft, schema: pa.Schema) -> Plan:
    """The plan of a pipeline, for its source's schema.

    Raises:
        ConfigError: config; with the problems that only the columns show.
        NotInstalled: plugin; DataFusion is not installed.
    """
    problems = list[Problem]()
    queries = _parsed(draft, problems)
    order = _order(draft, queries, problems)
    plan = _planned(draft, schema, order, queries, problems)
    refuse(problems, draft.origin)
    return plan


def _parsed(draft: Draft, problems: list[Problem]) -> dict[str, Query]:
    """The queries of the steps; adds what is not in the common part."""
    queries = dict[str, Query]()
    for step in written_steps(draft):
        if step.sql:
            with _noting(problems, step):
                queries[step.id] = parse(step.sql)
        for one in step.expectations:
            with _noting(problems, step, one):
                Parser(one.condition).condition()
    return queries


def _planned(
    draft: Draft,
    schema: pa.Schema,
    order: Sequence[tuple[str, str]],
    queries: Mapping[str, Query],
    problems: list[Problem],
) -> Plan:
    """The plan; adds the problems of steps, which it leaves out."""
    steps = {step.id: step for step in written_steps(draft)}
    schemas, found = {draft.entries[0].id: schema}, list[RowStep]()
    for name, reads in order:
        if reads not in schemas:
            continue  # it has problems
        with _noting(problems, steps[name]):
            step = _row_step(steps[name], queries[name], reads, schemas[reads])
            found.append(step)
            schemas[name] = step.schema
            if step.expectations:
                rejected = _with_expectation(step.schema)
                schemas |= {failed_id(one): rejected for one in step.expectations}
    return Plan(draft.entries[0].id, tuple(found), schemas)


def _with_expectation(schema: pa.Schema) -> pa.Schema:
    if EXPECTATION in schema.names:
        msg = f"the column {EXPECTATION!r} has the name of the failed expectation"
        raise MisuseError(msg, remedy="rename the column")
    return schema.append(pa.field(EXPECTATION, pa.string()))


def _row_step(step: Step, query: Query, reads: str, schema: pa.Schema) -> RowStep:
    sql = translate(query, schema, TABLE)
    rows = RowQuery(schema, sql=sql)
    if not step.expectations:
        return RowStep(step.id, reads, rows, (), rows.schema)
    columns = ["r.*"]
    for number, one in enumerate(step.expectations):
        try:
            condition = translate_condition(one.condition, rows.schema)
        except MisuseError as error:
            error.what = f"expectation {one.name!r}: {error.what}"
            raise
        columns.append(f'coalesce({condition}, false) as "{FULFILLED.format(number)}"')
    checked = f"select {', '.join(columns)} from ({sql}) as r"  # noqa: S608 - SQL of its user
    query_of = RowQuery(schema, sql=checked)
    return RowStep(step.id, reads, query_of, step.expectations, rows.schema)


def _order(
    draft: Draft, queries: Mapping[str, Query], problems: list[Problem]
) -> list[tuple[str, str]]:
    """Each step with what it reads, behind that; adds problems of ids."""
    steps = {step.id: step for step in written_steps(draft)}
    ids = {name.lower(): name for name in (draft.entries[0].id, *steps)}
    reads = dict[str, str]()
    for name, query in queries.items():
        known = ids.get(query.table.lower())
        if known is None:
            near = nearest(query.table.lower(), ids)
            what = f"{query.table!r} is no id; there are {', '.join(ids.values())}"
            hint = f"did you mean {ids[near]!r}?" if near else None
            problems.append(_problem(steps[name], what, hint))
        else:
            reads[name] = known
    try:
        sorter = TopologicalSorter({name: {of} for name, of in reads.items()})
        return [(name, reads[name]) for name in sorter.static_order() if name in reads]
    except CycleError as error:
        ring = list(reversed(error.args[1]))
        what = f"is part of a cycle: {' reads '.join(ring)}"
        problems.append(_problem(steps[ring[0]], what))
        return []


def _unread(draft: Draft, reads: Mapping[str, str]) -> Iterator[Problem]:
    """Warn of steps that no sink reads, which are not run."""
    of = {
        failed_id(one): step.id
        for step in written_steps(draft)
        for one in step.expectations
    }
    needed = set[str]()
    for target in draft.targets:
        name: str | None = of.get(target.rows, target.rows)
        while name is not None:
            needed.add(name)
            name = reads.get(name)
    for step in written_steps(draft):
        if step.id not in needed:
            what = f"step {step.id!r} is read by no sink: it is not run"
            yield Problem("steps", what, step.origin, level="warning")


def _wider_parts(draft: Draft) -> Iterator[Problem]:
    """Parts of a file that need more than the row, or Spark."""
    for other in draft.entries[1:]:
        yield _wider("sources", f"a second source, {other.id!r},", other.origin)
    for entry in draft.entries:
        if entry.watermark is not None:
            yield _wider("watermark.column", "a watermark", entry.origin)
    for lookup in draft.lookups:
        yield _wider("lookups", f"the lookup {lookup.id!r}", lookup.origin)
    for step in written_steps(draft):
        if step.python is not None:
            what = f"step {step.id!r}: a function of DataFrames"
            yield Problem("python", what, step.origin, _SPARK)
        if step.watermark is not None or step.distinct is not None:
            what = f"event time or distinct rows of step {step.id!r}"
            yield _wider("steps", what, step.origin)
    for target in draft.targets:
        if isinstance(target, Table):
            what = f"the table {target.name!r} is written by a connector of Spark"
            yield Problem("tables", what, target.origin, _SPARK)


def _wider_pipeline(draft: Draft) -> Iterator[Problem]:
    """Options of a pipeline that need more than the row, or Spark."""
    pipeline = draft.pipeline
    if pipeline is None:
        return
    at = {key: draft.places.get(key, draft.origin) for key in _TOP}
    if pipeline.trigger.millis:
        what = "is a period: here rows are committed as they come, by the options "
        what += "realtime.segment.flush.threshold.* of the first sink"
        hint = f"set available-now or back-to-back, or {_SPARK}"
        yield Problem("trigger", what, at["trigger"], hint)
    if pipeline.mode != "append":
        yield _wider("output.mode", pipeline.mode, at["output.mode"])
    if pipeline.idle_rounds is not None:
        where = at["idle.stop.rounds"]
        yield Problem("idle.stop.rounds", "there are no rounds", where, _SPARK)
    if pipeline.spark:
        what, hint = "no Spark runs that it would set", f"remove it, or {_SPARK}"
        yield Problem("spark", what, at["spark"], hint)


def _wider(key: str, what: str, origin: str) -> Problem:
    return Problem(key, f"{what} needs more than the row", origin, _SPARK)


@contextmanager
def _noting(
    problems: list[Problem], step: Step, expectation: Expectation | None = None
) -> Iterator[None]:
    """Add what is refused as a problem of its step."""
    try:
        yield
    except MisuseError as error:
        what = error.what
        if expectation is not None:
            what = f"expectation {expectation.name!r}: {what}"
        problems.append(_problem(step, what, error.remedy))


def _problem(step: Step, what: str, hint: str | None = None) -> Problem:
    return Problem("sql", f"step {step.id!r}: {what}", step.origin, hint)
