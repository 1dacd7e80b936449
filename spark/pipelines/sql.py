"""Parsing and analysis of a pipeline's SQL by Spark, before anything starts.

Each step is analysed over empty rows of the ids that it reads. So its plan is separate
from theirs, no stream is contacted, and nothing runs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from streamfactory.spark.failures import unlogged, words_of
from streamfactory.spi import Problem
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.model import Draft, Entry, Step, Watermark

_NODE: Final = re.compile(r"^[\s:+\-]*['~!*]*([A-Z]\w*)", re.MULTILINE)
_RELATION: Final = re.compile(r"'UnresolvedRelation \[([^\]]*)\]")
_CTE: Final = re.compile(r"^[\s:+\-]*'?CTE \[([^\]]*)\]", re.MULTILINE)
_BY_THE_ROW: Final = frozenset(
    [
        "Project",
        "Filter",
        "Generate",
        "Union",
        "SubqueryAlias",
        "View",
        "Range",
        "LocalRelation",
        "LogicalRDD",
        "OneRowRelation",
        "EventTimeWatermark",
        "PipeOperator",
        "ResolvedHint",
        "WithCTE",
        "CTERelationDef",
        "CTERelationRef",
        "Expand",
    ]
)
"""Stateless plan nodes: their result for a batch equals that for the stream. All other
nodes count as stateful."""
_NO_QUERY: Final = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
)


@dataclass(slots=True)
class Analysis:
    """Result of the analysis of a pipeline's steps."""

    order: list[str] = field(default_factory=list)
    """Ids in topological order, those of sources among them."""
    reads: dict[str, set[str]] = field(default_factory=dict)
    """The ids that each step reads."""
    schemas: dict[str, StructType] = field(default_factory=dict)
    """Schema of each id, if known."""
    stateful: set[str] = field(default_factory=set)
    """Steps that depend on more than one row."""
    problems: list[Problem] = field(default_factory=list)

    def reach(self, target: str) -> set[str]:
        """An id and all ids that it depends on."""
        found, waiting = {target}, [target]
        while waiting:
            new = self.reads.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found


def analyse(
    spark: SparkSession, draft: Draft, schemas: Mapping[str, StructType] | None
) -> Analysis:
    """Find all problems of the SQL.

    Args:
        spark: Any session; it is not changed.
        draft: The pipeline, as far as it could be parsed.
        schemas: Schemas of the sources, by id; None if unknown: then SQL is only
            parsed, and columns are not checked.
    """
    with unlogged():
        return _analyse(session_like(spark), draft, schemas)


def _analyse(
    session: SparkSession, draft: Draft, schemas: Mapping[str, StructType] | None
) -> Analysis:
    analysis = Analysis()
    queries = {
        step.id: step
        for step in draft.steps
        if step.sql and _parse(session, step, draft, analysis)
    }
    looped = _sort(draft, analysis)
    _warn_unread(draft, analysis)
    if schemas is not None:
        for entry in draft.entries:
            _analyse_source(session, entry, schemas[entry.id], analysis)
    for name in analysis.order:
        if name in queries and name not in looped:
            _analyse_step(session, queries[name], analysis)
    return analysis


def session_like(spark: SparkSession) -> SparkSession:
    """A new session with the settings, functions and views of another one.

    Changes in it do not affect the other one.
    """
    java: Any = spark._jsparkSession
    return type(spark)(spark.sparkContext, java.cloneSession())


def _parse(session: SparkSession, step: Step, draft: Draft, analysis: Analysis) -> bool:
    """Parse one step; whether it is a query over existing ids."""
    java: Any = session._jsparkSession
    try:
        plan = java.sessionState().sqlParser().parsePlan(step.sql)
    except PySparkException as error:
        _problem(analysis, step, f"is not SQL: {words_of(error)}")
        return False
    except Py4JJavaError as error:
        _problem(analysis, step, _java_words(error, step.sql))
        return False
    loader = java.getClass().getClassLoader()
    if any(loader.loadClass(name).isInstance(plan) for name in _NO_QUERY):
        _problem(analysis, step, "is a command, not a query", "write select ...")
        return False
    tree = plan.treeString()
    local = {name.strip() for found in _CTE.findall(tree) for name in found.split(",")}
    names = [*(one.id for one in draft.entries), *(one.id for one in draft.steps)]
    ids = {name.lower(): name for name in names}
    reads, known = analysis.reads.setdefault(step.id, set()), True
    for relation in _RELATION.findall(tree):
        if relation.lower() in ids:
            reads.add(ids[relation.lower()])
        elif (
            "," not in relation
            and relation not in local
            and not session.catalog.tableExists(relation)
        ):
            near = nearest(relation.lower(), ids)
            hint = f"did you mean {ids[near]!r}?" if near else None
            what = f"{relation!r} is no id; there are {', '.join(ids.values())}"
            _problem(analysis, step, what, hint)
            known = False
    return known


