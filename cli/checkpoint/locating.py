"""From what a user names to a checkpoint and its streams."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamfactory.cli.parameters import one_definition
from streamfactory.spark.checkpoints import (
    Place,
    QueryCheckpoint,
    Record,
    is_query_checkpoint,
    read_query,
    read_record,
)
from streamfactory.spi import (
    Checkpoint,
    ConfigError,
    MisuseError,
    Position,
    PositionRefused,
    Unsupported,
)
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.config.definition import StreamDefinition

target_argument = click.argument("target", metavar="FILE-or-DIR")

kept_target_argument = click.argument(
    "target", metavar="[FILE-or-DIR-or-GROUP]", required=False
)

server_option = click.option(
    "--server",
    metavar="NAME-OR-FILE",
    help="A stream whose server keeps the checkpoints of groups: GROUP is one of them; "
    "without it, all that may be read.",
)

streams_option = click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="NAME-OR-FILE",
    help="A stream that the query reads, in the order of its sources; the file of a "
    "pipeline names them itself.",
)


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
            msg = f"{self.folder} has checkpoints of groups, which have no batches"
            raise Unsupported(msg, remedy="`checkpoint show` and `lag` tell of them")
        return self.query


def locate(target: str, streams: Sequence[str] = ()) -> Located:
    """Find what a user names: a pipeline's file, or a folder of checkpoints.

    Args:
        target: A pipeline's TOML file, a folder or its URL, or an instance's file.
        streams: Names of the streams of its sources, in the query's order.

    Raises:
        ConfigError: config; the file, or one of the streams, is not right.
        PositionRefused: permanent; there is no checkpoint, or it cannot be read.
    """
    definitions = tuple(one_definition(stream, {}) for stream in streams)
    path = Path(target)
    if path.suffix == ".json" and path.is_file():
        return Located(target, groups=_instance(path), definitions=definitions)
    if not path.is_file():
        place = Place.of(target)
        if place.names() is None:
            msg = f"there is no folder {place.text}"
            raise ConfigError(msg, remedy="check the path")
        return replace(_look(place), definitions=definitions)
    if streams:
        msg = "--stream is for folders: the file of a pipeline names its streams"
        raise MisuseError(msg, remedy="leave it out")
    folder, name, own = _pipeline(path)
    place = Place.of(folder)
    if place.names() is None:
        msg = f"the pipeline {name!r} has not run yet: there is no folder {place.text}"
        raise PositionRefused(msg, remedy="run it first")
    located = _look(place)
    record = located.record
    if record is None or record.pipeline != name:
        found = "a pipeline" if record is None else repr(record.pipeline)
        msg = f"{folder} is the checkpoint of {found}, not of {name!r}"
        raise PositionRefused(msg, remedy="name the folder that the pipeline names")
    if not located.asked().planned:
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
        raise MisuseError(msg, remedy="leave it out")
    definition = one_definition(server, {})
    with open_admin(definition) as admin:
        store = admin.checkpoints()
        names = store.groups() if target is None else [target]
        groups = {name: store.load(name) for name in names}
    if target is not None and not groups[target]:
        msg = f"group {target!r} has no checkpoint on the server of stream {server!r}"
        raise PositionRefused(msg, remedy="`checkpoint show --server` lists the groups")
    return Located(f"server of {server}", groups=groups, definitions=(definition,))


def _pipeline(path: Path) -> tuple[str, str, tuple[StreamDefinition, ...]]:
    """The checkpoint of a pipeline's file, its name, and the streams it reads."""
    from streamfactory.spark.pipelines.definition import read_pipeline

    draft = read_pipeline(path)
    if draft.pipeline is None:
        msg = f"{path} is no pipeline that could be run"
        raise ConfigError(msg, problems=draft.problems)
    pipeline = draft.pipeline
    return pipeline.checkpoint, pipeline.name, (pipeline.source,)


def _look(place: Place) -> Located:
    record = read_record(place)
    if record is not None:
        generation = place.child(str(record.generation))
        begun = is_query_checkpoint(generation)
        if record.begun and not begun:
            msg = f"{generation.text} had a position, and has none"
            raise PositionRefused(msg)
        unplanned = QueryCheckpoint(generation, None, (), (), ())
        return Located(
            place.text, record, read_query(generation) if begun else unplanned
        )
    groups = None if is_query_checkpoint(place) else _groups(Path(place.text))
    if groups:
        return Located(place.text, groups=groups)
    return Located(place.text, query=read_query(place))


def _groups(folder: Path) -> dict[str, Mapping[str, Checkpoint]]:
    """The groups of a folder, which is a store's, or that of one group."""
    if _has_checkpoints(folder):
        return {folder.name: FileCheckpointStore(folder.parent).load(folder.name)}
    try:
        below = sorted(path.name for path in folder.iterdir() if _has_checkpoints(path))
    except OSError:  # what is no folder is told of by whoever reads it
        return {}
    store = FileCheckpointStore(folder)
    return {name: store.load(name) for name in below}


def _instance(path: Path) -> dict[str, Mapping[str, Checkpoint]]:
    """One instance of a group, by its file."""
    folder = path.absolute().parent
    found = FileCheckpointStore(folder.parent).load(folder.name)
    return {folder.name: {path.stem: found[path.stem]}}


def _has_checkpoints(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    names = os.listdir(folder)  # noqa: PTH208 - a path's own way hides errors
    return any(n.endswith(".json") and not n.startswith(".") for n in names)


def merged(instances: Mapping[str, Checkpoint]) -> Position:
    """The position of a group: of two that have one partition, the later one holds."""
    position = Position()
    for one in sorted(instances.values(), key=lambda c: c.generation):
        position = position.merge(one.position)
    return position


@contextmanager
def opened(printer: Printer, located: Located, wanted: int) -> Iterator[list[Source]]:
    """The streams of a checkpoint, as Spark would open them.

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
            source = Source(load(definition, "spark"))
            stack.callback(source.close)
            sources.append(source)
        printer.mask = _masking(sources)
        yield sources


def _masking(sources: Sequence[Source]) -> Callable[[str], str]:
    def mask(text: str) -> str:
        for source in sources:
            text = source.config.mask(text)
        return text

    return mask
