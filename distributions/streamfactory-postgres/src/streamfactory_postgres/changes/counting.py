"""Which offsets have changes: for lags, ranges planned by rows, and starts by time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from streamfactory import spi

from streamfactory_postgres.changes.messages import (
    Begin,
    Change,
    Commit,
    Message,
    Truncate,
    parse,
)
from streamfactory_postgres.changes.numbering import lsn_of, offset_of
from streamfactory_postgres.changes.session import Session
from streamfactory_postgres.changes.slots import Slot
from streamfactory_postgres.changes.transactions import Transactions

_REST: Final = 0.01
"""Seconds between two questions how far the server is."""


def count_changes(
    config: spi.StreamConfig, slot: Slot, start: int, end: int, most: int | None
) -> Sequence[spi.Extent]:
    """The runs of offsets between two that have changes, one for each transaction.

    Args:
        config: Of the stream.
        slot: Of the table.
        start: First offset, inclusive.
        end: Exclusive.
        most: Offsets that are enough; None for all.

    Raises:
        spi.StreamTimeout: transient; the server decodes more than
            ``connection.timeout.millis`` allows.
    """
    held = Transactions(slot.relation)
    runs = _Runs(start, end)
    for message in _messages(config, slot, start, end):
        runs.add(message, held, slot.relation)
        if runs.are_enough(most):
            break
    return runs.found


def find_commit(config: spi.StreamConfig, slot: Slot, since: int) -> int | None:
    """The offset of the first transaction that was committed at or after a time.

    Logical decoding sends the time of each commit, also without
    ``track_commit_timestamp``. There is no index by time: the server decodes what the
    slot holds up to there. Clocks may go back: what is before the offset is earlier,
    what follows may be, too.

    Args:
        config: Of the stream.
        slot: Of the table.
        since: Microseconds since 1970, UTC; inclusive.

    Returns:
        The offset; None if no transaction was committed so late.

    Raises:
        spi.StreamTimeout: transient; the server decodes more than
            ``connection.timeout.millis`` allows.
    """
    if slot.earliest < slot.rows and since <= slot.made:
        return slot.earliest
    start, end = max(slot.earliest, slot.begin), offset_of(slot.flushed)
    for message in _messages(config, slot, start, end):
        if isinstance(message, Begin) and message.time >= since:
            # A part of the transaction may be acknowledged.
            return max(start, offset_of(message.lsn))
    return None


def _messages(
    config: spi.StreamConfig, slot: Slot, start: int, end: int
) -> Iterator[Message]:
    """What the server has decoded between two offsets."""
    deadline = time.monotonic() + config["connection.timeout.millis"] / 1000
    # What is not written yet has no changes.
    stop = min(end, offset_of(slot.flushed))
    with closing(Session(config, slot.name, lsn_of(start))) as session:
        while offset_of(session.reached) < stop:
            data = session.receive()
            if data is not None:
                message = parse(data)
                if isinstance(message, Commit):
                    session.deliver(message.end)
                if message is not None:
                    yield message
                continue
            if time.monotonic() >= deadline:
                msg = f"changes between offsets {start} and {end} were not decoded in "
                msg += "time"
                remedy = "raise connection.timeout.millis, or acknowledge what is read"
                raise spi.StreamTimeout(msg, remedy=remedy)
            session.request_position()
            session.wait(_REST)


class _Runs:
    """Collects the offsets of changes in one range."""

    def __init__(self, start: int, end: int) -> None:
        self.found: list[spi.Extent] = []
        self._start, self._end = start, end
        self._count = 0

    def are_enough(self, most: int | None) -> bool:
        # The last run may grow: one more shows that it does not.
        return most is not None and self._count > most

    def add(self, message: Message, held: Transactions, oid: int) -> None:
        held.follow(message)
        if isinstance(message, Change) and message.oid == oid:
            rows = (message.old is not None) + (message.new is not None)
            for _ in range(rows):
                self._include(held.number())
        elif isinstance(message, Truncate) and oid in message.oids:
            held.begin_run()
            self._include(held.number())
            held.begin_run()

    def _include(self, offset: int) -> None:
        if not self._start <= offset < self._end:
            return
        last = self.found[-1] if self.found else None
        if last is not None and last.end >= offset:
            if last.end == offset:
                self.found[-1] = spi.Extent(last.start, offset + 1)
                self._count += 1
            return
        self.found.append(spi.Extent(offset, offset + 1))
        self._count += 1
