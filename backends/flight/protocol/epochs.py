"""Epochs, commits and retention of the log, as messages have them, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog import Committed, Epoch, Retention
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import Digest
from streamfactory.spi import LastCommit, Position, Summary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.arrowlog import Staged


def epoch_message(epoch: Epoch) -> m.EpochHeader:
    """What is stored of an epoch; its writer and its rows are in other messages."""
    position = epoch.position
    return m.EpochHeader(
        epoch=epoch.number,
        rows=epoch.summary.rows,
        sums=_digests(epoch.summary.sums),
        position=None if position is None else position.to_json(),
        replace=epoch.replace,
    )


def epoch_of(
    writer: m.WriterInstance, epoch: m.EpochHeader, staged: Sequence[Staged]
) -> Epoch:
    """The epoch of two messages, with rows that are staged.

    Raises:
        PositionRefused: permanent; the position is corrupt or newer.
    """
    position = epoch.position
    return Epoch(
        writer.writer,
        epoch.epoch,
        staged,
        Summary(epoch.rows, epoch.sums or {}),
        writer.instance,
        None if position is None else Position.from_json(position),
        epoch.replace,
    )


def committed_message(committed: Committed) -> m.Committed:
    """The response to a commit."""
    return m.Committed(last_message(committed.held), placed_message(committed.placed))


def committed_of(message: m.Committed) -> Committed:
    """The result of a commit."""
    placed = {one.partition: range(one.start, one.end) for one in message.placed}
    return Committed(last_of(message), placed)


def placed_message(placed: Mapping[int, range]) -> tuple[m.Placed, ...]:
    """Offsets by partition."""
    return tuple(
        m.Placed(partition, one.start, one.stop) for partition, one in placed.items()
    )


def last_message(last: LastCommit | None) -> m.LastCommit | None:
    """The last commit of a writer; None for None."""
    if last is None:
        return None
    position, summary = last.source_position, last.summary
    return m.LastCommit(
        last.epoch,
        None if summary is None else summary.rows,
        None if summary is None else _digests(summary.sums),
        None if position is None else position.to_json(),
    )


def last_of(message: m.Committed) -> LastCommit | None:
    """The commit that was there before; None if there was none."""
    held = message.held
    if held is None:
        return None
    position = None if held.position is None else Position.from_json(held.position)
    summary = None if held.rows is None else Summary(held.rows, held.sums or {})
    return LastCommit(held.epoch, position, summary)


def retention_message(retention: Retention) -> m.Retention:
    """Retention limits, in milliseconds."""
    age = retention.age
    return m.Retention(
        None if age is None else int(age * 1000), retention.rows, retention.size
    )


def retention_of(message: m.Retention) -> Retention:
    """Retention limits, in seconds."""
    age = message.age_ms
    return Retention(None if age is None else age / 1000, message.rows, message.bytes)


def _digests(sums: Mapping[str, int]) -> dict[str, Digest] | None:
    return {name: Digest(value) for name, value in sums.items()} or None
