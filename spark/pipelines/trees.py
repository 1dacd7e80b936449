"""Whether Spark, or a batch alone, can evaluate a query, by the tree of its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from streamfactory.spark.failures import words_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession

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
_KEEPS_LEFT: Final = frozenset(
    ["INNER", "CROSS", "LEFT OUTER", "LEFT SEMI", "LEFT ANTI", "EXISTENCE"]
)
_KEEPS_RIGHT: Final = frozenset(["INNER", "CROSS", "RIGHT OUTER"])
"""Joins whose result for the rows of one side does not depend on other rows of it."""


class PlanTree:
    """Walks over an analysed plan, whose views are the ids of a pipeline.

    Args:
        static: The ids that are no streams.
    """

    def __init__(self, static: Collection[str]) -> None:
        self._static = {name.lower() for name in static}
        self._defined: dict[int, Any] = {}
        """Common table expressions, by id."""

    def reads_stream(self, node: Any) -> bool:
        """Whether a node has rows of a stream."""
        kind = node.nodeName()
        if kind == "View":
            return node.desc().identifier().table().lower() not in self._static
        if kind == "CTERelationRef":
            definition = self._defined.get(node.cteId())
            return definition is None or self.reads_stream(definition)
        if kind == "WithCTE":
            # Definitions stand before their uses.
            for one in _each(node.cteDefs()):
                self._defined[one.id()] = one
            return self.reads_stream(node.plan())
        inner = _each(node.subqueries())
        return any(map(self.reads_stream, (*_each(node.children()), *inner)))

    def is_by_the_row(self, node: Any) -> bool:
        """Whether the result for a batch equals that for the stream."""
        if not self.reads_stream(node):
            return True
        kind = node.nodeName()
        if kind in {"View", "CTERelationRef"}:
            return True
        if any(map(self.reads_stream, _each(node.subqueries()))):
            return False
        if kind == "Join":
            left = self.reads_stream(node.left())
            if left and self.reads_stream(node.right()):
                return False
            keeping = _KEEPS_LEFT if left else _KEEPS_RIGHT
            if node.joinType().sql() not in keeping:
                return False
        elif kind == "Union":
            # Each batch would have the rows of the static side again.
            if not all(map(self.reads_stream, _each(node.children()))):
                return False
        elif kind not in _BY_THE_ROW:
            return False
        return all(map(self.is_by_the_row, _each(node.children())))


def unsupported(session: SparkSession, frame: DataFrame, mode: str) -> str | None:
    """Why Spark does not support a plan as a stream; None if it does.

    Args:
        session: Any session of its Java process.
        frame: Rows of streams.
        mode: The output mode.
    """
    jvm: Any = session._jvm
    plan: Any = frame._jdf.queryExecution().analyzed()
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(plan, getattr(modes, mode.capitalize())())
    except PySparkException as error:
        return words_of(error)
    return None


def _each(sequence: Any) -> list[Any]:
    """The elements of a sequence of Scala."""
    return [sequence.apply(index) for index in range(sequence.size())]
