"""The writing half of the contract.

A task writes through a `StreamWriter` and ends with a `CommitMessage`; one
`StreamCommitter` makes all messages of an epoch visible at once. The framework's final
``Writer`` and ``Committer`` route rows, check schemas, drain epochs that are committed
already and compare summaries; Spark, the command line and the kit use only those.
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

TOMBSTONE: Final = "_tombstone"
"""Name of the framework's column of booleans: whether the message of a row has no
value. Writers make such a message of the row again."""
CARRIED_COLUMNS: Final = ("_key", "_headers", "_timestamp", "_topic")
"""The framework's columns that a sink may store: the possible values of ``CARRIES``."""


class WriteKind(Enum):
    """Whether epochs form a sequence (rule W7)."""

    BATCH = "batch"
    STREAMING = "streaming"


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Identifies one attempt of a task (rule W1).

    Pickles; the same for all its rows.

    Args:
        writer_id: Survives restarts; None if no idempotence is claimed.
        epoch: At least 0, increasing per writer.
        task: Number of the task within the epoch; may differ on a replay.
        attempt: A new uuid for every attempt of every task.
        kind: Whether epochs continue one another.
        schema: The schema of the rows, without the framework's columns; known even if
            the attempt has no rows. Not part of commit messages.
    """

    writer_id: str | None
    epoch: int
    task: int
    attempt: str
    kind: WriteKind = WriteKind.STREAMING
    schema: pa.Schema | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Rows for one partition, routed and checked (rule W8).

    Args:
        rows: The rows, without the columns below, of exactly ``WriteContext.schema``:
            times in UTC, no large and no view types, dictionaries where
            ``KEEPS_DICTIONARIES``. Of a backend that yields envelopes: one binary
            column ``value``, encoded, where null is a tombstone. The backend may keep
            it.
        partition: The target partition: an id that the sink has.
        key: Column ``_key``: binary or string.
        headers: Column ``_headers``: `headers_type`.
        timestamp: Column ``_timestamp``: timestamp[us, UTC].
        topic: Column ``_topic``, if a sink accepts several topics.
    """

    rows: pa.RecordBatch
    partition: int
    key: pa.Array | None = None
    headers: pa.Array | None = None
    timestamp: pa.Array | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary of the written rows, independent of order and number of tasks.

    A sink that remembers epochs stores both fields unchanged, and returns them in
    `LastCommit`.

    Args:
        rows: Number of rows.
        sums: By algorithm: a digest of the content, from 0 to 2^128 - 1; digests of
            parts are added modulo 2^128. Empty unless ``epoch.mismatch`` is ``fail``.
    """

    rows: int = 0
    sums: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Summary) -> Summary:
        names = {**self.sums, **other.sums}
        sums = {n: self.sums.get(n, 0) + other.sums.get(n, 0) for n in names}
        sums = {name: digest % 2**128 for name, digest in sums.items()}
        return Summary(self.rows + other.rows, sums)


@dataclass(frozen=True, slots=True)
class CommitMessage:
    """The result of a task, for the committer.

    Pickles; small: the driver collects all.

    Args:
        context: Of the attempt that sends it, without the schema.
        summary: Set by the framework.
        payload: The author's: plain values only (str, bytes, numbers, lists, dicts).
        config_digest: Digest of the task's configuration. Set by the framework: a task
            and its committer may have loaded a named stream at different times.
        drained: The epoch was committed already and the task wrote nothing: there is no
            payload.
    """

    context: WriteContext
    summary: Summary = field(default_factory=Summary)
    payload: Any = None
    config_digest: str = ""
    drained: bool = False


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last commit of a writer: a sink stores one per writer (rule W7).

    Args:
        epoch: The last epoch that the writer committed.
        source_position: Stored with the commit, so that data and position are always
            consistent.
        summary: The sum over the commit messages. A repeated epoch is compared with it:
            by the number of rows, and by content if ``epoch.mismatch`` is ``fail``.
    """

    epoch: int
    source_position: Position | None = None
    summary: Summary | None = None


