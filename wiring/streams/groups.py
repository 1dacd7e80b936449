"""Stream-level reading: a group of readers shares a stream, with checkpoints."""

from __future__ import annotations

import re
import threading
import zlib
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, TypeVar, final

from streamfactory.spi import (
    Checkpoint,
    CheckpointStore,
    ClosedError,
    Position,
    PositionRefused,
)
from streamfactory.wiring.options.patterns import matching_topics
from streamfactory.wiring.reading.acknowledging import Acknowledger
from streamfactory.wiring.reading.counters import Counters
from streamfactory.wiring.reading.losses import LossPolicy
from streamfactory.wiring.reading.rotation import Rotation
from streamfactory.wiring.reading.starts import starting_offsets
from streamfactory.wiring.streams.checkpoints import merged
from streamfactory.wiring.writing.diverting import Letters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from streamfactory.spi import (
        MessageBatch,
        Partition,
        PartitionInfo,
    )
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.reading.source import Source

T = TypeVar("T")
"""What a call of an author's code answers."""

_MEMBER: Final = re.compile(r"(0|[1-9][0-9]*)-of-([1-9][0-9]*)")


def instance_of(partition: Partition, instances: int) -> int:
    """Return which of so many instances reads a partition.

    It depends on the partition only, so new partitions move no other; partitions of a
    topic are assigned round-robin, and topics begin at different instances.
    """
    return (partition.id + zlib.crc32(partition.topic.encode())) % instances


class GroupReader(ABC):
    """One member of a group of readers.

    Rows of one partition are in order; each row is read by one member, except after
    restarts; a restart continues at the last `commit`. Not guaranteed: an order among
    partitions, and that rows after the last `commit` are not read again.
    """

    @abstractmethod
    def next_batch(self, timeout: float) -> MessageBatch | None:
        """Return the next batch; None if none arrived within ``timeout`` seconds."""

    @abstractmethod
    def commit(self) -> Position:
        """Commit the position after the last returned batch; nothing else commits it.

        Raises:
            CheckpointFailed: permanent; the previous checkpoint remains valid.
            IncarnationChanged: data_loss; the topic was recreated, and ``out.of.range``
                is ``fail``. Nothing was committed.
        """

    @property
    @abstractmethod
    def position(self) -> Position:
        """Next offset of each partition of this member, committed or not."""

    @property
    @abstractmethod
    def counters(self) -> Counters:
        """The counters of this member."""

    @abstractmethod
    def has_read(self, ends: Mapping[Partition, int | None]) -> bool:
        """Whether each partition of this member is read to its end, exclusive.

        Args:
            ends: By partition; None is unknown: then only the partition's own end is.
                Partitions that are not in it count as read.
        """

    @abstractmethod
    def close(self) -> None:
        """Close without committing."""


def is_reached(offset: int | None, end: int | None) -> bool:
    """Whether the next offset of a partition is at its end, exclusive."""
    return end == 0 or (offset is not None and end is not None and offset >= end)


