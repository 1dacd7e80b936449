"""The checkpoint of a pipeline: a record, and a folder per generation for Spark.

``pipeline.json`` contains the name of the pipeline, the current generation and the
applied overrides. A generation is the checkpoint of one Spark query. A reset starts a
new generation; the old ones are kept, so that a reset can be undone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final, Self, final

from streamfactory.spark.checkpoints.begins import read_begin, save_begin
from streamfactory.spark.checkpoints.copied import is_copied, saved_position
from streamfactory.spark.checkpoints.places import Place
from streamfactory.spark.checkpoints.reading import is_query_checkpoint, read_query
from streamfactory.spark.checkpoints.record import (
    RECORD,
    Change,
    Record,
    read_record,
)
from streamfactory.spark.checkpoints.resolving import (
    Memory,
    Reset,
    check_label,
    resolve,
)
from streamfactory.spark.checkpoints.starting import (
    check_streams,
    identity_of,
    same_stream,
    start_of_one,
    start_options,
)
from streamfactory.spark.checkpoints.written import Ledger, ledger_folder
from streamfactory.spi import PositionRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spark.checkpoints.resolving import Resolution
    from streamfactory.spi import Position
    from streamfactory.wiring.reading.source import Source


class Engine(Enum):
    """What runs a pipeline: its offsets and its identity in sinks differ."""

    SPARK = "the engine spark, in micro-batches"
    REAL_TIME = "the engine spark, in real time"
    DATAFUSION = "the engine datafusion"


_SET: Final = {
    Engine.SPARK: 'engine = "spark" and another trigger than real-time',
    Engine.REAL_TIME: 'engine = "spark" and trigger = "real-time"',
    Engine.DATAFUSION: 'engine = "datafusion"',
}
_OWN_FOLDER = "give each pipeline a checkpoint folder of its own"


@final
@dataclass(frozen=True, slots=True)
class PipelineCheckpoint:
    """A pipeline's checkpoint, opened for a run. Keeps no resources open."""

    folder: str
    """Value of Spark's option ``checkpointLocation``."""
    generation: int
    start: dict[str, dict[str, str]] | None
    """Start options by source, if nothing is planned yet and a start is given. None to
    use the options of the stream."""
    why: str
    """The reason for this start."""
    _place: Place
    planned: bool = False
    """Whether a batch was planned: a given start has no effect any more."""

    @classmethod
    def open(
        cls,
        folder: str,
        pipeline: str,
        sources: Mapping[str, Source],
        *,
        reset: str | None = None,
        ignore: str | None = None,
        engine: Engine = Engine.SPARK,
    ) -> Self:
        """Decide where a run starts, and save the decision.

        After a crash at any point the next call continues: the record contains the
        start of a generation until Spark has planned its first batch.

        Args:
            folder: A path or URL; created if missing.
            pipeline: The name of the pipeline.
            sources: Its streams, in the order of the query. They are queried only if a
                new ``reset`` names offsets or a time.
            reset: Value of ``--reset``.
            ignore: Value of ``--ignore-checkpoint``.
            engine: What runs the pipeline.

        Raises:
            PositionRefused: permanent; the folder belongs to another pipeline or other
                streams, is corrupt or newer, or its position is missing.
            MisuseError: misuse; an override is invalid or cannot be applied.
            DataLossError: data_loss; ``reset`` names offsets that the stream lacks.
            CheckpointFailed: permanent; the record cannot be saved.
        """
        place = Place.of(folder)
        wanted = None if reset is None else Reset.parse(reset)
        label = None if ignore is None else check_label("--ignore-checkpoint", ignore)
        record = read_record(place)
        _check_folder(place, pipeline, record)
        memory, planned = None, False
        if record is not None:
            memory, planned = _earlier_runs(place, record, sources, engine)
        resolution = resolve(memory, wanted, label)
        why = resolution.why
        if record is None or resolution.new_generation:
            start = _starts(place, record, resolution.start, memory, sources)
            after = _next(record, pipeline, sources, start, resolution)
            planned = False
        else:
            after = replace(record, begun=record.begun or planned)
            if not planned and record.history:
                why = f"nothing was planned yet: {record.history[-1].why}"
        if after != record:
            place.replace(RECORD, after.to_json().encode())
        given = dict(zip(sources, after.start, strict=True))
        return cls(
            place.child(str(after.generation)).text,
            after.generation,
            given if any(after.start) and not planned else None,
            why,
            place,
            planned,
        )

    @property
    def begin(self) -> Position:
        """Where this generation began; empty if it is not recorded, see `save_begin`.

        Raises:
            PositionRefused: permanent; the record of it is corrupt or newer.
        """
        return read_begin(self._generation)

    def save_begin(self, begin: Position) -> None:
        """Record where this generation began, with incarnations.

        Raises:
            CheckpointFailed: permanent; it cannot be saved.
            PositionRefused: permanent; an earlier record of it is corrupt or newer.
        """
        save_begin(self._generation, begin)

    @property
    def _generation(self) -> Place:
        return self._place.child(str(self.generation))

    def pin(self, starts: Mapping[str, dict[str, str]]) -> Self:
        """Save where a generation starts, before its first batch is planned.

        Args:
            starts: Start options by source, in the order of the query.

        Raises:
            CheckpointFailed: permanent; the record cannot be saved.
            PositionRefused: permanent; the record is missing, or of another run.
        """
        record = self._own_record()
        after = replace(record, start=tuple(starts.values()))
        self._place.replace(RECORD, after.to_json().encode())
        return replace(self, start=dict(starts))

    def ledger(self, sink: str, *, dead_letters: bool = False) -> Ledger:
        """Where the commits of a sink are recorded."""
        folder = ledger_folder(self._place, self.generation).text
        return Ledger(folder, sink, dead_letters)

    def note_begun(self) -> None:
        """Record that a batch was committed; call it after the first one.

        From then on, a generation without a position is refused. Otherwise it would
        start again and write rows twice.

        Raises:
            CheckpointFailed: permanent; the record cannot be saved.
            PositionRefused: permanent; the record is missing, or of another run.
        """
        record = self._own_record()
        if not record.begun:
            after = replace(record, begun=True)
            self._place.replace(RECORD, after.to_json().encode())

    def _own_record(self) -> Record:
        record = read_record(self._place)
        if record is None or record.generation != self.generation:
            msg = f"{self._place.text}/{RECORD} was changed by another run"
            raise PositionRefused(msg, remedy="run a pipeline only once at a time")
        return record


