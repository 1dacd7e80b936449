"""Which offsets have changes: for lags, and for ranges that are planned by rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from streamfactory import spi

from streamfactory_postgres.changes.messages import (
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
    deadline = time.monotonic() + config["connection.timeout.millis"] / 1000
    held = Transactions(slot.relation)
    runs = _Runs(start, end)
    # What is not written yet has no changes.
    stop = min(end, offset_of(slot.flushed))
    session = Session(config, slot.name, lsn_of(start))
    try:
        while offset_of(session.reached) < stop and not runs.are_enough(most):
            data = session.receive()
            if data is not None:
                message = parse(data)
                if message is not None:
                    runs.add(message, held, slot.relation)
                if isinstance(message, Commit):
                    session.deliver(message.end)
                continue
            if time.monotonic() >= deadline:
                msg = f"changes between offsets {start} and {end} were not counted"
                raise spi.StreamTimeout(msg)
            session.request_position()
            session.wait(_REST)
    finally:
        session.close()
    return runs.found


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
