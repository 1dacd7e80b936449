"""Translation of Spark's progress reports."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from streamfactory.spark.versions import ADMISSION
from streamfactory.spi import Position, PositionRefused
from streamfactory.wiring.microbatch import BatchOffset


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds of the steps of a batch."""

    plan: float = 0.0
    """Latest offsets, ranges and Spark's query plan."""
    write: float = 0.0
    """Tasks, and the commits of the sinks."""
    checkpoint: float = 0.0
    """Writing of Spark's offset log and commit log."""


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
    """Available offsets that were not read yet when the batch was planned; empty if
    they are unknown, as before PySpark 4.2."""
    watermark: str | None
    """The watermark at the start of this batch."""
    dropped: int
    """Rows or groups that were dropped because they were later than the watermark."""
    time: str
    durations: Durations = field(default_factory=Durations)
    state_rows: int = 0
    """Rows in the state of the query."""
    starts: dict[str, dict[str, int]] = field(default_factory=dict)
    """The first offset of each partition in this batch."""

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
    ends = _offsets(source["endOffset"])
    # Before 4.2 Spark reports the end of the batch as the latest offset, too.
    latest = _offsets(source.get("latestOffset")) if ADMISSION else {}
    lag = {
        topic: {
            number: max(0, last - ends.get(topic, {}).get(number, 0))
            for number, last in by_id.items()
        }
        for topic, by_id in latest.items()
    }
    millis = report["durationMs"]
    seconds = millis.get("triggerExecution", 0) / 1000
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
        Durations(
            _sum(millis, "latestOffset", "getBatch", "queryPlanning"),
            _sum(millis, "addBatch"),
            _sum(millis, "walCommit", "commitBatch", "commitOffsets"),
        ),
        sum(one.get("numRowsTotal", 0) for one in report["stateOperators"]),
        _starts(source),
    )


def _sum(millis: dict[str, int], *steps: str) -> float:
    return sum(millis.get(step, 0) for step in steps) / 1000


def _starts(source: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Where the previous batch ended, and where new partitions begin."""
    before, after = _parsed(source.get("startOffset")), _parsed(source["endOffset"])
    position = Position() if before is None else before.at or Position()
    if after is not None:
        position = position.merge(after.begun)
    return _plain(position)


def _offsets(plain: Any) -> dict[str, dict[str, int]]:
    found = _parsed(plain)
    return {} if found is None or found.at is None else _plain(found.at)


def _parsed(plain: Any) -> BatchOffset | None:
    if isinstance(plain, str):
        plain = json.loads(plain)
    try:
        return BatchOffset.from_plain(plain)
    except PositionRefused:
        return None


def _plain(position: Position) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(position.to_json())["offsets"]
    return found
