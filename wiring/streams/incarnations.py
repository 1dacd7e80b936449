"""The incarnations of a group member's partitions (rule R13).

A member that continues to read does not notice by itself that a topic was deleted and
created again: the source assigns the partition again, or serves the new one at the old
offset.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, final

from streamfactory.spi import (
    PartitionVanished,
    Position,
    TopicNotFound,
    TransientError,
)
from streamfactory.wiring.reading.losses import recreated

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Mapping

    from streamfactory.spi import (
        Fetched,
        IncarnationChanged,
        MessageBatch,
        Partition,
    )
    from streamfactory.wiring.reading.source import Source


@final
class MemberIncarnations:
    """Compares the current incarnations with those that the member has read.

    One thread at a time.

    Args:
        source: The stream.
        closed: Cancels look-ups when set.
    """

    def __init__(self, source: Source, closed: threading.Event) -> None:
        self._source = source
        self._closed = closed
        self._starts = Position()
        self._offsets: dict[Partition, int] = {}
        self._confirmed_at = 0.0
        self.expected: dict[Partition, str] = {}
        """By partition, also of partitions that were revoked."""
        self.changed: dict[Partition, IncarnationChanged] = {}
        """Assigned partitions that were recreated, until `note` is called for them."""

    def assign(self, starts: Position) -> None:
        """Compare the starts of newly assigned partitions with what was read before."""
        if starts is self._starts:
            return
        before, self._starts = self._starts.incarnations, starts
        self.changed = {p: e for p, e in self.changed.items() if p in starts}
        for partition, found in starts.incarnations.items():
            # Of a partition that is kept, a later incarnation may have been accepted.
            if before.get(partition) != found:
                expected = self.expected.setdefault(partition, found)
                self._compare(partition, expected, found)

    def note(self, batch: MessageBatch) -> None:
        """Remember a batch that is handed out."""
        self._offsets[batch.partition] = batch.next_offset
        if batch.incarnation is not None:
            self.expected[batch.partition] = batch.incarnation
        self.changed.pop(batch.partition, None)

    def confirm(self, partition: Partition, fetched: Fetched) -> None:
        """Look up the incarnation after rows were received, if they do not carry it.

        Raises:
            StreamError: Of the look-up; nothing is confirmed.
        """
        if (
            partition not in self.expected
            or fetched.rows is None
            or fetched.incarnation is not None
        ):
            return
        began = time.monotonic()
        received = began if fetched.received is None else fetched.received
        if self._confirmed_at < received:
            self._look_up({partition, *self._starts})
            self._confirmed_at = began

    def verify(self, position: Position) -> None:
        """Look up incarnations before a commit, if the source can be reached.

        All rows that were handed out are of the incarnation that the position has.
        """
        carried = set(position.incarnations)
        with suppress(TransientError, PartitionVanished, TopicNotFound):
            self._look_up(carried & set(self._starts))

    def _look_up(self, partitions: Collection[Partition]) -> None:
        wanted = [p for p in partitions if p in self.expected]
        found: Mapping[Partition, str | None] = {}
        if wanted:
            found = self._source.metadata.incarnations(wanted, self._closed)
        for partition, current in found.items():
            self._compare(partition, self.expected[partition], current)

    def _compare(self, partition: Partition, expected: str, found: str | None) -> None:
        if expected != found:
            at = self._offsets.get(partition, self._starts.get(partition, 0))
            self.changed[partition] = recreated(partition, expected, found, at)
