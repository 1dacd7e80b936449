"""Streams, pipelines and groups that have a position, found by name."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamfactory.spark.locating import locate, opened
from streamfactory.spark.pipelines.detection import PIPELINES, is_pipeline
from streamfactory.spi import (
    MisuseError,
    StreamError,
    UnknownStream,
    Unsupported,
)
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.places import is_folder
from streamfactory.wiring.core.plain import total
from streamfactory.wiring.reading.lag import measure_lag
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.positions import GroupPositions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import ExitStack

    from streamfactory.spark.locating import Located, Mask
    from streamfactory.spi import Position
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.reading.lag import PartitionLag

    AddMask = Callable[[Mask], object]

log = logging.getLogger("streamfactory")


@dataclass(frozen=True, slots=True)
class Reading:
    """A position in an open stream: of a pipeline, or of a group."""

    kind: str
    """``pipeline`` or ``group``."""
    name: str
    position: Position
    source: Source


@dataclass(frozen=True, slots=True)
class TargetLag:
    """The lag of one position of a target."""

    target: str
    kind: str
    """``pipeline`` or ``group``."""
    name: str
    stream: str
    position: Position
    behind: int | None
    """Of all partitions; None if one of them is unknown."""
    commits: int | None
    """The same in commits of tables; None where one of the partitions has none."""
    partitions: tuple[PartitionLag, ...]


def target_lags(
    stack: ExitStack,
    target: str,
    add_mask: AddMask,
    catalogue: Catalogue,
    *,
    quiet: bool = False,
) -> list[TargetLag]:
    """Measure the lag of all positions of a target; see `readings`.

    Raises:
        StreamError: As `readings` and `measure_lag`.
    """
    found = readings(stack, target, add_mask, catalogue, quiet=quiet)
    return [_measured(target, one) for one in found]


def group_lags(
    stack: ExitStack,
    definition: StreamDefinition,
    add_mask: AddMask,
    *,
    quiet: bool = False,
) -> list[TargetLag]:
    """Measure the lag of all groups of one stream.

    Raises:
        Unsupported: misuse; the groups of this stream store no positions.
        StreamError: As `measure_lag`.
    """
    found = _groups(stack, definition, [], add_mask, quiet=quiet)
    return [_measured(definition.name, one) for one in found]


def _measured(target: str, one: Reading) -> TargetLag:
    lags = tuple(measure_lag(one.position, one.source))
    return TargetLag(
        target,
        one.kind,
        one.name,
        one.source.config.name,
        one.position,
        total(lag.behind for lag in lags),
        total(lag.commits for lag in lags),
        lags,
    )


def pipeline_files() -> list[Path]:
    """The pipelines in the folder beside the catalogue's."""
    folder = Catalogue().folder.parent / PIPELINES
    found = sorted(folder.glob("*.toml")) if is_folder(folder) else []
    return [path for path in found if is_pipeline(path)]


def all_targets(catalogue: Catalogue) -> list[str]:
    """The streams of the catalogue, and the pipelines in the folder beside it."""
    return [*catalogue.names(), *map(str, pipeline_files())]


def readings(
    stack: ExitStack,
    target: str,
    add_mask: AddMask,
    catalogue: Catalogue,
    *,
    quiet: bool = False,
) -> Iterator[Reading]:
    """The positions of a pipeline's file, of a stream's groups, or of a group.

    Args:
        stack: Closes the streams.
        target: A pipeline's file; a stream, by name or file; or a group, which is
            looked for in all streams of the catalogue.
        add_mask: Called with what masks the secrets of each stream in a text.
        catalogue: Where streams are looked up; a snapshot, as a group is looked for in
            all of them.
        quiet: As of `load`.

    Raises:
        UnknownStream: config; neither a stream nor a group has this name.
        MisuseError: misuse; it is a folder.
        StreamError: As the stream, or its checkpoints, raise.
    """
    if is_pipeline(Path(target)):
        located = locate(target, catalogue=catalogue)
        # All scans of a stream by one query are at about the same place.
        positions = located.positions()[: len(located.definitions)]
        sources = stack.enter_context(
            opened(located, len(positions), add_mask, quiet=quiet)
        )
        for position, source in zip(positions, sources, strict=True):
            yield Reading("pipeline", _name(located), position, source)
        return
    try:
        definition = catalogue.one(target)
    except UnknownStream as error:
        if is_folder(Path(target)):
            msg = f"{target} is a folder, not a stream, pipeline or group"
            remedy = "use `streamfactory checkpoint lag` for a folder of checkpoints"
            raise MisuseError(msg, remedy=remedy) from error
        yield from _of_group(stack, target, error, add_mask, catalogue, quiet=quiet)
        return
    yield from _groups(stack, definition, [], add_mask, quiet=quiet)


def open_groups(
    stack: ExitStack,
    definition: StreamDefinition,
    add_mask: AddMask,
    *,
    quiet: bool = False,
) -> tuple[Source, GroupPositions]:
    """A stream, and the positions of its groups."""
    configured = load(definition, "read", quiet=quiet)
    source = Source(configured, client_id="streamfactory-offsets")
    stack.callback(source.close)
    add_mask(source.config.mask)
    groups = GroupPositions(source)
    stack.callback(groups.close)
    return source, groups


def _groups(
    stack: ExitStack,
    definition: StreamDefinition,
    names: list[str],
    add_mask: AddMask,
    *,
    quiet: bool,
) -> Iterator[Reading]:
    source, groups = open_groups(stack, definition, add_mask, quiet=quiet)
    for name, position in groups.lookup(names).items():
        yield Reading("group", name, position, source)


def _of_group(
    stack: ExitStack,
    group: str,
    unknown: UnknownStream,
    add_mask: AddMask,
    catalogue: Catalogue,
    *,
    quiet: bool,
) -> Iterator[Reading]:
    """The positions of a group, in all streams of the catalogue."""
    found = 0
    failure: StreamError | None = None
    for name in catalogue.names():
        try:
            definition = catalogue.get(name)
            for one in _groups(stack, definition, [group], add_mask, quiet=quiet):
                found += 1
                yield one
        except Unsupported:
            continue  # the groups of this stream store no positions
        except StreamError as error:
            failure = failure or error
            log.warning("group %r, stream %r: %s", group, name, error)
    if failure is not None and not found:
        raise failure  # it may be one of that stream
    if not found:
        msg = f"{unknown.what}, and no group of the catalogue's streams is either"
        raise UnknownStream(msg, remedy=unknown.remedy, problems=unknown.problems)


def _name(located: Located) -> str:
    return located.folder if located.record is None else located.record.pipeline
