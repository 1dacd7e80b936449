"""What a query says of a batch, in the words of streams."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from streamfactory.spi import PositionRefused
from streamfactory.wiring.microbatch import BatchOffset


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch that is committed."""

    pipeline: str
    batch: int
    rows: int
    """Read from the source."""
    seconds: float
    rows_per_second: float
    offsets: dict[str, dict[str, int]]
    """The next offset of each partition of each topic."""
    lag: dict[str, dict[str, int]]
    """Offsets that were there and not yet read, where the batch was planned."""
    watermark: str | None
    """The event time below which rows are dropped, as this batch began."""
    dropped: int
    """Rows, or groups of them, that came after the watermark and were dropped."""
    time: str

    def plain(self) -> dict[str, Any]:
        """As one line of JSON has it."""
        return asdict(self)

    @property
    def behind(self) -> int:
        """The whole lag."""
        return sum(sum(by_id.values()) for by_id in self.lag.values())


def batch_of(pipeline: str, text: str, scans: int) -> Batch:
    """Read a progress report.

    Args:
        pipeline: Its name.
        text: The report, as Spark's JSON.
        scans: How often the query reads the source; Spark counts each row as often.
    """
    said = json.loads(text)
    source = said["sources"][0]
    ends, latest = _offsets(source["endOffset"]), _offsets(source.get("latestOffset"))
    lag = {
        topic: {
            number: max(0, last - ends.get(topic, {}).get(number, 0))
            for number, last in by_id.items()
        }
        for topic, by_id in latest.items()
    }
    seconds = said["durationMs"].get("triggerExecution", 0) / 1000
    rows = said["numInputRows"] // scans
    return Batch(
        pipeline,
        said["batchId"],
        rows,
        seconds,
        round(rows / seconds, 1) if seconds else 0.0,
        ends,
        lag,
        said.get("eventTime", {}).get("watermark"),
        sum(one.get("numRowsDroppedByWatermark", 0) for one in said["stateOperators"]),
        said["timestamp"],
    )


def _offsets(plain: Any) -> dict[str, dict[str, int]]:
    if isinstance(plain, str):
        plain = json.loads(plain)
    try:
        position = BatchOffset.from_plain(plain).at
    except PositionRefused:
        return {}
    if position is None:
        return {}
    found: dict[str, dict[str, int]] = json.loads(position.to_json())["offsets"]
    return found