def _sort(draft: Draft, analysis: Analysis) -> set[str]:
    """Sort the ids topologically; returns the steps that are part of a cycle."""
    steps = {step.id: step for step in draft.steps}
    reads = {**{one.id: set[str]() for one in draft.entries}, **analysis.reads}
    looped: set[str] = set()
    while True:
        try:
            analysis.order = list(TopologicalSorter(reads).static_order())
        except CycleError as error:
            ring = list(reversed(error.args[1]))
            what = f"is part of a cycle: {' reads '.join(ring)}"
            first = next(name for name in steps if name in ring)
            _problem(analysis, steps[first], what)
            looped |= set(ring)
            reads |= {name: set() for name in ring}
        else:
            return looped


def _warn_unread(draft: Draft, analysis: Analysis) -> None:
    """Warn of steps that no sink reads, which are not run."""
    needed = {name for sink in draft.targets for name in analysis.reach(sink.rows)}
    for step in draft.steps:
        if step.id and step.id not in needed:
            what = f"step {step.id!r} is read by no sink: it is not run"
            note = Problem("steps", what, step.origin, level="warning")
            analysis.problems.append(note)
    if len(draft.entries) > 1:
        for entry in draft.entries:
            if entry.id not in needed:
                what = f"source {entry.id!r} is read by no sink"
                hint = "remove it, or read it in a step"
                analysis.problems.append(Problem("sources", what, entry.origin, hint))


def _analyse_source(
    session: SparkSession, entry: Entry, schema: StructType, analysis: Analysis
) -> None:
    rows = _view(session, entry.id, schema)
    wrong = _check_watermark(rows, entry.watermark)
    if wrong is not None:
        what = f"source {entry.id!r}: {wrong}"
        analysis.problems.append(Problem("watermark.column", what, entry.origin))
    analysis.schemas[entry.id] = schema


def _analyse_step(session: SparkSession, step: Step, analysis: Analysis) -> None:
    if not analysis.reads[step.id] <= set(analysis.schemas):
        return  # a step that it reads is unknown or has problems
    try:
        frame = session.sql(step.sql)
    except PySparkException as error:
        _problem(analysis, step, words_of(error))
        return
    except Py4JJavaError as error:
        _problem(analysis, step, _java_words(error, step.sql))
        return
    wrong = _check_watermark(frame, step.watermark)
    if frame.isStreaming:
        wrong = "reads a stream that is no source: name it in [[sources]]"
    if wrong is not None:
        _problem(analysis, step, wrong)
        return
    java: Any = frame._jdf
    plan = java.queryExecution().analyzed()
    nodes = set(_NODE.findall(plan.treeString()))
    if nodes - _BY_THE_ROW or not plan.subqueriesAll().isEmpty():
        analysis.stateful.add(step.id)
    analysis.schemas[step.id] = frame.schema
    _view(session, step.id, frame.schema)


def _check_watermark(rows: DataFrame, watermark: Watermark | None) -> str | None:
    """The problem of a watermark, which Spark checks only for streams."""
    if watermark is None:
        return None
    try:
        kind = rows.select(watermark.column).schema[0].dataType.simpleString()
    except PySparkException as error:
        return words_of(error)
    # A window is a struct of two times.
    if kind == "timestamp" or kind.startswith("struct"):
        return None
    return f"watermark.column {watermark.column!r} is a {kind}, wanted a timestamp"


def with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    """The rows with a declared watermark."""
    if watermark is None:
        return frame
    return frame.withWatermark(watermark.column, watermark.delay)


def _view(session: SparkSession, name: str, schema: StructType) -> DataFrame:
    """A view without rows of a schema. Starts no Python worker."""
    columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in schema]
    rows = session.range(0).select(*columns)
    rows.createOrReplaceTempView(name)
    return rows


def stateful_between(
    analysis: Analysis, trunk: str, targets: Sequence[str]
) -> list[str]:
    """Stateful steps between an id and the targets."""
    before = analysis.reach(trunk)
    behind = {name for target in targets for name in analysis.reach(target)} - before
    return [name for name in analysis.order if name in behind & analysis.stateful]


def _java_words(error: Py4JJavaError, sql: str) -> str:
    """The cause of an error that Spark does not translate; its stack's end, mostly."""
    name = str(error.java_exception.getClass().getName())
    if name != "java.lang.StackOverflowError":
        return f"Spark cannot analyse it: {words_of(Exception(error.java_exception))}"
    depth = deepest = line = 0
    for number, text in enumerate(sql.splitlines(), 1):
        for sign in re.findall(r"[()]", text):
            depth += 1 if sign == "(" else -1
            if depth > deepest:
                deepest, line = depth, number
    where = f" ({deepest} parentheses in line {line} of the SQL)" if line else ""
    return f"is nested too deeply for Spark{where}"


def _problem(
    analysis: Analysis, step: Step, what: str, hint: str | None = None
) -> None:
    text = f"step {step.id!r}: {what}"
    analysis.problems.append(Problem("sql", text, step.origin, hint))
