"""A session on two cores, and the six columns that benchmarks of Spark move."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from benchmarks.measuring.figures import figure, seconds

from streamfactory.spark import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.measuring.figures import Figure
    from pyspark.sql import SparkSession

COLUMNS: Final = (
    "id",
    "cast(id % 1000 as int) as user",
    "id * 0.5D as price",
    "concat('item ', id % 5000) as item",
    "timestamp_micros(1700000000000000 + id) as at",
    "id % 7 = 0 as bought",
)


def session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A silent one, with more settings."""
    prepare_environment(local=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's, of pandas 3
        from pyspark.sql import SparkSession

        builder: Any = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
        )
        made: SparkSession = builder.config(map=dict(settings or {})).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def topic(folder: Path, name: str, **options: str) -> dict[str, str]:
    """The options of a topic of ``file``, unsynced as files of Parquet are."""
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "topics"),
        "stream.file.topic.name": name,
        "stream.file.fsync": "never",
        **options,
    }


class Turns:
    """Sides that take turns, by time and by processor time of Spark's Java process.

    Figures are ratios to one side, the medians of all rounds but the first ones. To be
    created once the session has started.

    Args:
        peer: The side to which others are compared.
        warming: Rounds that are not counted.
    """

    def __init__(self, peer: str, *, warming: int) -> None:
        self.warming = warming
        self._peer = peer
        self._java = java_process()
        self._taken: dict[str, list[tuple[float, float]]] = {}

    def take(self, side: str, task: Callable[[], object]) -> None:
        """Measure one side, once in each round."""
        before = _processor_seconds(self._java)
        one = seconds(task), _processor_seconds(self._java) - before
        self._taken.setdefault(side, []).append(one)

    def figures(self, rows: int, goals: Mapping[str, str]) -> Iterator[Figure]:
        """Return a figure for each side but the peer.

        Args:
            rows: How many a task moves.
            goals: By side.
        """
        taken = {side: found[self.warming :] for side, found in self._taken.items()}
        peers = taken.pop(self._peer)
        for side, mine in taken.items():
            pairs = list(zip(peers, mine, strict=True))
            by_time = [peer[0] / own[0] for peer, own in pairs]
            by_processor = figure("", [p[1] / o[1] for p, o in pairs], "x", "")
            beside = {"by processor": by_processor.value}
            text = f"{side} of {rows} rows, of {self._peer}'s"
            yield figure(text, by_time, "x", goals[side], beside)


def java_process() -> Path:
    """Return the status of the Java process that this one has started."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        if "(java)" in path.read_text() and _stat_of(path)[1] == str(os.getpid()):
            return path
    msg = "this process has started no Java process"
    raise LookupError(msg)


def _stat_of(status: Path) -> list[str]:
    """Return the fields of the status of a process behind its name."""
    return status.read_text().rpartition(")")[2].split()


def _processor_seconds(process: Path) -> float:
    """Return the processor time of a process."""
    fields = _stat_of(process)
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
