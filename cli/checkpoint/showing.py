"""``checkpoint show``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.checkpoint.answers import (
    OffsetLine,
    moment,
    offset_lines,
    source_title,
    span,
)
from streamfactory.cli.checkpoint.locating import (
    kept_target_argument,
    locate_kept,
    server_option,
)
from streamfactory.cli.parameters import json_flag
from streamfactory.cli.results import Result, table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from streamfactory.cli.checkpoint.locating import Located
    from streamfactory.cli.printing import Printer
    from streamfactory.spark.checkpoints import Batch, QueryCheckpoint
    from streamfactory.spi import Checkpoint


@dataclass(frozen=True, slots=True)
class PipelineFacts:
    """What a pipeline's record says."""

    name: str
    generation: int
    begun: bool
    start: list[dict[str, str]]
    """Where this generation begins: options for each source."""
    reset: str | None
    """The last applied --reset."""
    ignored: str | None
    """The last applied --ignore-checkpoint."""
    why: str | None
    """Why this generation was begun."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Where one source is."""

    source: int
    name: str | None
    position: str
    """The offsets as ``--reset`` takes them."""
    offsets: list[OffsetLine]
    planned: list[OffsetLine] | None
    """Where the unfinished batch ends; None where there is none."""


@dataclass(frozen=True, slots=True)
class QueryFacts:
    """What Spark's checkpoint says."""

    id: str | None
    last_batch: int | None
    committed_at: str | None
    age_seconds: float | None
    """Since then."""
    unfinished_batch: int | None
    planned_at: str | None
    """When the last batch was planned, finished or not."""
    watermark: str | None
    sources: list[SourceFacts]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """The checkpoint of one instance of a group."""

    group: str
    instance: str
    generation: int
    position: str
    offsets: list[OffsetLine]


@dataclass(frozen=True, slots=True)
class Shown(Result):
    """The answer of ``checkpoint show``."""

    checkpoint: str
    pipeline: PipelineFacts | None
    query: QueryFacts | None
    groups: list[InstanceFacts] | None

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        yield self.checkpoint
        rows = [] if self.pipeline is None else _pipeline_rows(self.pipeline)
        rows += [] if self.query is None else _query_rows(self.query)
        yield from table([(f"{key}:", value) for key, value in rows])
        if self.query is not None:
            yield from _source_lines(self.query)
        for one in self.groups or ():
            yield ""
            yield f"group {one.group}, instance {one.instance}, save {one.generation}:"
            yield from _offset_table(one.offsets, None)


@click.command("show")
@kept_target_argument
@server_option
@json_flag
@click.pass_obj
def show_command(
    printer: Printer, /, *, target: str | None, server: str | None
) -> None:
    """Show where a query, or a group, is: last batch, offsets, watermark.

    FILE is a pipeline's. DIR is a checkpoint: a pipeline's, that of any Spark query
    which reads streams of streamfactory, or a folder of checkpoints of groups. Neither
    Spark nor Java is needed, and nothing is connected but the server of --server.
    """
    printer.show(_shown(locate_kept(target, server), datetime.now(UTC)))


def _shown(located: Located, now: datetime) -> Shown:
    query = None if located.query is None else _query(located.query, now)
    groups = located.groups
    lines = None
    if groups is not None:
        lines = [
            _instance(group, name, one)
            for group, instances in groups.items()
            for name, one in instances.items()
        ]
    return Shown(located.folder, _pipeline(located), query, lines)


def _instance(group: str, name: str, saved: Checkpoint) -> InstanceFacts:
    position = saved.position
    return InstanceFacts(
        group, name, saved.generation, position.to_json(), offset_lines(position)
    )


def _pipeline(located: Located) -> PipelineFacts | None:
    record = located.record
    if record is None:
        return None
    why = record.history[-1].why if record.history else None
    return PipelineFacts(
        record.pipeline,
        record.generation,
        record.begun,
        list(record.start),
        record.reset,
        record.ignored,
        why,
    )


def _query(query: QueryCheckpoint, now: datetime) -> QueryFacts:
    planned = query.batch(query.planned[-1]) if query.planned else None
    committed = query.committed_at()
    watermark = query.watermark()
    if watermark is None and planned is not None:
        watermark = planned.watermark
    return QueryFacts(
        id=query.query_id,
        last_batch=query.last,
        committed_at=moment(committed),
        age_seconds=None if committed is None else (now - committed).total_seconds(),
        unfinished_batch=query.unfinished,
        planned_at=None if planned is None else moment(planned.planned),
        watermark=moment(watermark),
        sources=[] if planned is None else _sources(query, planned),
        notes=list(query.notes),
    )


def _sources(query: QueryCheckpoint, planned: Batch) -> list[SourceFacts]:
    ahead = query.unfinished is not None
    pairs = zip(planned.sources, query.positions() or (), strict=True)
    return [
        SourceFacts(
            index,
            source.name,
            position.to_json(),
            offset_lines(position),
            offset_lines(source.position) if ahead else None,
        )
        for index, (source, position) in enumerate(pairs)
    ]


def _pipeline_rows(facts: PipelineFacts) -> list[tuple[str, str]]:
    return [
        ("pipeline", facts.name),
        ("generation", f"{facts.generation}: {facts.why}"),
        ("last --reset", facts.reset or "none"),
        ("last --ignore-checkpoint", facts.ignored or "none"),
    ]


def _query_rows(facts: QueryFacts) -> list[tuple[str, str]]:
    last = "none" if facts.last_batch is None else str(facts.last_batch)
    if facts.age_seconds is not None:
        last += f", done {facts.committed_at} ({span(facts.age_seconds)} ago)"
    rows = [("query", facts.id or "unknown"), ("last batch", last)]
    if facts.unfinished_batch is not None:
        what = f"{facts.unfinished_batch}, planned {facts.planned_at}: comes again"
        rows.append(("unfinished batch", what))
    rows.append(("watermark", facts.watermark or "none"))
    return rows + [("note", note) for note in facts.notes]


def _source_lines(facts: QueryFacts) -> Iterator[str]:
    for source in facts.sources:
        yield ""
        yield f"{source_title(source.source, source.name)}:"
        yield from _offset_table(source.offsets, source.planned)


def _offset_table(
    offsets: Sequence[OffsetLine], planned: Sequence[OffsetLine] | None
) -> Iterator[str]:
    ends = {(line.topic, line.partition): line for line in planned or ()}
    starts = {(line.topic, line.partition): line for line in offsets}
    head = ("TOPIC", "PARTITION", "OFFSET", "PLANNED TO", "INCARNATION")
    rows: list[tuple[str, ...]] = [head]
    for key in sorted({**starts, **ends}):
        line: Any = starts.get(key) or ends[key]
        offset = str(starts[key].offset) if key in starts else "new"
        end = str(ends[key].offset) if key in ends else ""
        rows.append(
            (line.topic, str(line.partition), offset, end, line.incarnation or "")
        )
    if planned is None:
        rows = [(*row[:3], row[4]) for row in rows]
    yield from table(rows, indent="  ")
