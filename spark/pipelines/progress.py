"""Translation of Spark's progress reports."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from streamfactory.spark.pipelines.observing import reported
from streamfactory.spark.versions import ADMISSION
from streamfactory.spi import Position, PositionRefused
from streamfactory.wiring.microbatch import BatchOffset

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds of the steps of a batch."""

    plan: float = 0.0
    """Latest offsets, ranges and Spark's query plan."""
    write: float = 0.0
    """Tasks, and the commits of the sinks."""
    checkpoint: float = 0.0
    """Writing of Spark's offset log and commit log."""


ByTopic = dict[str, dict[str, int]]
"""Numbers by topic and partition."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a batch read of one source."""

    rows: int
    offsets: ByTopic
    """The next offset of each partition of each topic."""
    lag: ByTopic
    starts: ByTopic
    """The first offset of each partition in this batch."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A committed batch.

    Offsets are by topic, and then by partition. Of topics of one name in several
    sources the keys are ``ID:TOPIC``.
    """

    pipeline: str
    batch: int
    rows: int
    """Rows read from the sources."""
    seconds: float
    rows_per_second: float
    offsets: ByTopic
    """The next offset of each partition of each topic."""
    lag: ByTopic
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
    starts: ByTopic = field(default_factory=dict)
    """The first offset of each partition in this batch."""
    sources: dict[str, Read] = field(default_factory=dict)
    """The same of each source, by its id."""
    lookups: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the batch used of each lookup, by its id: when it was read, its rows, and
    offsets, files or version."""
    expectations: dict[str, int] = field(default_factory=dict)
    """Rows that did not fulfil an expectation, by its name."""

    def plain(self) -> dict[str, Any]:
        """As values for JSON."""
        return asdict(self)

    @property
    def behind(self) -> int:
        """The total lag."""
        return sum(sum(by_id.values()) for by_id in self.lag.values())


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
        latest = _offsets(source.get("latestOffset")) if ADMISSION else {}
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
        return None


def _plain(position: Position) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(position.to_json())["offsets"]
    return found
