"""Translation of Spark's progress reports."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamfactory.spark.checkpoints.reading import kafka_position
from streamfactory.spark.pipelines.observing import reported
from streamfactory.spark.pipelines.outcomes import Batch, ByTopic, Durations, Read
from streamfactory.spark.versions import ADMISSION
from streamfactory.spi import Position, PositionRefused
from streamfactory.wiring.microbatch import BatchOffset

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Scan:
    """One reading of a source in the plan of a query."""

    source: str
    """Id of the source of the pipeline."""
    relation: int = 0
    """Number of the relation: scans of one relation are one source for Spark, which has
    its position once for each of them, and counts its rows once for each."""


def batch_of(pipeline: str, text: str, scans: Sequence[Scan]) -> Batch:
    """Read a progress report.

    Args:
        pipeline: Its name.
        text: The report, as Spark's JSON.
        scans: How the query reads its sources.
    """
    report = json.loads(text)
    sources = _reads(report["sources"], scans)
    millis = report["durationMs"]
    seconds = millis.get("triggerExecution", 0) / 1000
    rows = sum(read.rows for read in sources.values())
    return Batch(
        pipeline,
        report["batchId"],
        rows,
        seconds,
        round(rows / seconds, 1) if seconds else 0.0,
        _merged({name: read.offsets for name, read in sources.items()}),
        _merged({name: read.lag for name, read in sources.items()}),
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
        _merged({name: read.starts for name, read in sources.items()}),
        sources,
        expectations=reported(report.get("observedMetrics", {})),
    )


def _reads(reports: Sequence[dict[str, Any]], scans: Sequence[Scan]) -> dict[str, Read]:
    times = Counter(scan.relation for scan in scans)
    names = {scan.relation: scan.source for scan in scans}
    found: dict[str, Read] = {}
    # Relations are numbered in the order of their first scans, as in the report.
    for (relation, name), source in zip(names.items(), reports, strict=True):
        if name in found:
            continue
        ends = _offsets(source["endOffset"])
        # Before 4.2 Spark reports the end of the batch as the latest offset, too.
        # In real time it is that of the begin of the batch.
        known = ADMISSION and not _of_kafka(source["endOffset"])
        latest = _offsets(source.get("latestOffset")) if known else {}
        lag = {
            topic: {
                number: max(0, last - ends.get(topic, {}).get(number, 0))
                for number, last in by_id.items()
            }
            for topic, by_id in latest.items()
        }
        rows = source["numInputRows"] // times[relation]
        found[name] = Read(rows, ends, lag, _starts(source))
    return found


def _merged(by_source: dict[str, ByTopic]) -> ByTopic:
    """One table of all sources."""
    topics = Counter(topic for by_topic in by_source.values() for topic in by_topic)
    return {
        topic if topics[topic] == 1 else f"{name}:{topic}": by_id
        for name, by_topic in by_source.items()
        for topic, by_id in by_topic.items()
    }


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
        found = kafka_position(json.dumps(plain))
        return None if found is None else BatchOffset(found)


def _of_kafka(plain: Any) -> bool:
    """Whether an offset is of Spark's Kafka connector."""
    return kafka_position(json.dumps(plain)) is not None


def _plain(position: Position) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(position.to_json())["offsets"]
    return found
