"""The checkpoint of a pipeline: a record of ours, and folders for Spark.

``pipeline.json`` says whose checkpoint it is, which generation holds, and which
overrides were applied. A generation is the checkpoint of one Spark query. A reset
begins another one; the old one stays until somebody removes it: it is the way back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self, final

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
    start_options,
)
from streamfactory.spi import PositionRefused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.spark.checkpoints.resolving import Resolution
    from streamfactory.wiring.reading.source import Source

_OWN_FOLDER = "give each pipeline a checkpoint folder of its own"


@final
@dataclass(frozen=True, slots=True)
class PipelineCheckpoint:
    """A pipeline's checkpoint, opened for a run. Holds nothing open."""

    folder: str
    """Spark's: the option ``checkpointLocation``."""
    generation: int
    start: dict[str, dict[str, str]] | None
    """Options by source, where nothing is planned yet and something says where to
    begin; None leaves it to the options of the stream."""
    why: str
    """Why it begins there, in words."""
    _place: Place

    @classmethod
    def open(
        cls,
        folder: str,
        pipeline: str,
        sources: Mapping[str, Source],
        *,
        reset: str | None = None,
        ignore: str | None = None,
    ) -> Self:
        """Decide where a run begins, and write down what was decided.

        Killed at any moment, the next call goes on from there: the record holds where a
        generation begins until Spark has planned its first batch.

        Args:
            folder: A path or URL; it is made.
            pipeline: The name of the pipeline.
            sources: Its streams in their order in the query. They are asked only
                where a fresh ``reset`` names offsets or a time.
            reset: ``--reset``, as written.
            ignore: ``--ignore-checkpoint``, as written.

        Raises:
            PositionRefused: permanent; the folder is another pipeline's, of other
                streams, corrupt or newer; or its position is missing.
            MisuseError: misuse; an override cannot be understood, or applied here.
            DataLossError: data_loss; ``reset`` names offsets that the stream has not.
            CheckpointFailed: permanent; the record cannot be saved.
        """
        place = Place.of(folder)
        wanted = None if reset is None else Reset.parse(reset)
        label = None if ignore is None else check_label("--ignore-checkpoint", ignore)
        record = read_record(place)
        _check_folder(place, pipeline, record)
        memory, planned = None, False
        if record is not None:
            memory, planned = _look(place, record, list(sources.values()))
        resolution = resolve(memory, wanted, label)
        why = resolution.why
        if record is None or resolution.anew:
            start = start_options(resolution.start, sources)
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
        )

    def note_begun(self) -> None:
        """Write down that a batch was committed: call it after the first one.

        From then on a generation without a position is refused, where it would begin
        again otherwise, and write twice what it has written.

        Raises:
            CheckpointFailed: permanent; the record cannot be saved.
            PositionRefused: permanent; the record is gone, or another run's.
        """
        record = read_record(self._place)
        if record is None or record.generation != self.generation:
            msg = f"{self._place.text}/{RECORD} was changed by another run"
            raise PositionRefused(msg, remedy="one run of a pipeline at a time")
        if not record.begun:
            after = replace(record, begun=True)
            self._place.replace(RECORD, after.to_json().encode())


def _check_folder(place: Place, pipeline: str, record: Record | None) -> None:
    """Refuse a folder that is not this pipeline's."""
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
        msg = f"{place.text} has a generation {newest}, and {RECORD} knows of "
        msg += f"{record.generation}: it is an old copy"
        raise PositionRefused(msg, remedy="restore the newest one")


def _generations(names: Sequence[str]) -> list[int]:
    return [int(name) for name in names if name.isascii() and name.isdecimal()]


def _look(
    place: Place, record: Record, sources: Sequence[Source]
) -> tuple[Memory, bool]:
    """What the runs before have left, and whether they have planned a batch.

    A position that cannot be used is refused only if it is needed.
    """
    refusal, planned = None, False
    try:
        _check_sources(place, record, sources)
        planned = _check_reached(place, record, sources)
    except PositionRefused as error:
        refusal = error
    return Memory(refusal, record.reset, record.ignored), planned


def _check_sources(place: Place, record: Record, sources: Sequence[Source]) -> None:
    now = [identity_of(source.config) for source in sources]
    remedy = f"{_OWN_FOLDER}, or begin anew with --reset"
    if len(now) != len(record.sources):
        msg = f"{place.text} is of {len(record.sources)} source streams, the pipeline "
        msg += f"has {len(now)}"
        raise PositionRefused(msg, remedy=remedy)
    for before, after in zip(record.sources, now, strict=True):
        if not same_stream(before, after):
            msg = f"{place.text} is of the stream {before}, the pipeline reads {after}"
            raise PositionRefused(msg, remedy=remedy)


def _check_reached(place: Place, record: Record, sources: Sequence[Source]) -> bool:
    """Whether a batch is planned; refuses a position that cannot be gone on from."""
    generation = place.child(str(record.generation))
    query = read_query(generation) if is_query_checkpoint(generation) else None
    if query is None or not query.planned:
        if record.begun:
            msg = f"{generation.text} had a position, and has none"
            raise PositionRefused(msg, remedy="restore it, or begin anew with --reset")
        return False
    for number in {query.planned[-1], query.last}:
        if number is not None:
            check_streams(generation.text, query.batch(number), sources)
    return True


def _next(
    record: Record | None,
    pipeline: str,
    sources: Mapping[str, Source],
    start: tuple[dict[str, str], ...],
    resolution: Resolution,
) -> Record:
    """The record of another generation."""
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
    )
