"""Positions of the groups that read a stream: shown and set by commands.

A group stores its position where its readers do: in the source itself (Kafka's groups),
in the folder of ``checkpoint.location``, or in the stream's own checkpoint store.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    Checkpoint,
    MisuseError,
    PartitionState,
    Position,
    PositionRefused,
    Unsupported,
    WriterFenced,
)
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.reading.losses import find_loss
from streamfactory.wiring.reading.position_arguments import offsets_of
from streamfactory.wiring.streams.checkpoints import (
    FileCheckpointStore,
    merged,
    stream_checkpoints,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from streamfactory.spi import CheckpointStore
    from streamfactory.wiring.reading.position_arguments import Marks
    from streamfactory.wiring.reading.source import Source


_SHOWN: Final = 10
"""Groups that an error names."""


@final
@dataclass(frozen=True, slots=True)
class PositionChange:
    """A planned change of a group's position."""

    group: str
    before: Position
    after: Position
    """Complete: partitions that are not changed have their old offset."""


def moved_position(source: Source, before: Position, marks: Marks) -> Position:
    """A position with some partitions moved; nothing is stored.

    Args:
        source: The stream.
        before: The position now.
        marks: The new offsets; partitions that are not named stay.

    Raises:
        DataLossError: data_loss; the stream does not have one of the new offsets, or
            the topic was recreated.
        TopicNotFound: permanent; a partition does not exist.
        PositionRefused: permanent; ``marks`` is a position of another stream.
        MisuseError: misuse; partitions are given by number, and the stream has several
            topics.
    """
    config, metadata = source.config, source.metadata
    infos = {
        info.partition: info
        for info in metadata.partitions()
        if info.state is not PartitionState.VANISHED
    }
    by_number = isinstance(marks, Mapping) and not isinstance(marks, Position)
    if by_number and len({partition.topic for partition in infos}) > 1:
        msg = "partition numbers are ambiguous: the stream has several topics"
        raise MisuseError(msg, stream=config.name, remedy="give a position")
    offsets = offsets_of(config, metadata, list(infos.values()), marks)
    if isinstance(marks, Position):
        offsets = {p: offset for p, offset in offsets.items() if p in marks}
    for partition, offset in offsets.items():
        found = find_loss(infos[partition], offset, infos[partition].incarnation)
        if found is not None:
            _, error = found
            error.remedy = "give an available offset, earliest, latest or a time"
            raise error.at(stream=config.name)
    incarnations = {
        partition: incarnation
        for partition in offsets
        if (incarnation := infos[partition].incarnation) is not None
    }
    kept = before.only(set(before) - set(offsets))
    return Position(offsets, incarnations).merge(kept)


@final
class GroupPositions(Closing):
    """Positions of the groups of one stream. One thread at a time.

    Args:
        source: The stream; not closed with this.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._opened = ExitStack()
        self._store: CheckpointStore | None = None
        self._loaded: dict[str, Mapping[str, Checkpoint]] = {}

    def find(self, groups: Collection[str] = ()) -> dict[str, Position]:
        """Positions by group, of groups that have read the stream.

        Args:
            groups: Names of groups; all by default.

        Raises:
            PositionRefused: permanent; a named group has no position, or a checkpoint
                cannot be read.
            Unsupported: misuse; groups of this stream store no positions.
        """
        found = self.lookup(groups)
        missing = sorted(set(groups) - set(found))
        if missing:
            msg = f"group {missing[0]!r} has no position in this stream"
            known = list(self.lookup())
            shown = ", ".join(known[:_SHOWN]) + (", ..." if known[_SHOWN:] else "")
            remedy = f"groups with a position are {shown or 'none'}"
            raise PositionRefused(msg, stream=self._source.config.name, remedy=remedy)
        return found

    def lookup(self, groups: Collection[str] = ()) -> dict[str, Position]:
        """Positions by group; groups without a position in the stream are left out.

        Args:
            groups: Names of groups; all by default.

        Raises:
            PositionRefused: permanent; a checkpoint cannot be read.
            Unsupported: misuse; groups of this stream store no positions.
        """
        try:
            return self._source.metadata.group_positions(groups)
        except Unsupported:
            return self._stored(groups)

    def plan(self, group: str, marks: Marks) -> PositionChange:
        """Plan a change; nothing is stored.

        Raises:
            StreamError: As `find` and `moved_position`.
        """
        before = self.find([group])[group]
        return PositionChange(
            group, before, moved_position(self._source, before, marks)
        )

    def apply(self, change: PositionChange) -> None:
        """Store a planned change, unless the position has changed since.

        Of two changes at once at most one is stored. Stop the members of the group
        first: those on a checkpoint store are fenced, and Kafka refuses a group that
        has members.

        Raises:
            PositionRefused: permanent; the position changed since it was planned.
            CheckpointFailed: permanent; the position was not stored.
            StreamError: Of the source.
        """
        self._compare(change)
        if self._store is None:
            if not self._source.metadata.replace_position(
                change.group, change.before, change.after
            ):
                raise self._changed(change)
            return
        # What is loaded after the claims is what the save replaces: a store fences who
        # claimed before, or refuses to replace what was saved since.
        claimed = self._loaded[change.group]
        for name in claimed:
            self._store.claim(change.group, name)
        self._compare(change)
        instances = self._loaded[change.group]
        if instances.keys() != claimed.keys():
            raise self._changed(change)
        # One save, so that all partitions change or none: the newest checkpoint that
        # has a partition decides, whichever instance saved it.
        newest = max(sorted(instances), key=lambda name: instances[name].generation)
        generation = instances[newest].generation + 1
        checkpoint = Checkpoint(change.after, generation)
        try:
            self._store.save(change.group, newest, checkpoint)
        except WriterFenced as error:
            raise self._changed(change) from error

    def _compare(self, change: PositionChange) -> None:
        if self.find([change.group])[change.group] != change.before:
            raise self._changed(change)

    def _changed(self, change: PositionChange) -> PositionRefused:
        msg = f"the position of group {change.group!r} has changed meanwhile"
        remedy = "stop the members of the group, and try again"
        return PositionRefused(msg, stream=self._source.config.name, remedy=remedy)

    def close(self) -> None:
        """Close the checkpoint store; may be called twice."""
        self._opened.close()

    def _stored(self, groups: Collection[str]) -> dict[str, Position]:
        """Positions in a checkpoint store; those of other streams are left out."""
        if self._store is None:
            self._store = self._open_store()
        names = groups or self._store.groups()
        self._loaded = {name: self._store.load(name) for name in names}
        covers = self._source.metadata.covers
        positions = {name: merged(found) for name, found in self._loaded.items()}
        return {
            name: position
            for name, position in positions.items()
            if any(covers(partition.topic) for partition in position)
        }

    def _open_store(self) -> CheckpointStore:
        source = self._source
        location = source.config.get("checkpoint.location")
        if location is not None:
            return FileCheckpointStore(Path(location))
        store = stream_checkpoints(source.factory, source.guard, source.config)
        if store is None:
            msg = "groups of this stream store no positions"
            remedy = "set checkpoint.location to the folder of their checkpoints"
            raise Unsupported(msg, stream=source.config.name, remedy=remedy)
        self._opened.callback(store.close)
        return store
