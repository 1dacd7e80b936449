"""Shows what a pipeline makes of the first rows of its sources. Commits nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spark.pipelines.functions import rows_of
from streamfactory.spark.pipelines.lookups import Lookups
from streamfactory.spark.pipelines.sampling import Sample, first_rows
from streamfactory.spark.pipelines.sql import errors_of, session_like

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from streamfactory.spark.pipelines.model import Pipeline
    from streamfactory.spark.pipelines.sql import Analysis


def preview(
    spark: SparkSession, pipeline: Pipeline, analysis: Analysis, rows: int
) -> list[Sample]:
    """The first rows of each source, and what each step makes of them.

    Steps see these rows only: an aggregation is one of them, a join finds partners
    among them.

    Args:
        spark: Any session; it is not changed.
        pipeline: A pipeline without problems.
        analysis: Its analysis.
        rows: Most rows of each id.

    Raises:
        ConfigError: config; Spark cannot evaluate a step over these rows.
        StreamError: Errors of a stream, or of a lookup.
    """
    session = session_like(spark)
    found = []
    for source in pipeline.sources:
        first = first_rows(source, rows, dead_letters=pipeline.dead_letters is not None)
        _view(session, source.id, first, analysis.schemas[source.id])
        found.append(Sample(source.id, first))
    # Steps that no sink reads are shown, too: they are work in progress.
    read = set[str]().union(*analysis.reads.values())
    known = [one for one in pipeline.lookups if one.id in read]
    lookups = Lookups(known, analysis.schemas)
    try:
        lookups.open(session)
        lookups.refresh(session)
        steps = {step.id: step for step in pipeline.steps}
        for name in analysis.order:
            if name not in steps:
                continue
            step = steps[name]
            with errors_of(step):
                frame = rows_of(session, step)
                if step.distinct is not None:  # within a time: of streams only
                    frame = frame.dropDuplicates([*step.distinct.by])
                frame.createOrReplaceTempView(name)
                if step.shown == name:
                    found.append(Sample(name, frame.limit(rows).toArrow()))
    finally:
        lookups.close()
    return found


def _view(session: SparkSession, name: str, rows: pa.Table, schema: StructType) -> None:
    """Rows as a view, with the types that the steps were analysed with."""
    wanted = [field.name for field in schema]
    frame = session.createDataFrame(rows.select(wanted), schema)
    frame.createOrReplaceTempView(name)
