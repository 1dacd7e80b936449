"""Stream-level reading: a whole stream, shared among a group, with checkpoints."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, final

from streamfactory.spi import (
    BatchState,
    Checkpoint,
    CheckpointStore,
    FetchLimits,
    MessageBatch,
    Partition,
    Position,
    StreamLevelConsumer,
)
from streamfactory.wiring.counters import Counters
from streamfactory.wiring.rotation import Rotation
from streamfactory.wiring.starts import starting_offsets

if TYPE_CHECKING:
    from streamfactory.wiring.clock import Clock
    from streamfactory.wiring.shaping import Shaper
    from streamfactory.wiring.source import Source


def instance_of(partition: Partition, instances: int) -> int:
    """Which of so many instances reads a partition.

    Depends on the partition alone, so that growth moves none; partitions of a topic are
    dealt out in turn, and topics begin at different instances.
    """
    return (partition.id + zlib.crc32(partition.topic.encode())) % instances


class GroupReader(ABC):
    """One member of a group of readers.

    Rows of one partition come in order; each row to one member, unless restarted; a
    restart goes on at the last `commit`. Not promised: an order among partitions, and
    that rows after the last `commit` do not come again.
    """

    @abstractmethod
    def next_batch(self, timeout: float) -> MessageBatch | None:
        """The next batch; None when none came within ``timeout`` seconds."""

    @abstractmethod
    def commit(self) -> Position:
        """Save the position after the last batch handed out; nothing else saves it.

        Raises:
            CheckpointFailed: permanent; the previous checkpoint still holds.
        """

    @property
    @abstractmethod
    def position(self) -> Position:
        """Next offset of each partition of this member, saved or not."""

    @property
    @abstractmethod
    def counters(self) -> Counters:
        """What this member has done so far."""

    @abstractmethod
    def close(self) -> None:
        """Close without committing."""


@final
class CheckpointedGroup(GroupReader):
    """The framework's own, for every backend: partition readers and a store.

    Members are named by number, not found out: instance k of n. When n changes, stop
    all of them first; then each partition goes on at its newest checkpoint, whichever
    member saved it.

    Args:
        source: The stream.
        store: Where checkpoints are kept.
        group: Name of the group.
        instance: This one, counted from 0.
        instances: How many there are.
        clock: Time.

    Raises:
        PositionRefused: permanent; a checkpoint is corrupt, foreign or newer.
    """

    def __init__(
        self,
        source: Source,
        store: CheckpointStore,
        group: str,
        *,
        instance: int,
        instances: int,
        clock: Clock,
    ) -> None:
        self._store = store
        self._group = group
        self._name = f"{instance}-of-{instances}"
        saved = sorted(store.load(group), key=lambda c: c.generation)
        self._generation = max((c.generation for c in saved), default=0)
        checkpoint = Position()
        for one in saved:
            checkpoint = checkpoint.merge(one.position)

        def mine(partition: Partition) -> bool:
            return instance_of(partition, instances) == instance

        infos = [i for i in source.metadata.partitions() if mine(i.partition)]
        # Only a new group looks at the start options: a checkpoint beats them all, and
        # a partition that it does not know is new and begins at its earliest.
        start = checkpoint if saved else None
        starts = starting_offsets(
            source.config, source.metadata, infos, start=start, default="latest"
        )
        self._rotation = Rotation(
            source,
            infos,
            starts,
            ends=None,
            incarnations=checkpoint.incarnations,
            mine=mine,
            refresh=source.config["metadata.refresh.millis"] / 1000,
            clock=clock,
        )

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """See `GroupReader`."""
        return self._rotation.next_batch(timeout)

    def commit(self) -> Position:
        """See `GroupReader`."""
        position = self.position
        checkpoint = Checkpoint(position, self._generation + 1)
        self._store.save(self._group, self._name, checkpoint)
        self._generation += 1
        return position

    @property
    def position(self) -> Position:
        """See `GroupReader`."""
        return self._rotation.position

    @property
    def counters(self) -> Counters:
        """See `GroupReader`."""
        return self._rotation.counters

    def close(self) -> None:
        """See `GroupReader`."""
        self._rotation.close()
        self._store.close()


@final
class AuthoredGroup(GroupReader):
    """A backend's own group member, its rows shaped and its errors translated.

    Args:
        source: The stream.
        author: The backend's.
    """

    def __init__(self, source: Source, author: StreamLevelConsumer) -> None:
        self._source = source
        self._author = author
        self._shapers: dict[Partition, Shaper] = {}
        self._next: dict[Partition, int] = {}
        self._incarnations: dict[Partition, str] = {}
        self._counters = Counters()

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """See `GroupReader`."""
        config = self._source.config
        limits = FetchLimits(config["batch.rows"], config["batch.bytes"], timeout)
        self._counters.fetches += 1
        try:
            found = self._author.fetch_messages(limits)
        except Exception as error:
            translated = self._source.guard.translate(error)
            if translated is error:
                raise
            raise translated from error
        if found is None:
            return None
        partition, fetched = found
        shaper = self._shapers.get(partition)
        if shaper is None:
            shaper = self._shapers[partition] = self._source.shaper(partition)
        offsets = shaper.offsets_of(fetched)
        start = self._next.get(partition, fetched.next_offset)
        if offsets is None and fetched.rows is not None:
            start = fetched.next_offset - fetched.rows.num_rows
        rows, offsets = shaper.shape(fetched.rows, offsets, start, partition)
        self._next[partition] = fetched.next_offset
        if fetched.incarnation is not None:
            self._incarnations[partition] = fetched.incarnation
        self._count(rows.num_rows, fetched.size or 0)
        self._counters.losses.extend(fetched.losses)
        first = start if offsets is None else None
        if offsets is not None and rows.num_rows:
            first = offsets[0].as_py()
        return MessageBatch(
            partition,
            rows,
            start,
            fetched.next_offset,
            BatchState.DATA if rows.num_rows else fetched.state or BatchState.IDLE,
            first_offset=first if rows.num_rows else None,
            offsets=offsets,
            latest=fetched.latest,
            unfiltered_count=fetched.unfiltered_count or rows.num_rows,
            size=fetched.size or 0,
            incarnation=fetched.incarnation,
            losses=tuple(fetched.losses),
            end=fetched.end,
        )

    def commit(self) -> Position:
        """See `GroupReader`; what was taken from this member meanwhile is left out."""
        position = self.position
        self._author.commit(position)
        return position

    @property
    def position(self) -> Position:
        """See `GroupReader`."""
        mine = self._author.assignment()
        return Position(self._next, self._incarnations).only(mine)

    @property
    def counters(self) -> Counters:
        """See `GroupReader`."""
        return self._counters

    def close(self) -> None:
        """See `GroupReader`."""
        self._author.close()
        for shaper in self._shapers.values():
            shaper.close()

    def _count(self, rows: int, size: int) -> None:
        self._counters.rows += rows
        self._counters.messages += rows
        self._counters.bytes += size
        self._counters.batches += bool(rows)
