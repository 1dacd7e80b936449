"""Finds the checkpoint, and its streams, that a name or a path stands for."""

from __future__ import annotations

import json
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamfactory.spark.checkpoints import (
    Place,
    QueryCheckpoint,
    Record,
    is_query_checkpoint,
    read_query,
    read_record,
)
from streamfactory.spark.checkpoints.copied import is_copied, position_store
from streamfactory.spark.pipelines.detection import pipeline_path
from streamfactory.spi import (
    Checkpoint,
    ConfigError,
    MisuseError,
    Partition,
    Position,
    PositionRefused,
    Unsupported,
)
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.places import is_file
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.checkpoints import (
    FileCheckpointStore,
    has_checkpoints,
    merged,
)
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.wiring.config.definition import StreamDefinition

    Mask = Callable[[str], str]


class NotRunYet(PositionRefused):
    """A pipeline has no position, because it has not run."""


@dataclass(frozen=True, slots=True)
class Located:
    """One checkpoint: of a query, perhaps in a pipeline's folder, or of groups."""

    folder: str
    record: Record | None = None
    """Of a pipeline's checkpoint."""
    query: QueryCheckpoint | None = None
    """None for groups."""
    groups: Mapping[str, Mapping[str, Checkpoint]] | None = None
    """By group and instance; None for queries."""
    definitions: tuple[StreamDefinition, ...] = ()
    """The streams by source, where they are known."""

    def asked(self) -> QueryCheckpoint:
        """The checkpoint of a query.

        Raises:
            Unsupported: misuse; it is one of groups.
        """
        if self.query is None:
            whose, remedy = "groups", "use `checkpoint show` or `lag`"
            if self.record is not None:
                whose = "a pipeline without Spark"
                remedy += ", and `run --reset` to begin elsewhere"
            msg = f"{self.folder} has checkpoints of {whose}, which have no batches"
            raise Unsupported(msg, remedy=remedy)
        return self.query

    def positions(self) -> tuple[Position, ...]:
        """Where the next batch of a query starts, one position for each source.

        Of a pipeline that was moved and has not run since, that is its saved start.

        Raises:
            Unsupported: misuse; it is one of groups.
            PositionRefused: permanent; no batch was planned.
        """
        if self.record is not None and self.groups is not None:
            found: tuple[Position, ...] | None = tuple(
                merged(instances) for instances in self.groups.values()
            )
            found = found or self.moved_to()
        else:
            found = self.asked().positions() or self.moved_to()
        if found is None:
            msg = f"{self.folder}: no batch was planned, so there is no position"
            # The engine of a pipeline is not known before its first batch.
            remedy = "run it first; on Spark, `checkpoint next` shows where it starts"
            raise PositionRefused(msg, remedy=remedy)
        return found

    def moved_to(self) -> tuple[Position, ...] | None:
        """The offsets at which a generation starts that has not planned a batch.

        One position for each source; None if it starts elsewhere than at offsets, or
        has begun.
        """
        record = self.record
        if record is None or record.begun:
            return None
        starts = [one.get("startingOffsets", "") for one in record.start]
        if not starts or not all(text.startswith("{") for text in starts):
            return None
        return tuple(_position(json.loads(text)) for text in starts)


def _position(topics: Mapping[str, Mapping[str, int]]) -> Position:
    """The position of the value of ``startingOffsets``."""
    return Position(
        {
            Partition(topic, int(number)): offset
            for topic, offsets in topics.items()
            for number, offset in offsets.items()
        }
    )


def locate(
    target: str, streams: Sequence[str] = (), catalogue: Catalogue | None = None
) -> Located:
    """Find a checkpoint by a pipeline's file, or by its folder.

    Args:
        target: A pipeline's TOML file, a folder or its URL, or an instance's file.
        streams: Names of the streams of its sources, in the query's order.
        catalogue: Where streams are looked up; by default that of the process.

    Raises:
        ConfigError: config; the file, or one of the streams, is not right.
        PositionRefused: permanent; there is no checkpoint, or it cannot be read.
    """
    catalogue = catalogue or Catalogue().snapshot()
    definitions = tuple(catalogue.one(stream) for stream in streams)
    target = pipeline_path(target)
    path = Path(target)
    if path.suffix == ".json" and is_file(path):
        return Located(target, groups=_instance(path), definitions=definitions)
    if not is_file(path):
        place = Place.of(target)
        if place.names() is None:
            msg = f"the folder {place.text} does not exist"
            raise ConfigError(msg, remedy="check the path")
        return replace(_look(place), definitions=definitions)
    if streams:
        msg = "--stream is for folders: the file of a pipeline names its streams"
        raise MisuseError(msg, remedy="omit it")
    folder, name, by_id = _pipeline(path, catalogue)
    place = Place.of(folder)
    if place.names() is None:
        msg = (
            f"the pipeline {name!r} has not run yet: the folder {place.text} does not "
        )
        msg += "exist"
        raise NotRunYet(msg, remedy="run it first")
    located = _look(place)
    record = located.record
    if record is None or record.pipeline != name:
        found = "a pipeline" if record is None else repr(record.pipeline)
        msg = f"{folder} is the checkpoint of {found}, not of {name!r}"
        raise PositionRefused(msg, remedy="name the folder that the pipeline names")
    own = tuple(by_id.values())
    if record.names:
        # In the order of the query: the file's is another one.
        ids = [scan.partition("#")[0] for scan in record.names]
        missing = [one for one in ids if one not in by_id]
        if missing:
            msg = f"{folder} has the source {missing[0]!r}, and {path} has not"
            raise PositionRefused(msg, remedy="keep the ids of sources")
        own = tuple(by_id[one] for one in ids)
    if located.groups is None and not located.asked().planned:
        pairs = zip(own, record.start, strict=False)
        own = tuple(one.with_overrides(start) for one, start in pairs)
    return replace(located, definitions=own)


