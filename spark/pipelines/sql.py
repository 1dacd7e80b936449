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

from streamfactory.spi import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.definition import Draft, Step, Watermark

_NODE: Final = re.compile(r"^[\s:+\-]*['~!*]*([A-Z]\w*)", re.MULTILINE)
_RELATION: Final = re.compile(r"'UnresolvedRelation \[([^\]]*)\]")
_CTE: Final = re.compile(r"^[\s:+\-]*'?CTE \[([^\]]*)\]", re.MULTILINE)
_PLACE: Final = re.compile(r"line (\d+),? pos (\d+)")
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
    analysis = Analysis()
    session = spark.newSession()
    parsed = {step.id: _parse(session, step, draft, analysis) for step in draft.steps}
    _sort(draft, analysis)
    _check_targets(draft, analysis)
    if schema is not None:
        analysis.schemas[draft.source_id] = schema
    steps = {step.id: step for step in draft.steps}
    _view(session, draft.source_id, schema)
    for name in analysis.order:
        if name in steps and parsed[name]:
            _analyse_step(session, steps[name], analysis)
            _view(session, name, analysis.schemas.get(name))
    return analysis


def words_of(error: PySparkException) -> str:
    """What Spark says is wrong, in one line."""
    text = str(error)
    found = re.match(r"\[[A-Z_.0-9]+\] (.*?)(?: ?SQLSTATE:|\n\n|$)", text, re.DOTALL)
    words = " ".join((found[1] if found else text).split()).rstrip(".;: ")
    place = _PLACE.search(text)
    where = (
        f" (line {place[1]} of the SQL, column {int(place[2]) + 1})" if place else ""
    )
    return f"{words}{where}"


def _parse(session: SparkSession, step: Step, draft: Draft, analysis: Analysis) -> bool:
    """Read one step; whether it is a query."""
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
    reads = analysis.reads.setdefault(step.id, set())
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
            known = ", ".join(ids.values())
            _problem(analysis, step, f"{relation!r} is no id; there are {known}", hint)
    return True


def _sort(draft: Draft, analysis: Analysis) -> None:
    sorter = TopologicalSorter({draft.source_id: set[str](), **analysis.reads})
    try:
        analysis.order = list(sorter.static_order())
    except CycleError as error:
        ring = " reads ".join(reversed(error.args[1]))
        step = next(step for step in draft.steps if step.id in error.args[1])
        _problem(analysis, step, f"is part of a cycle: {ring}")
        analysis.order = []


def _check_targets(draft: Draft, analysis: Analysis) -> None:
    ids = [draft.source_id, *(step.id for step in draft.steps)]
    for sink in draft.sinks:
        if sink.rows not in ids:
            near = difflib.get_close_matches(sink.rows, ids, n=1)
            hint = f"did you mean {near[0]!r}?" if near else None
            what = f"sink {sink.name!r}: {sink.rows!r} is no id"
            analysis.problems.append(Problem("from", what, sink.origin, hint))
    needed = {name for sink in draft.sinks for name in analysis.reach(sink.rows)}
    for step in draft.steps:
        if step.id not in needed:
            what = f"step {step.id!r} is read by no sink"
            note = Problem("steps", what, step.origin, level="warning")
            analysis.problems.append(note)


def _analyse_step(session: SparkSession, step: Step, analysis: Analysis) -> None:
    if not analysis.reads[step.id] <= set(analysis.schemas):
        return  # what it reads is not known, or wrong itself
    try:
        frame = with_watermark(session.sql(step.sql), step.watermark)
    except PySparkException as error:
        _problem(analysis, step, words_of(error))
        return
    java: Any = frame._jdf
    nodes = set(_NODE.findall(java.queryExecution().analyzed().treeString()))
    if nodes - _BY_THE_ROW:
        analysis.stateful.add(step.id)
    analysis.schemas[step.id] = frame.schema


def with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    """The rows, with their event time declared."""
    if watermark is None:
        return frame
    return frame.withWatermark(watermark.column, watermark.delay)


def _view(session: SparkSession, name: str, schema: StructType | None) -> None:
    """No rows of a schema, under a name. Python makes none of them."""
    if schema is None:
        return
    columns = [F.lit(None).cast(f.dataType).alias(f.name) for f in schema]
    session.range(0).select(*columns).createOrReplaceTempView(name)


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