class StreamWriter(ABC):
    """Writes the rows of one attempt of one task.

    Created and called by the framework's `Writer`, in the process of the task. One
    thread at a time calls it, not necessarily the one that created it; only ``wake``
    may be called from another. After an exception from ``write`` or ``commit`` only
    ``abort`` and ``close`` are called.
    """

    @abstractmethod
    def write(self, outgoing: Outgoing) -> None:
        """Write rows to one partition. May block for back-pressure.

        Called for each partition of each batch, by the thread that writes. The rows
        are checked, routed, and not empty.

        They cannot be read before the commit, if the backend claims
        ``epoch_visibility`` whole or task. After `end` returned an end, it ignores
        rows.
        """

    def wake(self) -> None:
        """Make a blocked ``write`` return or raise. Called from another thread, once.

        Called before the writer is closed: ``abort`` and ``close`` follow. Override it
        if a write can block indefinitely (a stalled reader). It may be called before
        the write blocks, so the writer must remember it.
        """
        msg = f"{type(self).__name__} cannot be woken"
        raise Unsupported(msg)

    @abstractmethod
    def commit(self) -> Any:
        """End this attempt; its rows are stored safely, but not yet visible.

        Called once, after the last ``write``. Returns the ``payload`` of the commit
        message. With ``epoch_visibility`` task the rows become visible here. The
        server's verdict is known before it returns (rule W6).
        """

    def abort(self) -> None:  # noqa: B027 - not abstract: it may never be called
        """Remove all rows of this attempt. May never be called (rule W1).

        Called at most once, instead of ``commit`` or after it failed, by the thread
        that writes or the one that closes.

        Without epochs rows cannot be removed: then break the stream, so that its reader
        fails instead of reading the next attempt as a continuation.
        """

    @property
    def end(self) -> End | None:
        """Return how the other side ended the stream; None if it has not.

        A reader that stops early (`ReaderFinished`) is not an error: the framework
        stops writing. Called before each ``write``, by the same thread. May poll the
        connection; never blocks.
        """
        return None

    def close(self) -> None:  # noqa: B027 - not abstract: it may have no resources
        """Release all resources. Called once, after commit or abort.

        Never during a call of another method but ``wake``.
        """


