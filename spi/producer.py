"""The writing half of the contract: the twins of consumer and provider.

A task writes through a `StreamWriter` and ends with a `CommitMessage`; one
`StreamCommitter` makes all messages of an epoch visible at once. The framework's final
``Writer`` and ``Committer`` route rows, check schemas, drain what is there already and
compare summaries; Spark, the command line and the kit hold only those.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Final

from streamfactory.spi.claims import Claims
from streamfactory.spi.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from streamfactory.spi.config import StreamConfig
    from streamfactory.spi.ends import End
    from streamfactory.spi.positions import Position

CARRIED_COLUMNS: Final = ("_key", "_headers", "_timestamp", "_topic")
"""The framework's columns that a sink may store: what ``CARRIES`` may name."""


class WriteKind(Enum):
    """Whether epochs continue one another (rule W7)."""

    BATCH = "batch"
    STREAMING = "streaming"


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Who writes (rule W1). Pickles; the same for all rows of one attempt."""

    writer_id: str | None
    """Survives restarts; None where no idempotence is claimed."""
    epoch: int
    """At least 0, rising per writer."""
    task: int
    """Number of the task within the epoch; may differ on a replay."""
    attempt: str
    """A fresh uuid for every try of every task."""
    kind: WriteKind = WriteKind.STREAMING
    schema: pa.Schema | None = field(default=None, compare=False)
    """The schema of the rows to come, without the framework's columns; a writer that
    gets no rows at all still knows it. Not carried by commit messages."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Rows on their way to one partition: routed and checked (rule W8)."""

    rows: pa.RecordBatch
    """The row itself, without the columns below, of exactly ``WriteContext.schema``:
    times in UTC, no large and no view types, dictionaries where
    ``KEEPS_DICTIONARIES``. Of a backend that yields envelopes: one binary column
    ``value``, encoded, where null is a tombstone. The backend may keep it."""
    partition: int
    """Where it goes: an id that the sink said it has."""
    key: pa.Array | None = None
    """Column ``_key``: binary or string."""
    headers: pa.Array | None = None
    """Column ``_headers``: `headers_type`."""
    timestamp: pa.Array | None = None
    """Column ``_timestamp``: timestamp[us, UTC]."""
    topic: str | None = None
    """From column ``_topic``, where a sink takes several."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What was written, independent of order and of the number of tasks.

    A sink that remembers epochs stores both members as they are, and returns them in
    `LastCommit`.
    """

    rows: int = 0
    sums: Mapping[str, int] = field(default_factory=dict)
    """By algorithm: a digest of the content, from 0 to 2^128 - 1; digests of parts
    are added modulo 2^128. Empty unless ``epoch.mismatch`` is ``fail``."""

    def __add__(self, other: Summary) -> Summary:
        names = {**self.sums, **other.sums}
        sums = {n: self.sums.get(n, 0) + other.sums.get(n, 0) for n in names}
        sums = {name: digest % 2**128 for name, digest in sums.items()}
        return Summary(self.rows + other.rows, sums)


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """What a task hands to the committer. Pickles; small, for it crosses the driver."""

    context: WriteContext
    summary: Summary = field(default_factory=Summary)
    """Filled in by the framework."""
    payload: Any = None
    """The author's: plain values only (str, bytes, numbers, lists, dicts)."""
    config_digest: str = ""
    """Of the configuration that the task wrote under. Filled in by the framework: a
    task and its committer may have read a named stream at different times."""
    drained: bool = False
    """The task found its epoch there already and wrote nothing: there is no payload."""


@dataclass(frozen=True, slots=True)
class LastCommit:
    """What a sink remembers of a writer: one entry each (rule W7)."""

    epoch: int
    source_position: Position | None = None
    """Stored with the commit, so that data and position cannot part."""
    summary: Summary | None = None
    """Of the commit messages, added up. A repetition of the epoch is compared with it:
    by the number of rows, and by content where ``epoch.mismatch`` is ``fail``."""


class StreamWriter(ABC):
    """Writes the rows of one attempt of one task.

    One thread at a time calls it; ``wake`` alone may come from another. After an
    exception out of ``write`` or ``commit`` only ``abort`` and ``close`` follow.
    """

    @abstractmethod
    def write(self, outgoing: Outgoing) -> None:
        """Take rows for one partition. May block for back-pressure.

        Nothing of them can be read before the decision, where the backend claims
        ``epoch_visibility`` whole or task. After `end` says that the other side is
        gone, it takes rows and does nothing.
        """

    def wake(self) -> None:
        """Make a blocked ``write`` return or raise. Called from another thread, once.

        It comes before the writer is closed: ``abort`` and ``close`` follow. Override
        it where a write can block for good (a reader that stalls); it may come before
        the write blocks, so it is remembered.
        """
        msg = f"{type(self).__name__} cannot be woken"
        raise Unsupported(msg)

    @abstractmethod
    def commit(self) -> Any:
        """End this attempt; what was written is safe, though not yet visible.

        Called once, after the last ``write``. Returns the ``payload`` of the commit
        message. With ``epoch_visibility`` task this is where rows become visible. The
        server's verdict is known before it returns (rule W6).
        """

    def abort(self) -> None:  # noqa: B027 - nothing relies on it being called
        """Leave nothing of this attempt behind. May never be called (rule W1).

        Without epochs rows cannot be taken back: then break the stream, so that its
        reader learns of a failure rather than reading the next attempt as more.
        """

    @property
    def end(self) -> End | None:
        """How the other side ended the stream; None while it has not.

        A reader that has enough (`ReaderFinished`) is no error: the framework stops
        writing. May poll the connection; never blocks.
        """
        return None

    def close(self) -> None:  # noqa: B027 - a writer that holds nothing may keep this
        """Give back all that was opened. Called once, after commit or abort."""


