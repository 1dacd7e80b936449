"""Options of ``postgres-changes``."""

from __future__ import annotations

import re
from typing import Final

from streamfactory import spi

from streamfactory_postgres.layout import topic_problem
from streamfactory_postgres.options import CONNECTION

_SLOT: Final = re.compile(r"[a-z0-9_]{1,54}")


def slot_problem(name: str) -> str | None:
    """What is wrong with the name of a slot; None if nothing."""
    if _SLOT.fullmatch(name) is None:
        return "has other characters than a-z, 0-9 and _, or more than 54"
    return None


OPTIONS: Final = (
    spi.Option(
        "topic.name",
        "Name of the table, with its schema where that is not public.",
        required=True,
        validator=topic_problem,
    ),
    *CONNECTION,
    spi.Option("columns", "Columns that are read; by default all.", spi.LIST),
    spi.Option(
        "slot",
        "Name of the replication slot and of its publication; by default "
        "streamfactory_ with the object id of the table. Each slot keeps what its own "
        "readers have not acknowledged.",
        validator=slot_problem,
    ),
    spi.Option(
        "snapshot",
        "Whether a new topic begins with the rows that the table has; they are copied "
        "into the schema of state until they are acknowledged.",
        spi.BOOLEAN,
        default="true",
    ),
    spi.Option(
        "slot.warning.bytes",
        "WAL that a slot may hold before a warning is logged, where the server has no "
        "max_slot_wal_keep_size.",
        spi.SIZE,
        default="8G",
        minimum=1,
    ),
)
"""All of them, in the order of the reference."""
