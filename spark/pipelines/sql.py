"""Parsing and analysis of a pipeline's SQL by Spark, before anything starts.

Each step is analysed over empty rows of the ids that it reads. So its plan is separate
from theirs, no stream is contacted, and nothing runs.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

from streamfactory.spark.failures import reason, unlogged, words_of
from streamfactory.spark.pipelines.expectations import DEAD_LETTER
from streamfactory.spark.pipelines.functions import rows_of
from streamfactory.spark.pipelines.trees import PlanTree
from streamfactory.spi import ConfigError, Problem
from streamfactory.wiring.core.nearest import nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.model import Draft, Entry, Step, Watermark

_RELATION: Final = re.compile(r"'UnresolvedRelation \[([^\]]*)\]")
_CTE: Final = re.compile(r"^[\s:+\-]*'?CTE \[([^\]]*)\]", re.MULTILINE)
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
    """Steps that depend on more than one row of a stream."""
    static: set[str] = field(default_factory=set)
    """Lookups, and steps that read no stream."""
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
        schemas: Schemas of the sources, and of lookups where they are known, by id;
            None if that of a source is unknown: then SQL is only parsed, and columns
            are not checked.
    """
    with unlogged():
        return _analyse(session_like(spark), draft, schemas)


def _analyse(
    session: SparkSession, draft: Draft, schemas: Mapping[str, StructType] | None
) -> Analysis:
    analysis = Analysis(static={one.id for one in draft.lookups})
    queries = {
        step.id: step
        for step in draft.steps
        if (step.sql or step.python) and _parse(session, step, draft, analysis)
    }
    looped = _sort(draft, analysis)
    _warn_unread(draft, analysis)
    if schemas is not None:
        for entry in draft.entries:
            _analyse_source(session, entry, schemas[entry.id], analysis)
        for lookup in draft.lookups:
            if lookup.id in schemas:
                analysis.schemas[lookup.id] = schemas[lookup.id]
                _view(session, lookup.id, schemas[lookup.id])
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
    """Parse one step; whether it is over existing ids."""
    if step.python is not None:
        return _name_inputs(step, draft, analysis)
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
    ids = _ids(draft)
    reads, known = analysis.reads.setdefault(step.id, set()), True
    for relation in _RELATION.findall(tree):
        if relation.lower() in ids:
            reads.add(ids[relation.lower()])
        elif (
            "," not in relation
            and relation not in local
            and not session.catalog.tableExists(relation)
        ):
            _unknown(analysis, step, relation, draft)
            known = False
    return known


def _name_inputs(step: Step, draft: Draft, analysis: Analysis) -> bool:
    """Note what a function reads; whether all of these ids exist."""
    ids = _ids(draft)
    unknown = [name for name in step.inputs if name.lower() not in ids]
    for name in unknown:
        _unknown(analysis, step, name, draft)
    known = (ids[name.lower()] for name in step.inputs if name.lower() in ids)
    analysis.reads[step.id] = set(known)
    return not unknown


def _ids(draft: Draft) -> dict[str, str]:
    """All ids by their lower case."""
    every = [one.id for one in draft.entries] + [one.id for one in draft.lookups]
    return {name.lower(): name for name in (*every, *(x.id for x in draft.steps))}


def _unknown(analysis: Analysis, step: Step, name: str, draft: Draft) -> None:
    """Report an id that does not exist."""
    ids = _ids(draft)
    near = nearest(name.lower(), ids)
    hint = f"did you mean {ids[near]!r}?" if near else None
    hidden = {one.id for one in draft.steps if one.of not in (None, one.id)}
    shown = [one for one in ids.values() if one not in hidden]
    what = f"{name!r} is no id; there are {', '.join(shown)}"
    _problem(analysis, step, what, hint)


