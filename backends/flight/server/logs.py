"""Lookup of logs by topic and incarnation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import IncarnationChanged

if TYPE_CHECKING:
    from streamfactory.arrowlog import Log, LogStore


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