@final
class CheckpointedGroup(GroupReader):
    """The framework's groups, for every backend.

    Partition readers and a checkpoint store.

    Members are numbered statically: instance k of n. To change n, stop all members
    first; then each partition continues at its newest checkpoint of any member.

    Args:
        source: The stream.
        store: The checkpoint store.
        group: Name of the group.
        instance: Index of this instance, from 0.
        instances: Number of instances.
        clock: The clock.

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
        self._closed = threading.Event()
        self._gone = Counters()
        self._acknowledger = Acknowledger(source)
        self._letters = Letters(source, f"{group}/{self._name}", clock)
        try:
            self._begin(source, instance, instances, clock)
        except BaseException:
            with ExitStack() as last:
                last.callback(store.close)
                last.callback(self._letters.close)
            raise

    def _begin(
        self, source: Source, instance: int, instances: int, clock: Clock
    ) -> None:
        self._store.claim(self._group, self._name)
        saved = _Saved(self._group, self._store.load(self._group))
        self._generation = saved.generation

        def mine(partition: Partition) -> bool:
            return instance_of(partition, instances) == instance

        # The last run may have ended between commit and acknowledgement.
        self._acknowledger.acknowledge(
            saved.position.only({*filter(mine, saved.position)})
        )
        infos = source.metadata.partitions()
        starts = saved.starts(source, infos, mine)
        self._miss(source, saved.position, {i.partition for i in infos}, mine)
        self._rotation = Rotation(
            source,
            [info for info in infos if mine(info.partition)],
            starts,
            ends=None,
            incarnations=Position(starts, saved.position.incarnations).incarnations,
            mine=mine,
            refresh=source.config["metadata.refresh.millis"] / 1000,
            clock=clock,
        )

    def next_batch(self, timeout: float) -> MessageBatch | None:
        """See `GroupReader`."""
        batch = self._rotation.next_batch(timeout)
        if batch is not None:
            self._letters.add(batch)
        return batch

    def commit(self) -> Position:
        """See `GroupReader`."""
        if self._closed.is_set():
            msg = "the group reader is closed"
            raise ClosedError(msg)
        self._rotation.verify()
        position = self.position
        self._letters.commit(position)
        checkpoint = Checkpoint(position, self._generation + 1)
        self._store.save(self._group, self._name, checkpoint)
        self._generation += 1
        self._acknowledger.acknowledge(position)
        self._rotation.begin_range()
        return position

    @property
    def position(self) -> Position:
        """See `GroupReader`."""
        return self._rotation.position

    @property
    def counters(self) -> Counters:
        """See `GroupReader`."""
        return self._rotation.counters + self._gone

    def has_read(self, ends: Mapping[Partition, int | None]) -> bool:
        """See `GroupReader`."""
        return all(
            partition in self._rotation.ends
            or is_reached(offset, ends.get(partition, 0))
            for partition, offset in self.position.items()
        )

    def close(self) -> None:
        """See `GroupReader`."""
        if not self._closed.is_set():
            self._closed.set()
            with ExitStack() as last:
                last.callback(self._store.close)
                last.callback(self._letters.close)
                last.callback(self._rotation.close)

    def _miss(
        self,
        source: Source,
        saved: Position,
        there: set[Partition],
        mine: Callable[[Partition], bool],
    ) -> None:
        """Report partitions that were read before and no longer exist."""
        for partition in sorted(set(saved) - there):
            if not mine(partition) or not _wanted(source, partition):
                continue
            loss = LossPolicy.of(source.config).vanished(
                partition, saved[partition], "after the last checkpoint"
            )
            self._gone.losses.append(loss)


class _Saved:
    """The checkpoints of all members of a group, for any number of members."""

    def __init__(self, group: str, checkpoints: Mapping[str, Checkpoint]) -> None:
        self._members = [_member(group, name) for name in checkpoints]
        generations = (one.generation for one in checkpoints.values())
        self.generation = max(generations, default=0)
        self.position = merged(checkpoints)

    def starts(
        self,
        source: Source,
        infos: Sequence[PartitionInfo],
        mine: Callable[[Partition], bool],
    ) -> dict[Partition, int]:
        """Return the start of each of a member's partitions."""
        wanted = [info for info in infos if mine(info.partition)]
        starts = {i.partition: self.position.get(i.partition, i.start) for i in wanted}
        fresh = [p for p in starts if p not in self.position and not self._had(p)]
        if fresh:
            # Resolved for all partitions: start options may contain each of them.
            first = starting_offsets(
                source.config, source.metadata, infos, start=None, default="latest"
            )
            starts |= {partition: first[partition] for partition in fresh}
        return starts

    def _had(self, partition: Partition) -> bool:
        """Whether the partition's member has a checkpoint without it.

        Then it is new, and starts at its earliest offset. Otherwise it was never read,
        and the start options apply.
        """
        return any(instance_of(partition, n) == k for k, n in self._members)


def _member(group: str, name: str) -> tuple[int, int]:
    found = _MEMBER.fullmatch(name)
    if found is None or int(found[1]) >= int(found[2]):
        msg = f"the group {group!r} has a checkpoint of {name!r}, which is not a member"
        raise PositionRefused(msg)
    return int(found[1]), int(found[2])


def _wanted(source: Source, partition: Partition) -> bool:
    """Whether the configured stream still has the partition's topic."""
    config = source.config
    if "assign" in config:
        return False  # assigned partitions that do not exist are reported elsewhere
    if "subscribePattern" in config:
        return bool(matching_topics(config["subscribePattern"], [partition.topic]))
    return partition.topic in source.metadata.topics()
