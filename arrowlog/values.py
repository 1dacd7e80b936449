"""The values that go into a log and come out of it: epochs, slices, bounds, limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.carried import CarriedRows
    from streamfactory.spi import LastCommit, Position, Summary


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """The bounds of one partition at one moment."""

    id: int
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class LogSlice:
    """Consecutive rows of one partition."""

    rows: pa.RecordBatch | None
    """None if there are no rows yet."""
    start: int
    """Offset of the first row."""
    bounds: PartitionBounds
    """The bounds at the time of the read."""
    size: int = 0
    """Bytes of the rows."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Rows of one partition in a file that other programs read."""

    path: str
    partition: int
    base: int
    """Offset of the first row of the file."""
    start: int
    """Offset of the first row that is wanted; inclusive."""
    end: int
    """Exclusive."""
    rows: int
    """Rows of the whole file."""
    constants: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """Values of columns that the file does not have, the same in all of its rows."""


class StoredRows(Protocol):
    """What is stored in files that other programs read."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""

    @property
    def incarnation(self) -> str | None:
        """Changes when it is recreated."""

    def files(self, partition: int, start: int, end: int) -> Sequence[StoredFile]:
        """See `Log.files`."""


class StoresRows(ABC):
    """A consumer factory whose rows are stored so."""

    @abstractmethod
    def stored(self, topic: str) -> StoredRows:
        """What is stored of a topic.

        Raises:
            Unsupported: misuse; its rows are not in such files.
            TopicNotFound: permanent.
        """


@dataclass(frozen=True, slots=True)
class Staged:
    """The staged rows of one attempt: small, picklable, plain values."""

    attempt: str
    files: Sequence[Mapping[str, Any]] = ()
    """Locations of the rows, in a form of the log."""
    rows: CarriedRows | None = None
    """The rows themselves, if the caller asked for it; on disk, if they are few."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one commit appends, over all partitions."""

    writer: str | None
    """Writer id; None for no idempotence."""
    number: int
    """If it is not after the writer's last one, nothing is appended."""
    staged: Sequence[Staged]
    """Results of the attempts of this epoch."""
    summary: Summary
    """Stored with the commit."""
    instance: str = ""
    """The instance that has claimed the writer."""
    position: Position | None = None
    """Position of the source; stored with the commit."""
    replace: bool = False
    """Whether to delete all earlier rows atomically."""

    @property
    def attempts(self) -> Sequence[Staged]:
        """The staged rows, each attempt once."""
        return list({one.attempt: one for one in self.staged}.values())


@dataclass(frozen=True, slots=True)
class Committed:
    """The result of a commit."""

    held: LastCommit | None = None
    """None if this call appended; otherwise the writer's last commit."""
    placed: Mapping[int, range] = field(default_factory=dict)
    """Offsets of the rows that this call appended, by partition."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention limits by partition; None is unlimited. The strictest applies."""

    age: float | None = None
    """Seconds since rows were appended."""
    rows: int | None = None
    """Rows of each partition."""
    size: int | None = None
    """Bytes of each partition, as its rows are in memory."""
