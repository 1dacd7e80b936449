"""How rows are split among the sinks of a pipeline: the trunk, and what follows it.

See `streamfactory.spark.pipelines.building`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamfactory.spark.pipelines.sql import stateful_between
from streamfactory.spi import Problem

if TYPE_CHECKING:
    from streamfactory.spark.pipelines.model import Lookup, Pipeline
    from streamfactory.spark.pipelines.sql import Analysis


@dataclass(frozen=True, slots=True)
class Shape:
    """How the rows of a pipeline are split among its sinks."""

    trunk: str
    batched: bool
    """Whether batches are written by `foreachBatch` instead of Spark's writer."""
    joined: bool
    """Whether bad messages are unioned with the rows of a stateful trunk."""


def shape_of(pipeline: Pipeline, analysis: Analysis) -> Shape | Problem:
    """The shape of a pipeline, or why it is not possible."""
    targets = [sink.rows for sink in pipeline.targets]
    for sink in pipeline.targets:
        if sink.rows in analysis.static:
            what = f"sink {sink.name!r}: step {pipeline.shown(sink.rows)!r} "
            what += "reads no stream"
            hint = "write rows of a stream: a lookup has no batches"
            return Problem("sinks", what, sink.origin, hint)
    trunk = _trunk(pipeline, analysis, targets)
    if trunk is None:
        names = " and ".join(repr(sink.name) for sink in pipeline.targets)
        what = f"the sinks {names} read several sources, and no step has the rows of "
        what += "all of them"
        hint = "write a step that joins or unions the sources, or several pipelines"
        return Problem("sinks", what, pipeline.targets[0].origin, hint)
    loose = stateful_between(analysis, trunk, targets)
    read_again = used_lookups(pipeline, analysis, once=False)
    kind = ""
    if loose:
        kind = f"step {pipeline.shown(loose[0])!r} aggregates, joins or sorts"
    if loose and read_again:
        what = f"{kind} rows with the lookup "
        what += (
            f"{read_again[0].id!r}, which is read again: it would see one batch only"
        )
        hint = 'set refresh = "once", or aggregate before the step that reads it'
        return Problem("sql", what, pipeline.targets[0].origin, hint)
    if loose:
        names = " and ".join(repr(sink.name) for sink in pipeline.targets)
        what = f"the sinks {names} have no common step after {pipeline.shown(trunk)!r}"
        what += f", and {kind}: it would see one batch only"
        hint = "give one of them a pipeline of its own, which reads the stream too"
        return Problem("sinks", what, pipeline.targets[0].origin, hint)
    if pipeline.dead_letters is None:
        several = len(pipeline.targets) > 1 or bool(pipeline.tables)
        batched = several or pipeline.mode == "update" or bool(read_again)
        return Shape(trunk, batched, joined=False)
    first = pipeline.sources[0].id
    several = len(pipeline.sources) > 1
    if several or stateful_between(analysis, first, targets):
        return Shape(trunk, batched=True, joined=True)
    return Shape(first, batched=True, joined=False)


def _trunk(pipeline: Pipeline, analysis: Analysis, targets: list[str]) -> str | None:
    """The last id that the rows of all sinks pass through; None if there is none."""
    sources = {source.id for source in pipeline.sources}

    def passes(target: str, name: str) -> bool:
        waiting, seen = [target], {name}
        while waiting:
            at = waiting.pop()
            if at in sources and at != name:
                return False
            if at not in seen:
                seen.add(at)
                waiting += analysis.reads.get(at, set())
        return True

    # A batch reads these again: what is behind them is evaluated batch by batch.
    read_again = {one.id for one in used_lookups(pipeline, analysis, once=False)}
    found = pipeline.sources[0].id if len(sources) == 1 else None
    for name in analysis.order:
        if name in analysis.static or analysis.reach(name) & read_again:
            continue
        within = all(name in analysis.reach(target) for target in targets)
        if within and all(passes(target, name) for target in targets):
            found = name
    return found


def used_lookups(
    pipeline: Pipeline, analysis: Analysis, *, once: bool | None = None
) -> list[Lookup]:
    """The lookups that rows of sinks depend on.

    Args:
        pipeline: The pipeline.
        analysis: Its analysis.
        once: Only those that are read once, or only those that are read again.
    """
    used = {name for sink in pipeline.targets for name in analysis.reach(sink.rows)}
    return [
        one
        for one in pipeline.lookups
        if one.id in used and once in (None, one.refresh.once)
    ]