def _check_folder(place: Place, pipeline: str, record: Record | None) -> None:
    """Refuse the folder of another pipeline."""
    names = [name for name in place.names() or () if not name.startswith(".")]
    if record is None:
        if is_query_checkpoint(place):
            msg = f"{place.text} is the checkpoint of a query, not of a pipeline"
            raise PositionRefused(msg, remedy=_OWN_FOLDER)
        if names:
            msg = f"{place.text} has no {RECORD}, and is not empty: it has {names[0]}"
            raise PositionRefused(
                msg, remedy="restore the file, or name another folder"
            )
        return
    if record.pipeline != pipeline:
        msg = f"{place.text} is the checkpoint of the pipeline {record.pipeline!r}, "
        msg += f"not of {pipeline!r}"
        raise PositionRefused(msg, remedy=_OWN_FOLDER)
    newest = max(_generations(names), default=0)
    if newest > record.generation:
        msg = f"{place.text} has a generation {newest}, and {RECORD} has "
        msg += f"{record.generation}: it is an old copy"
        raise PositionRefused(msg, remedy="restore the newest one")


def _generations(names: Sequence[str]) -> list[int]:
    return [int(name) for name in names if name.isascii() and name.isdecimal()]


def _earlier_runs(
    place: Place, record: Record, sources: Mapping[str, Source], engine: Engine
) -> tuple[Memory, bool]:
    """The state of earlier runs, and whether they have planned a batch.

    An unusable position is refused only if it is needed.
    """
    refusal, planned = None, False
    try:
        _check_sources(place, record, sources)
        _check_engine(place, record, engine)
        planned = _check_reached(place, record, list(sources.values()))
    except PositionRefused as error:
        refusal = error
    return Memory(refusal, record.reset, record.ignored), planned


def _starts(
    place: Place,
    record: Record | None,
    start: Reset | None,
    memory: Memory | None,
    sources: Mapping[str, Source],
) -> tuple[dict[str, str], ...]:
    """The start options of each source in a new generation."""
    if start is None or start.source is None:
        return start_options(start, sources)
    if memory is not None and memory.refusal is not None:
        raise memory.refusal  # the other sources continue from this position
    reached = _reached(place, record, sources)
    pending = {}
    if record is not None and not reached:
        pending = dict(zip(sources, record.start, strict=True))
    return start_of_one(start, sources, reached, pending)


