"""Counts the rows that do not fulfil the expectations of pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users write it

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from streamfactory.spark.pipelines.model import Step

_METRICS: Final = "expectations."


def observed(rows: DataFrame, step: Step) -> DataFrame:
    """Rows of a stream, whose failures Spark counts and reports with each batch."""
    if not step.expectations:
        return rows
    return rows.observe(_METRICS + step.id, *_counts(step))


def counted(rows: DataFrame, step: Step) -> dict[str, int]:
    """How many rows of a batch do not fulfil expectations, by name."""
    found = rows.agg(*_counts(step)).first()
    return {} if found is None else found.asDict()


def reported(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """The same from Spark's report of a batch."""
    return {
        name: int(count)
        for step, counts in metrics.items()
        if step.startswith(_METRICS)
        for name, count in counts.items()
    }


def _counts(step: Step) -> list[Column]:
    return [
        F.count_if(~F.expr(one.fulfilled)).alias(one.name) for one in step.expectations
    ]
