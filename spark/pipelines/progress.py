"""Translation of Spark's progress reports."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from streamfactory.spi import PositionRefused
from streamfactory.wiring.microbatch import BatchOffset


@dataclass(frozen=True, slots=True)
class Batch:
    """A committed batch."""

    pipeline: str
    batch: int
    rows: int
    """Rows read from the source."""
    seconds: float
    rows_per_second: float
    offsets: dict[str, dict[str, int]]
    """The next offset of each partition of each topic."""
    lag: dict[str, dict[str, int]]
    """Available offsets that were not read yet when the batch was planned."""
    watermark: str | None
    """The watermark at the start of this batch."""
    dropped: int
    """Rows or groups that were dropped because they were later than the watermark."""
    time: str

    def plain(self) -> dict[str, Any]:
        """As values for JSON."""
        return asdict(self)

    @property
    def behind(self) -> int:
        """The total lag."""
        return sum(sum(by_id.values()) for by_id in self.lag.values())


def batch_of(pipeline: str, text: str, scans: int) -> Batch:
    """Read a progress report.

    Args:
        pipeline: Its name.
        text: The report, as Spark's JSON.
        scans: How often the query reads the source; Spark counts each row as often.
    """
    report = json.loads(text)
    source = report["sources"][0]
    ends, latest = _offsets(source["endOffset"]), _offsets(source.get("latestOffset"))
    lag = {
        topic: {
            number: max(0, last - ends.get(topic, {}).get(number, 0))
            for number, last in by_id.items()
        }
        for topic, by_id in latest.items()
    }
    seconds = report["durationMs"].get("triggerExecution", 0) / 1000
    rows = report["numInputRows"] // scans
    return Batch(
        pipeline,
        report["batchId"],
        rows,
        seconds,
        round(rows / seconds, 1) if seconds else 0.0,
        ends,
        lag,
        report.get("eventTime", {}).get("watermark"),
        sum(
            one.get("numRowsDroppedByWatermark", 0) for one in report["stateOperators"]
        ),
        report["timestamp"],
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