class StreamCommitter(ABC):
    """Decides epochs of one writer. Lives in one process, mostly the driver."""

    @abstractmethod
    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        """Make the epoch visible, whole (rule W2); the first commit of it wins (W3).

        A repeat, also after a restart and by another process, is a no-op, and forgets
        what its messages staged. When the verdict is not known (a lost reply), find
        out before answering (rule W6): this may take long behind another writer's open
        transaction, and ends, at the latest, in `StreamTimeout`.

        Args:
            epoch: The epoch.
            messages: One for each task that wrote; may be empty.
            source_position: Stored with the commit.

        Returns:
            None where this call made the commit; what the sink holds already where the
            epoch was there, or is older than the last one.

        Raises:
            WriterFenced: permanent; a later instance has claimed the writer. Nothing
                was committed.
        """

    def abort(  # noqa: B027 - nothing to undo where nothing is staged
        self, epoch: int, messages: Sequence[CommitMessage]
    ) -> None:
        """Forget what was staged. May come twice (rule W4).

        There is a message of each task that sent one: one that failed, or still runs,
        has none. What was staged may be gone already, and the topic with it.
        Staged rows that nobody aborts are swept by age; nothing relies on this call.
        """

    def replace(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        """Commit an epoch that replaces everything before it, in the same instant.

        Override it to have the ability; otherwise as `commit`.
        """
        msg = f"{type(self).__name__} cannot replace what is there at once"
        raise Unsupported(msg)

    def last(self) -> LastCommit | None:
        """What this writer committed last; None where nothing is remembered.

        Claims the writer: once it has answered, no earlier instance of this writer can
        commit any more: its commit raises `WriterFenced`. An instance claims once, with
        its first question or its first commit, and the last to do so is the writer:
        an instance that was fenced stays fenced, however often it asks. Never None for
        what is not known yet.
        """
        return None

    def close(self) -> None:  # noqa: B027 - a committer that holds nothing may keep this
        """Give back all that was opened."""


class ProducerFactory(ABC):
    """Makes everything that writes one stream. The rules of `ConsumerFactory` hold."""

    CLAIMS: ClassVar[Claims] = Claims()
    """The most that any configuration can claim."""

    CARRIES: ClassVar[frozenset[str]] = frozenset()
    """Which of ``_key``, ``_headers``, ``_timestamp``, ``_topic`` it stores; others
    are dropped with a warning and a count, and no other name is accepted at load. Typed
    rows have no place for the first three: there only ``_topic`` is looked at."""

    KEEPS_DICTIONARIES: ClassVar[bool] = False
    """True: rows keep their dictionary types, nested ones included. False: they are
    decoded first. Rows that an encoder makes messages of are always decoded. A schema
    that the sink insists on (`fetch_schema`) holds as it is."""

    def __init__(self, config: StreamConfig) -> None:
        self.config = config

    @abstractmethod
    def create_writer(self, context: WriteContext) -> StreamWriter:
        """Make the writer of one attempt. A failure leaves nothing open."""

    @abstractmethod
    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        """Make the committer of one writer. Fences nobody before it is first used."""

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        """What a writer committed last, as far as it can be read from outside.

        Claims nothing and fences nobody: tasks ask it beside a live committer, to skip
        work that is done already. None where nothing is remembered, or known.
        """
        return None

    @abstractmethod
    def fetch_partition_count(self, topic: str) -> int:
        """How many partitions rows are spread over; ids are 0 to n-1."""

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        """The schema that the sink insists on; None where the first rows decide it.

        A sink of undecoded messages answers `envelope_schema()`.
        """
        return None

    def claims(self) -> Claims:
        """The claims under this configuration; never more than ``CLAIMS``."""
        return self.CLAIMS

    def end_stream(self, end: End) -> None:  # noqa: B027 - most streams have no end
        """Tell readers how the stream ends. Called once, by whoever owns the stream.

        Only `Finished` lets a reader end well; without the call, closing tells it of a
        failure. Returns when the other side's verdict is known, or raises it.
        """

    def close(self) -> None:  # noqa: B027 - a factory that shares nothing may keep this
        """Give back what the objects made here share. Called last."""

    def __reduce__(self) -> tuple[type[ProducerFactory], tuple[StreamConfig]]:
        return type(self), (self.config,)
