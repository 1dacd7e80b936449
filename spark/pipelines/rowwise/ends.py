"""The ends of a pipeline without Spark, and the copy between them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, final

from streamfactory.spark.checkpoints import Place, read_record
from streamfactory.spark.checkpoints.copied import read_identity
from streamfactory.spark.pipelines.overriding import Overrides, PipelineFiles
from streamfactory.spark.pipelines.rowwise.planning import Plan, plan_of
from streamfactory.spark.pipelines.rowwise.steps import Steps, Tally
from streamfactory.spi import MisuseError, StreamError
from streamfactory.transfer.copying import Copy
from streamfactory.transfer.skipping import (
    backfill_writer,
    find_skipped,
    open_ranges,
)
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.controls.control import Control
from streamfactory.wiring.controls.states import pipeline_job
from streamfactory.wiring.reading.skipped_ranges import SkippedRanges
from streamfactory.wiring.receiving.embedded import open_source
from streamfactory.wiring.writing.creating import ensure_topic
from streamfactory.wiring.writing.cycles import refuse_cycle
from streamfactory.wiring.writing.diverting import open_letters
from streamfactory.wiring.writing.sink import Sink

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.spark.pipelines.model import Draft, Pipeline
    from streamfactory.spi import Skipped
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.reading.source import Source

_DEAD_LETTERS: Final = {"decode.on.error": "dead-letter"}


def source_of(pipeline: Pipeline) -> StreamDefinition:
    """The stream that a pipeline reads."""
    stream = pipeline.sources[0].stream
    if pipeline.dead_letters is None:
        return stream
    return stream.with_overrides(_DEAD_LETTERS)


@final
@dataclass(frozen=True, slots=True)
class Ends:
    """An open source, and the open sinks of what the steps make of it."""

    source: Source
    plan: Plan
    sinks: dict[str, tuple[Sink, str]]
    """By name, with the id whose rows each takes."""
    letters: Sink | None

    @classmethod
    def open(cls, draft: Draft, source: Source, stack: ExitStack) -> Self:
        """Open the sinks; their topics exist when this returns.

        Args:
            draft: A pipeline without problems.
            source: Its source.
            stack: Closes the sinks.

        Raises:
            ConfigError: config; a step and the columns of the source do not agree.
            StreamError: As the sinks raise: rows do not fit one, for example.
        """
        pipeline = draft.pipeline
        assert pipeline is not None
        plan = plan_of(draft, source.schema)
        sinks = dict[str, tuple[Sink, str]]()
        for one in pipeline.sinks:
            sink = Sink(load(one.stream, "write"))
            stack.callback(sink.close)
            refuse_cycle(source, sink.configured)
            schema = plan.schemas[one.rows]
            try:
                ensure_topic(sink, schema)
                sink.check(schema)
            except StreamError as error:
                error.what = f"sink {one.name!r}: {error.what}"
                raise
            sinks[one.name] = sink, one.rows
        letters = None
        if pipeline.dead_letters is not None:
            letters = open_letters(pipeline.dead_letters.stream, of=source.config.name)
            stack.callback(letters.close)
        return cls(source, plan, sinks, letters)

    def copy(
        self, identity: str, tally: Tally, *, backfill: bool = False, **how: Any
    ) -> Copy:
        """The copy into the first sink, which writes the others beside it.

        Args:
            identity: Writer ids begin with it.
            tally: Counts what is read.
            backfill: Whether it reads what the copy without this has skipped.
            how: Further arguments of `Copy`.
        """
        writers = {name: f"{identity}/{name}" for name in self.sinks}
        first, *beside = (sink for sink, _ in self.sinks.values())
        own = next(iter(writers.values()))
        if backfill:
            find = partial(find_skipped, first, own)
            how["backfill"] = partial(SkippedRanges, self.source, find=find)
            writers = {name: backfill_writer(one) for name, one in writers.items()}
        return Copy(
            self.source,
            first,
            next(iter(writers.values())),
            letters=self.letters,
            convert=lambda _: Steps(self.source, self.plan, self.sinks, writers, tally),
            beside=beside,
            default="latest",
            **how,
        )


def open_backfill(path: Path, *, allow_class_paths: bool = False) -> Copy:
    """Open what reads the ranges that a pipeline has skipped to be on time.

    Args:
        path: The pipeline's file.
        allow_class_paths: Whether configurations may name Python objects.

    Raises:
        MisuseError: misuse; the pipeline runs on Spark, or has not run.
        ConfigError: config; with all problems of the pipeline.
        StreamError: As either end raises.
    """
    draft, identity = _that_ran(path, allow_class_paths=allow_class_paths)
    pipeline = draft.pipeline
    assert pipeline is not None
    with ExitStack() as unless_made:
        source = open_source(load(source_of(pipeline), "read"), aside=True)
        unless_made.callback(source.close)
        ends = Ends.open(draft, source, unless_made)
        job = backfill_writer(pipeline_job(pipeline.name))
        copy = ends.copy(identity, Tally(), backfill=True, control=Control(job))
        unless_made.pop_all()
    return copy


def skipped_by(
    path: Path, *, allow_class_paths: bool = False
) -> tuple[str, tuple[Skipped, ...]]:
    """The writer id of a pipeline, and the ranges that a backfill has still to read.

    Raises:
        StreamError: As `open_backfill`.
    """
    draft, identity = _that_ran(path, allow_class_paths=allow_class_paths)
    assert draft.pipeline is not None
    first = draft.pipeline.sinks[0]
    writer = f"{identity}/{first.name}"
    sink = Sink(load(first.stream, "write"))
    try:
        return writer, open_ranges(sink, writer)
    finally:
        sink.close()


def _that_ran(path: Path, *, allow_class_paths: bool) -> tuple[Draft, str]:
    """A pipeline with the identity of its last run."""
    over = Overrides(allow_class_paths=allow_class_paths)
    files = PipelineFiles.read([path], over)
    files.refuse()
    [draft] = files.drafts
    assert draft.pipeline is not None
    place = Place.of(draft.pipeline.checkpoint)
    record = read_record(place)
    own = None
    if record is not None:
        own = read_identity(
            place.child(str(record.generation)), draft.pipeline.sinks[0].name
        )
    if own is None:
        msg = f"the pipeline {draft.name!r} has not run without Spark: it has skipped "
        raise MisuseError(msg + "nothing", remedy="run it first")
    return draft, own