def _reached(
    place: Place, record: Record | None, sources: Mapping[str, Source]
) -> dict[str, Position]:
    """The next position of each source; none before the first batch.

    Raises:
        PositionRefused: permanent; a batch is planned and not committed: sinks may have
            it, and take its rows again from another query.
    """
    generation = None if record is None else place.child(str(record.generation))
    if generation is None or not is_query_checkpoint(generation):
        return {}
    query = read_query(generation, of_pipeline=True)
    if query.unfinished is not None:
        msg = f"{generation.text}: batch {query.unfinished} is planned and not "
        msg += "committed: sinks may have its rows"
        remedy = "run the pipeline without --reset once, or reset all sources"
        raise PositionRefused(msg, remedy=remedy)
    reached = query.reached()
    if reached is None:
        return {}
    ends = [source.position for source in reached.sources]
    return dict(zip(sources, ends, strict=True))


def _names(sources: Mapping[str, Source]) -> tuple[str, ...]:
    """Ids of several streams, by which a checkpoint names them; of one, none."""
    return tuple(sources) if len(set(sources.values())) > 1 else ()


def _check_sources(place: Place, record: Record, sources: Mapping[str, Source]) -> None:
    now = [identity_of(source.config) for source in sources.values()]
    remedy = f"{_OWN_FOLDER}, or begin again with --reset"
    names = _names(sources)
    if record.names != names and record.names and names:
        msg = f"{place.text} is of the sources {', '.join(record.names)}, the query of "
        msg += f"the pipeline reads {', '.join(names)}"
        raise PositionRefused(
            msg, remedy=f"keep ids and the order of sources; or {remedy}"
        )
    if len(now) != len(record.sources):
        msg = f"{place.text} is of {len(record.sources)} source streams, the pipeline "
        msg += f"has {len(now)}"
        raise PositionRefused(msg, remedy=remedy)
    for before, after in zip(record.sources, now, strict=True):
        if not same_stream(before, after):
            msg = f"{place.text} is of the stream {before}, the pipeline reads {after}"
            raise PositionRefused(msg, remedy=remedy)


def _check_engine(place: Place, record: Record, engine: Engine) -> None:
    """Refuse a generation of another engine, whose sinks have its rows."""
    generation = place.child(str(record.generation))
    found = _engine_of(generation, engine)
    if found is engine:
        return
    msg = f"{generation.text} was written by {found.value}"
    if Engine.DATAFUSION in (found, engine):
        msg += ", which has an identity of its own in the sinks"
    else:
        msg += ": the other mode does not read its offsets"
    remedy = f"set {_SET[found]}; or begin again with --reset"
    raise PositionRefused(msg, remedy=remedy)


def _engine_of(generation: Place, wanted: Engine) -> Engine:
    """What ran a generation; the wanted one where that could be it."""
    if is_copied(generation):
        return Engine.DATAFUSION
    if not is_query_checkpoint(generation):
        return wanted
    query = read_query(generation, of_pipeline=True)
    if query.planned:
        last = query.batch(query.planned[-1])
        real_time = any(one.real_time for one in last.sources)
        return Engine.REAL_TIME if real_time else Engine.SPARK
    return Engine.SPARK if wanted is Engine.DATAFUSION else wanted


def _check_reached(place: Place, record: Record, sources: Sequence[Source]) -> bool:
    """Whether a batch is planned; refuses a position that cannot be continued."""
    generation = place.child(str(record.generation))
    saved = saved_position(generation)
    if saved is not None:
        for source in sources:
            source.metadata.check_position(saved, generation.text)
        return True
    query = None
    if is_query_checkpoint(generation):
        query = read_query(generation, of_pipeline=True)
    if query is None or not query.planned:
        if record.begun:
            msg = (
                f"the position in {generation.text} is missing, although a batch was "
                "committed"
            )
            raise PositionRefused(msg, remedy="restore it, or begin again with --reset")
        return False
    for number in {query.planned[-1], query.last}:
        if number is not None:
            named = replace(query, names=record.names)
            check_streams(generation.text, named.batch(number), sources)
    return True


def _next(
    record: Record | None,
    pipeline: str,
    sources: Mapping[str, Source],
    start: tuple[dict[str, str], ...],
    resolution: Resolution,
) -> Record:
    """The record of the next generation."""
    generation = 1 if record is None else record.generation + 1
    memory = resolution.memory
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    change = Change(generation, now, resolution.why)
    return Record(
        pipeline=pipeline,
        sources=tuple(identity_of(source.config) for source in sources.values()),
        generation=generation,
        begun=False,
        start=start,
        reset=memory.reset,
        ignored=memory.ignored,
        history=(*(() if record is None else record.history), change),
        names=_names(sources),
    )
