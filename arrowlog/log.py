"""The interface of the log: the same for memory and for disk.

Offsets count rows and are given at commit, without gaps. One commit covers all
partitions of a topic, and the same (writer, epoch) has its effect once. Readers see
whole commits only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamfactory.spi import Partition, TopicNotFound
from streamfactory.spi.positions import MAX_PARTITION_ID

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Mapping, MutableMapping, Sequence

    import pyarrow as pa

    from streamfactory.spi import LastCommit, Position, Summary, Verification


@dataclass(frozen=True, slots=True)
class LaneBounds:
    """One partition of a topic at one moment."""

    id: int
    earliest: int
    latest: int


def no_such_partition(topic: str, partition: int, count: int) -> TopicNotFound:
    """The error for a partition that a topic of ``count`` partitions does not have."""
    known = f"s are 0 to {count - 1}" if count > 1 else " is 0"
    what = f"topic {topic!r} has no partition {partition}: its partition{known}"
    possible = 0 <= partition <= MAX_PARTITION_ID
    place = Partition(topic, partition) if possible else None
    return TopicNotFound(what, partition=place)


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Consecutive rows of one partition."""

    rows: pa.RecordBatch | None
    """None where nothing is there yet."""
    start: int
    """Offset of the first row."""
    bounds: LaneBounds
    """As they were when the slice was taken."""
    size: int = 0
    """Bytes of the rows."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What one attempt has staged: small, picklable, plain values."""

    attempt: str
    files: Sequence[Mapping[str, Any]] = ()
    """Where the rows are, in the log's own words."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What a log keeps, by partition; None is all. The strictest one decides."""

    age: float | None = None
    """Seconds since rows were appended."""
    rows: int | None = None
    """Of each partition."""
    size: int | None = None
    """Bytes of each partition, as its rows are in memory."""


class LogStage(ABC):
    """Rows of one attempt on their way into a log; nobody can read them yet."""

    @abstractmethod
    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        """Stage rows of the log's schema.

        Raises:
            TopicNotFound: permanent; there is no such partition.
            SchemaMismatch: permanent; the rows have another schema, or a value that is
                none of its type.
        """

    @abstractmethod
    def seal(self) -> Staged:
        """End the attempt: what was staged is as safe as the log is."""

    @abstractmethod
    def discard(self) -> None:
        """Forget what was staged and not sealed; twice is fine."""


class Log(ABC):
    """One topic. Thread-safe."""

    name: str
    schema: pa.Schema
    incarnation: str
    """Another one for each topic that ever had the name."""

    @abstractmethod
    def bounds(self) -> Sequence[LaneBounds]:
        """All partitions, by id; costs the same however long the log is."""

    @abstractmethod
    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        """Rows from ``start`` on, up to the limits; at least one where there is one.

        Raises:
            OffsetOutOfRange: data_loss; ``start`` is not between earliest and latest.
            TopicNotFound: permanent; the topic was deleted.
        """

    @abstractmethod
    def wait(
        self,
        partition: int,
        offset: int,
        timeout: float,
        cancelled: threading.Event | None = None,
    ) -> bool:
        """Wait until the latest is beyond ``offset``; True when it is.

        Returns early, with False, when `wake` is called after ``cancelled`` was set:
        before the wait begins, too.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make every `wait` of this log that is cancelled return."""

    @abstractmethod
    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        """First offset appended at or after a time; None where nothing was.

        By the log's own clock; where that goes back, the later time holds.
        """

    @abstractmethod
    def stage(self, attempt: str) -> LogStage:
        """Begin staging.

        What is sealed and then neither committed nor discarded is swept by age.
        """

    @abstractmethod
    def discard(self, staged: Staged) -> None:
        """Forget what an attempt sealed and nobody will commit; twice is fine."""

    @abstractmethod
    def commit(
        self,
        writer: str | None,
        epoch: int,
        staged: Sequence[Staged],
        *,
        instance: str = "",
        summary: Summary,
        source_position: Position | None = None,
        replace: bool = False,
        placed: MutableMapping[int, range] | None = None,
    ) -> LastCommit | None:
        """Append everything staged, in one step over all partitions.

        Args:
            writer: Who; None is never recognised again.
            epoch: Which; at or before the writer's last one nothing is appended.
            staged: What the attempts of this epoch sealed.
            instance: The instance of the writer that has claimed it.
            summary: Kept with the commit.
            source_position: Kept with the commit.
            replace: In the same step, move earliest past all that was there.
            placed: Where this call appends, filled with the offsets that the rows of
                each partition got.

        Returns:
            None where this call appended; the writer's last commit where it did not:
            what was staged is then discarded.

        Raises:
            MisuseError: misuse; what an attempt staged no longer exists. Nothing was
                appended.
            WriterFenced: permanent; another instance has claimed the writer.
        """

    @abstractmethod
    def claim(self, writer: str, instance: str) -> LastCommit | None:
        """What a writer committed last; from here on only this instance commits.

        Args:
            writer: Who.
            instance: A fresh uuid for each one that begins.
        """

    @abstractmethod
    def last(self, writer: str) -> LastCommit | None:
        """What a writer committed last; None where nothing is remembered."""

    @abstractmethod
    def owner(self, writer: str) -> str | None:
        """The instance that has claimed a writer; None where none has."""

    @abstractmethod
    def writers(self) -> Mapping[str, LastCommit]:
        """What each writer that is remembered committed last."""

    @abstractmethod
    def forget(self, idle: float, keep: str | None = None) -> None:
        """Forget writers that have not committed for ``idle`` seconds (rule W7).

        Args:
            idle: Seconds.
            keep: A writer that is not idle, whatever the clock says.
        """

    @abstractmethod
    def grow(self, partitions: int) -> None:
        """Have so many partitions; fewer than there are is an error.

        Raises:
            MisuseError: misuse.
        """

    @abstractmethod
    def truncate(self, before: Mapping[int, int]) -> None:
        """Let go of everything before these offsets, by partition."""

    @abstractmethod
    def retain(self, retention: Retention, hold: Mapping[int, int]) -> None:
        """Let go of what ``retention`` does not keep.

        Args:
            retention: What to keep.
            hold: By partition, an offset from which on all is kept.
        """

    def sweep(self) -> None:  # noqa: B027 - not every log has files
        """Remove what attempts staged and nobody decided for a day."""

    def compact(self) -> None:  # noqa: B027 - not every log has files
        """Merge small segments and sweep what nobody needs; offsets stay."""

    @abstractmethod
    def verify(self) -> Verification:
        """Read everything, and check it against what was committed."""

    def facts(self) -> Mapping[str, str | int]:
        """What is worth showing: segments, bytes, ..."""
        return {}


class LogStore(ABC):
    """A place with topics. Thread-safe."""

    @abstractmethod
    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> Log:
        """Create a topic.

        Raises:
            MisuseError: misuse; there is one of that name, or it would have no
                partition.
            SchemaMismatch: permanent; the schema has a type that streams do not carry.
        """

    @abstractmethod
    def open(self, name: str) -> Log:
        """The topic of that name.

        Raises:
            TopicNotFound: permanent.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a topic and all that it holds.

        Raises:
            TopicNotFound: permanent.
        """

    @abstractmethod
    def names(self) -> Sequence[str]:
        """All topics, sorted."""