def _sort(draft: Draft, analysis: Analysis) -> set[str]:
    """Sort the ids topologically; returns the steps that are part of a cycle."""
    steps = {step.id: step for step in draft.steps}
    roots = [*(one.id for one in draft.entries), *(one.id for one in draft.lookups)]
    reads = {**{name: set[str]() for name in roots}, **analysis.reads}
    looped: set[str] = set()
    while True:
        try:
            analysis.order = list(TopologicalSorter(reads).static_order())
        except CycleError as error:
            ring = list(reversed(error.args[1]))
            # Parts of a step have its id.
            shown = [name for name, _ in groupby(steps[one].shown for one in ring)]
            shown = shown if len(shown) > 1 else shown * 2
            what = f"is part of a cycle: {' reads '.join(shown)}"
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
        hidden = step.of not in (None, step.id)
        if step.id and step.id not in needed and not hidden:
            what = f"step {step.id!r} is read by no sink: it is not run"
            note = Problem("steps", what, step.origin, level="warning")
            analysis.problems.append(note)
    for lookup in draft.lookups:
        if lookup.id and lookup.id not in needed:
            what = f"lookup {lookup.id!r} is read by no sink: it is not read"
            note = Problem("lookups", what, lookup.origin, level="warning")
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
        frame = rows_of(session, step)
    except ConfigError as error:
        _problem(analysis, step, error.what, error.remedy)
        return
    except PySparkException as error:
        _problem(analysis, step, words_of(error))
        return
    except Py4JJavaError as error:
        _problem(analysis, step, _java_words(error, step.sql))
        return
    plan, tree = _plan_of(frame), PlanTree(analysis.static)
    has_stream = tree.reads_stream(plan)
    wrong = _check_watermark(frame, step.watermark) or _check_columns(frame, step)
    if frame.isStreaming:
        wrong = "reads a stream that is no source: name it in [[sources]]"
    elif step.distinct is not None and step.distinct.within and not has_stream:
        wrong = "distinct.within has no effect: the step reads no stream; remove it"
    if wrong is not None:
        _problem(analysis, step, wrong)
        return
    if has_stream:
        if step.distinct is not None or not tree.is_by_the_row(plan):
            analysis.stateful.add(step.id)
    elif analysis.reads[step.id]:
        analysis.static.add(step.id)
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


def _check_columns(rows: DataFrame, step: Step) -> str | None:
    """The problem of the columns that options of a step name."""
    try:
        if step.distinct is not None:
            rows.select(*step.distinct.by)
    except PySparkException as error:
        return f"distinct.by: {words_of(error)}"
    for one in step.expectations:
        try:
            plan = _plan_of(rows.where(one.fulfilled))
        except PySparkException as error:
            return f"expectation {one.name!r}: {words_of(error)}"
        if one.on_failure == DEAD_LETTER and _varies(rows, plan.condition()):
            # Each sink evaluates it: a row would be in both of them, or in none.
            what = f"expectation {one.name!r}: {DEAD_LETTER} requires a condition with "
            what += "the same result each time: it calls a random function, or one of "
            return what + "the current time; make its value a column of the step"
    return None


def _plan_of(frame: DataFrame) -> Any:
    java: Any = frame._jdf
    return java.queryExecution().analyzed()


def _varies(rows: DataFrame, expression: Any) -> bool:
    """Whether an expression may have another value when it is evaluated again."""
    jvm: Any = rows.sparkSession._jvm
    now = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    return not expression.deterministic() or bool(expression.containsPattern(now))


def distinct(frame: DataFrame, step: Step) -> DataFrame:
    """The rows of a step, without those whose values were there before."""
    if step.distinct is None:
        return frame
    if step.distinct.within:
        return frame.dropDuplicatesWithinWatermark([*step.distinct.by])
    return frame.dropDuplicates([*step.distinct.by])


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
    analysis.problems.append(problem_of(step, what, hint))


@contextmanager
def errors_of(step: Step) -> Iterator[None]:
    """Raise errors of a step's query or function with the step.

    Raises:
        ConfigError: config; Spark refuses the query, or the function fails.
    """
    try:
        yield
    except PySparkException as error:
        raise _refusal(step, reason(error) or words_of(error)) from error
    except ConfigError as error:
        raise _refusal(step, error.what, error.remedy) from error


def _refusal(step: Step, what: str, hint: str | None = None) -> ConfigError:
    problem = problem_of(step, what, hint)
    return ConfigError(problem.what, problems=[problem])


def problem_of(step: Step, what: str, hint: str | None = None) -> Problem:
    """A problem of a step's query or function."""
    key = "sql" if step.python is None else "python"
    return Problem(key, f"step {step.shown!r}: {what}", step.origin, hint)
