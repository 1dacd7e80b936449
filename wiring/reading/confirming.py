"""Batches of several partitions that wait until their incarnation is confirmed (R13).

If the results of a backend do not carry the incarnation, it is looked up after rows
were fetched and before they are handed out. An incarnation never returns, so one that
is still the same is that of the rows. One look-up confirms all batches that were
fetched before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, final

from streamfactory.spi import PartitionVanished, TopicNotFound

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Mapping

    from streamfactory.spi import MessageBatch, Partition
    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source

_SHARE: Final = 10
"""Minimum ratio between the time from one look-up to the next and the duration of one,
unless a full batch waits for it."""


class HasReader(Protocol):
    """What a rotation keeps for each partition."""

    partition: Partition
    reader: Reader | None


C = TypeVar("C", bound=HasReader)


@final
class Unconfirmed(Generic[C]):
    """Batches between fetch and hand-out. One thread at a time.

    Args:
        source: The stream.
        closed: Cancels look-ups when set.
    """

    def __init__(self, source: Source, closed: threading.Event) -> None:
        self._source = source
        self._closed = closed
        self._batches: list[tuple[C, MessageBatch]] = []
        self._next_look = source.clock.now()

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def cursors(self) -> list[C]:
        """The cursors of the batches, in order."""
        return [cursor for cursor, _ in self._batches]

    def add(self, cursor: C, batch: MessageBatch) -> bool:
        """Add a batch; return whether others may be fetched before `confirm`."""
        self._batches.append((cursor, batch))
        return _uncertain(cursor, batch) and not self._full

    def drop(self, cursor: C) -> None:
        """Drop the batches of a partition that was removed."""
        self._batches = [item for item in self._batches if item[0] is not cursor]

    @property
    def due(self) -> bool:
        """Whether incarnations are looked up now, instead of fetching more."""
        return self._source.clock.now() >= self._next_look or self._full

    def confirm(self) -> tuple[list[tuple[C, MessageBatch]], list[tuple[C, int]]]:
        """Return the confirmed batches, and what has to be fetched again from where.

        Raises:
            StreamError: Of the look-up; the batches remain.
        """
        doubted = {c.partition for c, batch in self._batches if _uncertain(c, batch)}
        try:
            found = self.look_up(doubted) if doubted else {}
        except (PartitionVanished, TopicNotFound):
            found = dict.fromkeys(doubted)
        confirmed, again = [], {}
        for cursor, batch in self._batches:
            partition = cursor.partition
            if partition in again:
                continue
            if partition in found and batch.incarnation != found[partition]:
                again[partition] = cursor, batch.start_offset
            else:
                confirmed.append((cursor, batch))
        self._batches = []
        return confirmed, [*again.values()]

    def look_up(
        self, partitions: Collection[Partition]
    ) -> Mapping[Partition, str | None]:
        """Look up the current incarnations."""
        clock = self._source.clock
        began = clock.now()
        found = self._source.metadata.incarnations(partitions, self._closed)
        now = clock.now()
        self._next_look = now + _SHARE * (now - began)
        return found

    @property
    def _full(self) -> bool:
        """Whether the batches are as much as one batch may have."""
        config = self._source.config
        rows = sum(batch.num_rows for _, batch in self._batches)
        size = sum(batch.size for _, batch in self._batches)
        return bool(rows >= config["batch.rows"] or size >= config["batch.bytes"])


def _uncertain(cursor: HasReader, batch: MessageBatch) -> bool:
    reader = cursor.reader
    return batch.num_rows > 0 and reader is not None and reader.uncertain