def locate_kept(
    target: str | None, server: str | None, streams: Sequence[str] = ()
) -> Located:
    """As `locate`, or groups whose checkpoints the server of a stream keeps.

    Args:
        target: As for `locate`; with a server, a group of it, or None for all.
        server: A stream on it; None for files.
        streams: As for `locate`.

    Raises:
        MisuseError: misuse; the arguments do not go together.
        PositionRefused: permanent; the group has no checkpoint.
        Unsupported: misuse; the stream's type keeps no checkpoints.
    """
    if server is None:
        if target is None:
            msg = "no checkpoint is named"
            raise MisuseError(msg, remedy="give a file, a folder, or --server")
        return locate(target, streams)
    if streams:
        msg = "--stream is for folders: --server names the stream"
        raise MisuseError(msg, remedy="omit it")
    definition = Catalogue().one(server)
    with open_admin(definition) as admin:
        store = admin.checkpoints()
        names = store.groups() if target is None else [target]
        groups = {name: store.load(name) for name in names}
    if target is not None and not groups[target]:
        msg = f"group {target!r} has no checkpoint on the server of stream {server!r}"
        raise PositionRefused(msg, remedy="`checkpoint show --server` lists the groups")
    return Located(f"server of {server}", groups=groups, definitions=(definition,))


def _pipeline(
    path: Path, catalogue: Catalogue
) -> tuple[str, str, dict[str, StreamDefinition]]:
    """The checkpoint of a pipeline's file, its name, and its sources by id."""
    from streamfactory.spark.pipelines.definition import read_pipeline

    draft = read_pipeline(path, catalogue)
    if draft.pipeline is None:
        msg = f"{path} is not a valid pipeline"
        raise ConfigError(msg, problems=draft.problems)
    pipeline = draft.pipeline
    sources = {one.id: one.stream for one in pipeline.sources}
    return pipeline.checkpoint, pipeline.name, sources


def _look(place: Place) -> Located:
    record = read_record(place)
    if record is not None:
        generation = place.child(str(record.generation))
        if is_copied(generation):
            store = position_store(generation)
            saved = {name: store.load(name) for name in store.groups()}
            return Located(place.text, record, groups=saved)
        begun = is_query_checkpoint(generation)
        if record.begun and not begun:
            msg = f"the checkpoint in {generation.text} is missing or empty"
            remedy = "restore it from a backup, or reset the pipeline"
            raise PositionRefused(msg, remedy=remedy)
        unplanned = QueryCheckpoint(generation, None, (), (), ())
        query = read_query(generation, of_pipeline=True) if begun else unplanned
        return Located(place.text, record, replace(query, names=record.names))
    groups = None if is_query_checkpoint(place) else _groups(Path(place.text))
    if groups:
        return Located(place.text, groups=groups)
    return Located(place.text, query=read_query(place))


def _groups(folder: Path) -> dict[str, Mapping[str, Checkpoint]]:
    """The groups of a folder, which is a store's, or that of one group."""
    if has_checkpoints(folder):
        return {folder.name: FileCheckpointStore(folder.parent).load(folder.name)}
    store = FileCheckpointStore(folder)
    try:
        names = store.groups()
    except PositionRefused:  # not a local folder: the reader of queries reports it
        return {}
    return {name: store.load(name) for name in names}


def _instance(path: Path) -> dict[str, Mapping[str, Checkpoint]]:
    """One instance of a group, by its file."""
    folder = path.absolute().parent
    found = FileCheckpointStore(folder.parent).load(folder.name)
    return {folder.name: {path.stem: found[path.stem]}}


@contextmanager
def opened(
    located: Located,
    wanted: int,
    add_mask: Callable[[Mask], object],
    *,
    quiet: bool = False,
) -> Iterator[list[Source]]:
    """The streams of a checkpoint, as Spark would open them.

    Args:
        located: The checkpoint.
        wanted: The number of its sources.
        add_mask: Called with what masks the secrets of each stream in a text.
        quiet: As of `load`.

    Raises:
        MisuseError: misuse; they are not known, or not as many.
        ConfigError: config; one of them is not right.
    """
    found = len(located.definitions)
    if found != wanted:
        msg = f"{located.folder} has {wanted} sources, and {found} streams are named"
        remedy = "name each with --stream, in the order of the query"
        raise MisuseError(msg, remedy=remedy)
    with ExitStack() as stack:
        sources = []
        for definition in located.definitions:
            source = Source(load(definition, "spark", quiet=quiet))
            stack.callback(source.close)
            add_mask(source.config.mask)
            sources.append(source)
        yield sources
