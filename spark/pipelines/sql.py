"""The SQL of a pipeline, read and analysed by Spark itself before anything starts.

Each step is analysed over empty rows of the ids that it reads: so its own plan is told
apart from theirs, no stream is asked, and nothing runs.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from streamfactory.spark.failures import unlogged, words_of
from streamfactory.spi import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.model import Draft, Step, Watermark

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
"""Nodes of a plan that see one row at a time: over a batch they say what they say over
the stream. Whatever else there is counts as having a state."""
_NO_QUERY: Final = (
    "org.apache.spark.sql.catalyst.plans.logical.Command",
    "org.apache.spark.sql.catalyst.plans.logical.ParsedStatement",
)


@dataclass(slots=True)
class Analysis:
    """What Spark knows of a pipeline's steps."""

    order: list[str] = field(default_factory=list)
    """Ids, each behind those that it reads; the source's first."""
    reads: dict[str, set[str]] = field(default_factory=dict)
    """The ids that each step reads."""
    schemas: dict[str, StructType] = field(default_factory=dict)
    """Of each id, as far as known."""
    stateful: set[str] = field(default_factory=set)
    """Steps that look at more than one row."""
    problems: list[Problem] = field(default_factory=list)

    def reach(self, target: str) -> set[str]:
        """An id and all that it is made of."""
        found, waiting = {target}, [target]
        while waiting:
            new = self.reads.get(waiting.pop(), set()) - found
            found |= new
            waiting += new
        return found


def analyse(spark: SparkSession, draft: Draft, schema: StructType | None) -> Analysis:
    """Find out all that is wrong with the SQL.

    Args:
        spark: Any session; nothing is left behind in it.
        draft: The pipeline, as far as it could be read.
        schema: Of the source; None where it is not known: then SQL is parsed, and
            columns stay unchecked.
    """
    with unlogged():
        return _analyse(session_like(spark), draft, schema)


def _analyse(
    session: SparkSession, draft: Draft, schema: StructType | None
) -> Analysis:
    analysis = Analysis()
    queries = {
        step.id: step
        for step in draft.steps
        if step.sql and _parse(session, step, draft, analysis)
    }
    looped = _sort(draft, analysis)
    _warn_unread(draft, analysis)
    if schema is not None:
        _analyse_source(session, draft, schema, analysis)
    for name in analysis.order:
        if name in queries and name not in looped:
            _analyse_step(session, queries[name], analysis)
    return analysis


def session_like(spark: SparkSession) -> SparkSession:
    """Another session with the settings, functions and views of one.

    What is set or made in it does not show in the other one.
    """
    java: Any = spark._jsparkSession
    return type(spark)(spark.sparkContext, java.cloneSession())


def _parse(session: SparkSession, step: Step, draft: Draft, analysis: Analysis) -> bool:
    """Read one step; whether it is a query over what is there."""
    java: Any = session._jsparkSession
    try:
        plan = java.sessionState().sqlParser().parsePlan(step.sql)
    except PySparkException as error:
        _problem(analysis, step, f"is no SQL: {words_of(error)}")
        return False
    loader = java.getClass().getClassLoader()
    if any(loader.loadClass(name).isInstance(plan) for name in _NO_QUERY):
        _problem(analysis, step, "is no query, but a command", "write select ...")
        return False
    tree = plan.treeString()
    local = {name.strip() for found in _CTE.findall(tree) for name in found.split(",")}
    ids = {
        name.lower(): name for name in [draft.source_id, *(s.id for s in draft.steps)]
    }
    reads, known = analysis.reads.setdefault(step.id, set()), True
    for relation in _RELATION.findall(tree):
        if relation.lower() in ids:
            reads.add(ids[relation.lower()])
        elif (
            "," not in relation
            and relation not in local
            and not session.catalog.tableExists(relation)
        ):
            near = difflib.get_close_matches(relation.lower(), ids, n=1)
            hint = f"did you mean {ids[near[0]]!r}?" if near else None
            what = f"{relation!r} is no id; there are {', '.join(ids.values())}"
            _problem(analysis, step, what, hint)
            known = False
    return known


def _sort(draft: Draft, analysis: Analysis) -> set[str]:
    """Put ids behind those that they read; answers the steps that cannot be."""
    steps = {step.id: step for step in draft.steps}
    reads = {draft.source_id: set[str](), **analysis.reads}
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
    """Tell steps that are read by no sink: they are not run."""
    needed = {name for sink in draft.sinks for name in analysis.reach(sink.rows)}
    for step in draft.steps:
        if step.id and step.id not in needed:
            what = f"step {step.id!r} is read by no sink: it is not run"
            note = Problem("steps", what, step.origin, level="warning")
            analysis.problems.append(note)


def _analyse_source(
    session: SparkSession, draft: Draft, schema: StructType, analysis: Analysis
) -> None:
    rows = _view(session, draft.source_id, schema)
    wrong = _check_watermark(rows, draft.watermark)
    if wrong is not None:
        problem = Problem("watermark.column", f"[source]: {wrong}", draft.origin)
        analysis.problems.append(problem)
    analysis.schemas[draft.source_id] = schema


def _analyse_step(session: SparkSession, step: Step, analysis: Analysis) -> None:
    if not analysis.reads[step.id] <= set(analysis.schemas):
        return  # what it reads is not known, or wrong itself
    try:
        frame = session.sql(step.sql)
    except PySparkException as error:
        _problem(analysis, step, words_of(error))
        return
    wrong = _check_watermark(frame, step.watermark)
    if frame.isStreaming:
        wrong = "reads another stream: a pipeline has one source"
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
    """What is wrong with it; Spark looks at it only in streams."""
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
    """The rows, with their event time declared."""
    if watermark is None:
        return frame
    return frame.withWatermark(watermark.column, watermark.delay)


def _view(session: SparkSession, name: str, schema: StructType) -> DataFrame:
    """No rows of a schema, under a name. Python makes none of them."""
    columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in schema]
    rows = session.range(0).select(*columns)
    rows.createOrReplaceTempView(name)
    return rows


def stateful_between(
    analysis: Analysis, trunk: str, targets: Sequence[str]
) -> list[str]:
    """Steps with a state behind an id, on the way to others."""
    before = analysis.reach(trunk)
    behind = {name for target in targets for name in analysis.reach(target)} - before
    return [name for name in analysis.order if name in behind & analysis.stateful]


def _problem(
    analysis: Analysis, step: Step, what: str, hint: str | None = None
) -> None:
    text = f"step {step.id!r}: {what}"
    analysis.problems.append(Problem("sql", text, step.origin, hint))
