"""Stream-level reading: a whole stream, shared among a group, with checkpoints."""

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

        # The last run may have ended between its commit and this.
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
        """Tell of partitions that were read before and are no longer there."""
        for partition in sorted(set(saved) - there):
            if not mine(partition) or not _wanted(source, partition):
                continue
            loss = LossPolicy.of(source.config).vanished(
                partition, saved[partition], "after the last checkpoint"
            )
            self._gone.losses.append(loss)


class _Saved:
    """What the members of a group saved, whatever their number was."""

    def __init__(self, group: str, checkpoints: Mapping[str, Checkpoint]) -> None:
        self._members = [_member(group, name) for name in checkpoints]
        ordered = sorted(checkpoints.values(), key=lambda c: c.generation)
        self.generation = max((c.generation for c in ordered), default=0)
        self.position = Position()
        for one in ordered:
            self.position = self.position.merge(one.position)

    def starts(
        self,
        source: Source,
        infos: Sequence[PartitionInfo],
        mine: Callable[[Partition], bool],
    ) -> dict[Partition, int]:
        """Where a member begins with each of its partitions."""
        wanted = [info for info in infos if mine(info.partition)]
        starts = {
            i.partition: self.position.get(i.partition, i.earliest) for i in wanted
        }
        fresh = [p for p in starts if p not in self.position and not self._had(p)]
        if fresh:
            # Of all partitions: start options may name each of them.
            first = starting_offsets(
                source.config, source.metadata, infos, start=None, default="latest"
            )
            starts |= {partition: first[partition] for partition in fresh}
        return starts

    def _had(self, partition: Partition) -> bool:
        """Whether a member whose it would have been saved a checkpoint without it.

        Then it is new, and begins at its earliest. Otherwise nobody has read it yet,
        and the start options hold.
        """
        return any(instance_of(partition, n) == k for k, n in self._members)


def _member(group: str, name: str) -> tuple[int, int]:
    found = _MEMBER.fullmatch(name)
    if found is None or int(found[1]) >= int(found[2]):
        msg = f"the group {group!r} has a checkpoint of {name!r}, which is no member"
        raise PositionRefused(msg)
    return int(found[1]), int(found[2])


def _wanted(source: Source, partition: Partition) -> bool:
    """Whether the stream, as it is configured, still has the partition's topic."""
    config = source.config
    if "assign" in config:
        return False  # the user says which: those that are not there fail by themselves
    if "subscribePattern" in config:
        return bool(matching_topics(config["subscribePattern"], [partition.topic]))
    return partition.topic in source.metadata.topics()
