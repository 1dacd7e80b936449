"""What a pipeline reports: its committed batches, and its end. Needs no Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamfactory.wiring.controls.states import Pause


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
class Way:
    """How the rows of a sink are written."""

    sink: str
    refused: str | None
    """Why Spark's Parquet writer does not write them; None if it does."""
    parquet: bool
    """Whether the stream is configured for segments of Parquet."""
    real_time: bool = False
    """Whether Spark's own connector writes them."""

    @property
    def notable(self) -> bool:
        """Whether it is another way than usual, or another was configured."""
        return self.parquet or self.refused is None or self.real_time

    def __str__(self) -> str:
        if self.real_time:
            return "Spark's Kafka connector, in real time"
        if self.refused is None:
            return "Spark's Parquet writer"
        return f"format('streamfactory'): {self.refused}"


@dataclass(slots=True)
class Outcome:
    """The result of a pipeline."""

    pipeline: str
    batches: int = 0
    rows: int = 0
    seconds: float = 0.0
    dropped: int = 0
    unmet: Counter[str] = field(default_factory=Counter)
    """Rows that did not fulfil expectations, by name."""
    last: Batch | None = None
    """The last batch of this run."""
    went_on: str = ""
    """Where it started, and why."""
    promise: str = ""
    """The guarantee, with its reasons."""
    ways: tuple[Way, ...] = ()
    """How streams are written."""
    endless: bool = False
    """Whether it runs until it is stopped."""
    stopped: bool = False
    """Whether it was stopped before it was complete."""
    pause: Pause | None = None
    """Why it waited when it was stopped, or did not begin."""
    failure: str | None = None
    """Why it failed; None if it did not."""
    changes: tuple[str, ...] = ()
    """What changed since it started in its file, or in streams that it uses."""

    def follow(self, before: Outcome) -> None:
        """Add what the run before this one did; this one continued it."""
        self.batches += before.batches
        self.rows += before.rows
        self.seconds += before.seconds
        self.dropped += before.dropped
        self.unmet.update(before.unmet)
        self.last = self.last or before.last
        self.went_on = before.went_on

    @property
    def complete(self) -> bool:
        """Whether it ran to its end without failure."""
        return self.failure is None and (self.endless or not self.stopped)