class StreamCommitter(ABC):
    """Commits the epochs of one writer. Used in one process, mostly the driver.

    Created and called by the framework's `Committer`. One thread at a time calls it,
    but not always the same one: ``last`` is called in a thread of its own if the user
    is in the main thread, so that Ctrl-C ends a wait for it. ``last`` is repeated after
    transient errors, the other methods are not.
    """

    @abstractmethod
    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        """Make the epoch visible, whole (rule W2); the first commit of it wins (W3).

        A repeated commit, also after a restart and by another process, has no effect,
        and removes what its messages staged. If the outcome is unknown (a lost reply),
        determine it before returning (rule W6): this may take long behind another
        writer's open transaction, and raises `StreamTimeout` at the latest.

        Args:
            epoch: The epoch.
            messages: One for each task that wrote; may be empty.
            source_position: Stored with the commit.

        Returns:
            None if this call made the commit; the stored commit if the epoch was
            committed before, or is older than the last one.

        Raises:
            WriterFenced: permanent; a later instance has claimed the writer. Nothing
                was committed.
        """

    def abort(  # noqa: B027 - not abstract: a sink may stage nothing
        self, epoch: int, messages: Sequence[CommitMessage]
    ) -> None:
        """Remove staged rows. May be called twice (rule W4).

        Called when a task failed, by `Committer.abort`: Spark's driver, `copy` or a
        user.

        A task that failed, or still runs, has no message. The staged rows, and the
        topic, may have been removed already. Staged rows that are never aborted are
        removed by age; correctness does not depend on this call.
        """

    def replace(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        """Commit an epoch that atomically replaces all earlier rows.

        Called for Spark's mode ``overwrite``. Override it to support this; otherwise
        like `commit`.
        """
        msg = f"{type(self).__name__} cannot replace existing rows atomically"
        raise Unsupported(msg)

    def last(self) -> LastCommit | None:
        """Return the last commit of this writer; None if none is remembered.

        Claims the writer: after it returned, the commits of earlier instances of this
        writer raise `WriterFenced`. An instance claims once, with its first call of
        `last` or its first commit, and the latest claim wins: a fenced instance stays
        fenced. Never returns None if the last commit cannot be determined yet.
        """
        return None

    def close(self) -> None:  # noqa: B027 - not abstract: it may have no resources
        """Release all resources. Called once, when no other call is running."""


class ProducerFactory(ABC):
    """Creates the objects that write one stream.

    The rules of `ConsumerFactory` apply: it is thread-safe. All methods but ``claims``
    and ``close`` are called by the framework within ``connection.timeout.millis``, in a
    thread of their own if the user is in the main thread, and repeated after transient
    errors.
    """

    CLAIMS: ClassVar[Claims] = Claims()
    """The strongest claims of any configuration."""

    CARRIES: ClassVar[frozenset[str]] = frozenset()
    """Which of ``_key``, ``_headers``, ``_timestamp``, ``_topic`` it stores; others are
    dropped with a warning and a count. Other names are refused when the plug-in is
    loaded. Typed rows cannot store the first three: there only ``_topic`` is used."""

    KEEPS_DICTIONARIES: ClassVar[bool] = False
    """True: rows keep their dictionary types, nested ones included. False: they are
    decoded first. Rows for an encoder are always decoded. A schema that the sink
    requires (`fetch_schema`) is used unchanged."""

    def __init__(self, config: StreamConfig) -> None:
        self.config = config

    @abstractmethod
    def create_writer(self, context: WriteContext) -> StreamWriter:
        """Create the writer of one attempt. A failure leaves nothing open."""

    @abstractmethod
    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        """Create the committer of one writer.

        It fences other instances on first use only.
        """

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        """Return the last commit of a writer, without claiming the writer.

        It fences no instance: tasks call it while a committer is in use, to skip work
        that is done already. None if none is remembered, or known.
        """
        return None

    @abstractmethod
    def fetch_partition_count(self, topic: str) -> int:
        """Return the number of partitions to write to; ids are 0 to n-1.

        Called by the first writer of a sink that routes rows, once for each topic.
        """

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        """Return the schema that the sink requires; None if the first rows decide it.

        Called before the first writer is created, and again until it is not None.

        A sink of undecoded messages returns `envelope_schema()`.
        """
        return None

    def evolve_schema(self, topic: str, rows: pa.Schema) -> pa.Schema | None:
        """Return the columns that a topic is to have for rows of a schema.

        Called under ``schema.contract=evolve``, when rows of a schema come that was
        not seen yet. Changes nothing: `create_writer` adds the columns of
        ``WriteContext.schema`` that the topic lacks then, and widens types. Override it
        if columns of a topic can be added; columns that it has stay.

        Args:
            topic: The topic, which may not exist yet.
            rows: The schema of the rows, without the framework's columns.

        Returns:
            What `fetch_schema` returns once the columns are added. None if there is no
            topic, or if columns cannot be added: the default.

        Raises:
            SchemaMismatch: permanent; the topic cannot have one of the columns.
        """
        return None

    def claims(self) -> Claims:
        """Return the claims of this configuration; never stronger than ``CLAIMS``.

        Called once for each sink, before it connects, and by ``check`` and ``validate``
        offline: answer from the configuration alone.
        """
        return self.CLAIMS

    def end_stream(self, end: End) -> End | None:
        """End the stream for its readers. Called once, by the owner of the stream.

        Only `Finished` is a normal end for readers; without this call, closing the
        factory is a failure for them. Returns when the other side has confirmed it, or
        raises its error.

        Returns:
            `ReaderFinished` if a reader disconnected before it confirmed the end, and
            so may lack rows; ``publish`` and ``copy`` then fail. None if every reader
            has confirmed, or the transport cannot show it; the default.
        """
        return None

    def close(self) -> None:  # noqa: B027 - not abstract: it may have no resources
        """Release resources that the created objects share. Called last."""

    def __reduce__(self) -> tuple[type[ProducerFactory], tuple[StreamConfig]]:
        return type(self), (self.config,)
