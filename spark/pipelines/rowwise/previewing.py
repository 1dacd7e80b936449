"""Shows what a pipeline without Spark makes of the first rows of its source."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.spark.pipelines.overriding import Overrides, PipelineFiles
from streamfactory.spark.pipelines.rowwise.planning import plan_of
from streamfactory.spark.pipelines.rowwise.steps import Tree, as_batch
from streamfactory.spark.pipelines.sampling import Sample, first_rows

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def preview_rowwise(
    path: Path,
    rows: int,
    overrides: Overrides,
    texts: Mapping[Path, str] | None = None,
) -> list[Sample]:
    """The first rows of the source, and what each step makes of them.

    Args:
        path: The pipeline's file.
        rows: Most rows of each id.
        overrides: Of the command line.
        texts: Texts that are read instead of those of the files.

    Raises:
        ConfigError: config; with all problems of the pipeline.
        StreamError: Errors of the stream, or a value cannot be computed.
    """
    files = PipelineFiles.read([path], overrides, texts)
    files.refuse()
    [draft] = files.drafts
    assert draft.pipeline is not None
    [source] = draft.pipeline.sources
    letters = draft.pipeline.dead_letters is not None
    first = first_rows(source, rows, dead_letters=letters)
    plan = plan_of(draft, first.schema)
    ids = [source.id, *(step.id for step in plan.steps)]
    tree, unmet = Tree(plan, frozenset(ids)), Counter[str]()
    found = tree.rows("the first rows", as_batch(first), unmet)
    return [Sample(name, pa.Table.from_batches([found[name]])) for name in ids]
