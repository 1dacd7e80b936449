"""Runs a streaming query, and measures its triggers with a row and without any."""

from __future__ import annotations

import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

ROW: Final = "trigger of one row"
IDLE: Final = "trigger without rows"
TRIGGERS: Final = {ROW: 12, IDLE: 30}
"""Measured triggers of each kind."""
WARMING: Final = 4
"""Triggers of each kind that are not counted."""
ROWS: Final = 1 + WARMING + TRIGGERS[ROW]
"""Of a stream that ends: the first batch is not counted either."""
CONF: Final = {
    # Triggers without rows are reported as well, and all reports are kept.
    "spark.sql.streaming.noDataProgressEventInterval": "0",
    "spark.sql.streaming.numRecentProgressUpdates": "2000",
}
"""Settings of the session."""
_AVERAGE: Final = {ROW: statistics.median, IDLE: statistics.mean}
_PERIOD: Final = 0.2
"""Seconds between two looks at a query: a look costs processor time."""
_PATIENCE: Final = 240
"""Seconds."""


def milliseconds(
    frame: DataFrame, folder: Path, kinds: Sequence[str]
) -> dict[str, float]:
    """Return what a trigger of each kind takes.

    For triggers without rows it is the mean, because they take a few milliseconds, of
    which Spark reports whole ones; for others the median.

    Args:
        frame: Of a stream. If `ROW` is wanted, its first `ROWS` batches have one row
            each.
        folder: Gets the checkpoint while the query runs.
        kinds: `ROW`, `IDLE`, or both: the stream then has `ROWS` rows.

    Raises:
        TimeoutError: The query made no such triggers.
    """
    with tempfile.TemporaryDirectory(dir=folder) as checkpoint:
        query = (
            frame.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            found = _triggers(query, kinds)
        finally:
            query.stop()
    return {
        kind: max(0.1, _AVERAGE[kind](found[kind][WARMING:][: TRIGGERS[kind]]))
        for kind in kinds
    }


def _triggers(query: StreamingQuery, kinds: Sequence[str]) -> dict[str, list[int]]:
    """Milliseconds of enough triggers of each kind."""
    last = ROWS - 1 if ROW in kinds else 1
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        time.sleep(_PERIOD)
        if query.exception() is not None:
            raise query.exception()  # type: ignore[misc]  # it is not None
        progress = query.lastProgress
        if progress is None or progress["batchId"] < last:
            continue
        found: dict[str, list[int]] = {ROW: [], IDLE: []}
        for one in query.recentProgress:
            if one["batchId"]:
                rows = one["numInputRows"]
                # Only `rate` has more, where it is behind: it is measured without rows.
                assert rows <= 1 or ROW not in kinds
                found[ROW if rows else IDLE].append(
                    one["durationMs"]["triggerExecution"]
                )
        if all(len(found[kind]) >= WARMING + TRIGGERS[kind] for kind in kinds):
            return found
    msg = f"the query made too few triggers in {_PATIENCE} s: {query.lastProgress}"
    raise TimeoutError(msg)
