"""Lookup of logs by topic and incarnation, and conversion of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.arrowlog import Retention
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.spi import IncarnationChanged

if TYPE_CHECKING:
    from streamfactory.arrowlog import Log, LogStore
    from streamfactory.spi import LastCommit


def open_topic(store: LogStore, topic: str, incarnation: str | None = None) -> Log:
    """The log of a topic, if its incarnation is the client's.

    Raises:
        TopicNotFound: permanent.
        IncarnationChanged: data_loss.
    """
    log = store.open(topic)
    if incarnation is not None and log.incarnation != incarnation:
        msg = (
            f"topic {topic!r} was recreated: expected incarnation {incarnation!r}, "
            f"found {log.incarnation!r}"
        )
        raise IncarnationChanged(msg, expected=incarnation, found=log.incarnation)
    return log


def commit_message(last: LastCommit | None) -> m.LastCommit | None:
    """The message of a commit; None for None."""
    if last is None:
        return None
    position, summary = last.source_position, last.summary
    return m.LastCommit(
        last.epoch,
        None if summary is None else summary.rows,
        None if summary is None else m.digests(summary.sums),
        None if position is None else position.to_json(),
    )


def retention_of(wanted: m.Retention) -> Retention:
    """The retention of a message."""
    age = wanted.age_ms
    return Retention(None if age is None else age / 1000, wanted.rows, wanted.bytes)
