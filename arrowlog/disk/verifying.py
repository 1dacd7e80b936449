"""Verifies a topic: reads all rows, and compares them with its records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import BatchValidator, StreamError, Verification

if TYPE_CHECKING:
    from streamfactory.arrowlog.disk.journal import Journal
    from streamfactory.arrowlog.log import Log

_MOST: Final = 1 << 62
_TOLD: Final = 100
"""Maximum number of reported problems; a broken disk has thousands."""


def verify(log: Log, journal: Journal) -> Verification:
    """Read every row, and check that none is missing.

    Args:
        log: The log to read.
        journal: Its records, which determine where reading continues after a bad
            segment.
    """
    rows, problems = 0, []
    validator = BatchValidator(log.schema)
    for lane in log.bounds():
        at = lane.earliest
        while at < lane.latest:
            try:
                part = log.read(lane.id, at, max_rows=_MOST, max_bytes=_MOST)
                assert part.rows is not None
                validator.validate(part.rows)
            except (StreamError, ValueError) as error:
                problems.append(f"partition {lane.id}, offset {at}: {error}")
                following = _next_run(journal, lane.id, at)
                if following is None or len(problems) >= _TOLD:
                    break
                at = following
                continue
            rows += part.rows.num_rows
            at += part.rows.num_rows
    return Verification(rows, tuple(problems))


def _next_run(journal: Journal, partition: int, offset: int) -> int | None:
    """Return the start of the run after an offset; None if there is none."""
    sizes = journal.refreshed().index.sizes(partition)
    return next((base for base, _, _ in sizes if base > offset), None)
