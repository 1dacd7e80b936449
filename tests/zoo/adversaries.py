"""Backends that are wrong only at a boundary: a later epoch, a tenth partition, ..."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from tests.zoo.registry import ZooProducers, caught_by

from streamfactory.arrowlog import LogMetadata
from streamfactory.arrowlog.writing import LogCommitter, LogWriter
from streamfactory.backends.memory.writing import MemoryTopicAdmin
from streamfactory.conformance.specimens import redelivering
from streamfactory.spi import Position

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from streamfactory.arrowlog import Staged
    from streamfactory.arrowlog.writing import LogProducerFactory
    from streamfactory.spi import (
        CommitMessage,
        LastCommit,
        Outgoing,
        Partition,
        PartitionInfo,
        StreamConfig,
        WriteContext,
    )


class _Remembering(LogWriter):
    SEALED: ClassVar[list[tuple[Any, Staged]]] = []

    def commit(self) -> Any:
        payload = super().commit()
        assert self._sealed is not None
        self.SEALED.append((self._log, self._sealed))
        return payload


class _DiscardingAll(LogCommitter):
    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        for log, sealed in _Remembering.SEALED:
            log.discard(sealed)
        _Remembering.SEALED.clear()


@caught_by("an_abort_leaves_what_is_not_its_own")
class DiscardsRowsOfAllAttempts(ZooProducers):
    """An abort removes the rows of all attempts, of other writers as well."""

    WRITER = _Remembering
    COMMITTER = _DiscardingAll


@caught_by("closing_a_sink_commits_nothing")
class DiscardsRowsOnClose(ZooProducers):
    """A factory that is closed removes all staged rows, of other factories as well."""

    WRITER = _Remembering

    def close(self) -> None:
        for log, sealed in _Remembering.SEALED:
            log.discard(sealed)
        _Remembering.SEALED.clear()
        super().close()


def _revived(config: StreamConfig) -> WritesOnceWhenPickled:
    made = WritesOnceWhenPickled(config)
    made.pickled = True
    return made


class _Once(LogWriter):
    _written = False

    def write(self, outgoing: Outgoing) -> None:
        if not self._written:
            super().write(outgoing)
        self._written = True


@caught_by("a_pickled_factory_writes_the_same")
class WritesOnceWhenPickled(ZooProducers):
    """Writers of a factory that went through pickle drop all writes but the first."""

    pickled = False

    def __reduce__(self) -> Any:
        return _revived, (self.config,)

    def create_writer(self, context: WriteContext) -> LogWriter:
        kind = _Once if self.pickled else LogWriter
        return kind(self.log(context.schema), context)


@caught_by("each_of_twelve_partitions_has_its_bounds")
class OrdersPartitionsAsText(LogMetadata):
    """Bounds are ordered as text, so that partition 2 has those of partition 10."""

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        infos = super().fetch_partitions(topics, known)
        others = sorted(infos, key=lambda info: str(info.partition.id))
        return [
            replace(other, partition=info.partition)
            for info, other in zip(infos, others, strict=True)
        ]


@caught_by("a_position_of_several_partitions_is_acknowledged")
class AcknowledgesOnePartition(redelivering.RedeliveringConsumerFactory):
    """Of a position only the first partition is acknowledged."""

    def acknowledge(self, position: Position) -> None:
        for partition, offset in list(position.items())[:1]:
            incarnation = position.incarnations.get(partition)
            first = Position().with_offset(partition, offset, incarnation)
            super().acknowledge(first)


class _Shortened(LogCommitter):
    def __init__(self, factory: LogProducerFactory, writer_id: str | None) -> None:
        super().__init__(factory, writer_id and writer_id[:64])


@caught_by("writers_do_not_share_epochs")
class ShortensWriterIds(ZooProducers):
    """Of writer ids only the first 64 characters are stored."""

    COMMITTER = _Shortened

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        return super().fetch_last_commit(writer_id[:64])


@caught_by("a_later_instance_fences_an_earlier_one")
class FencesTheFirstEpochsOnly(LogCommitter):
    """From the fourth epoch on a fenced instance claims the writer by its commit."""

    def commit(self, epoch: int, messages: Any, source_position: Any = None) -> Any:
        if epoch > 2:
            self._claimed = False
        return super().commit(epoch, messages, source_position)


@caught_by("truncation_deletes_what_lies_before")
class TruncatesAllPartitions(MemoryTopicAdmin):
    """Truncation of one partition truncates the others at the same offset."""

    def truncate(self, topic: str, before: Mapping[int, int]) -> None:
        count = len(self.store().open(topic).bounds())
        super().truncate(topic, dict.fromkeys(range(count), max(before.values())))
