"""The lines in the log that say who changes what."""

from __future__ import annotations

import logging

from streamfactory.wiring.core.shown import printable

_log = logging.getLogger("streamfactory.ui")


def log_change(text: str, fields: dict[str, str]) -> None:
    """Log who changes what; such lines are never suppressed.

    Args:
        text: The line.
        fields: Fields of the record, as stream and group.
    """
    _log.warning("%s", printable(text), extra={"audit": True, **fields})
