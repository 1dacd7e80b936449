"""The interface of the log: the same for memory and for disk.

Offsets count rows and are assigned at commit, without gaps. One commit covers all
partitions of a topic, and the same (writer, epoch) has its effect once. Readers see
whole commits only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from streamfactory.spi import Unsupported

if TYPE_CHECKING:
    import threading
    from collections.abc import (
        Collection,
        Iterator,
        Mapping,
        Sequence,
    )

    import pyarrow as pa

    from streamfactory.arrowlog.values import (
        Committed,
        Epoch,
        LogFile,
        LogSlice,
        PartitionBounds,
        Retention,
        Staged,
    )
    from streamfactory.spi import LastCommit, Verification


class LogStage(ABC):
    """Stages the rows of one attempt, which cannot be read before the commit."""

    @abstractmethod
    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        """Stage rows of the log's schema.

        Raises:
            TopicNotFound: permanent; the partition does not exist.
            SchemaMismatch: permanent; the rows have another schema, or an invalid
                value.
        """

    @abstractmethod
    def seal(self) -> Staged:
        """End the attempt: its rows are as durable as the log is."""

    @abstractmethod
    def discard(self) -> None:
        """Discard rows that are not sealed; may be called twice."""


class FileStage(ABC):
    """Stages files of another program, which cannot be read before the commit.

    The program writes Parquet files of one partition each into a folder. The stage
    moves them into the topic, checks them and returns them as the rows of one attempt.
    """

    folder: str
    """Absolute path of the folder; the program creates it."""
    batch_rows: int
    """Maximum number of rows of a row group."""
    batch_bytes: int
    """Approximate maximum bytes of a row group."""
    file_rows: int
    """Maximum number of rows of a file."""
    compression: str | None
    """``lz4`` (raw) or ``zstd``."""
    counts: Mapping[int, tuple[int, int]]
    """Rows of all sealed files by partition, and their bytes as rows are in memory."""

    @abstractmethod
    def names(self, within: str = "") -> Sequence[str]:
        """Return the names in the folder, or in a folder within it."""

    @abstractmethod
    def seal(self, files: Sequence[tuple[int, str]]) -> Staged:
        """End the attempt: its rows are as durable as the log is.

        Args:
            files: Partition and path within the folder, in the order in which rows of a
                partition get their offsets.

        Raises:
            CorruptData: data_loss; a file is not a segment of the topic: it has other
                columns or encodings than readers accept.
            MessageTooLarge: permanent; a row group expands to more than readers accept,
                mostly for lists that are null or empty.
            TopicNotFound: permanent; a partition does not exist.
            MisuseError: misuse; a file is missing, or the folder was swept. Everything
                is discarded after an error.
        """

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows of all sealed files, with their values validated.

        Raises:
            CorruptData: data_loss; a value is invalid.
        """

    @abstractmethod
    def discard(self) -> None:
        """Discard everything that is not sealed; may be called twice."""


class Log(ABC):
    """One topic. Thread-safe."""

    name: str
    schema: pa.Schema
    incarnation: str
    """Id of this topic; a recreated topic of the same name has another one."""

    @abstractmethod
    def bounds(self) -> Sequence[PartitionBounds]:
        """Return the bounds of all partitions, by id.

        In constant time per partition.
        """

    @abstractmethod
    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        """Read rows from ``start`` on, up to the limits; at least one if there is one.

        Raises:
            OffsetOutOfRange: data_loss; ``start`` is not between earliest and latest.
            TopicNotFound: permanent; the topic was deleted.
        """

    def read_run(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> Sequence[LogSlice]:
        """Consecutive slices from ``start`` on, up to the limits in all; at least one.

        Raises:
            As `read`.
        """
        found = self.read(partition, start, max_rows=max_rows, max_bytes=max_bytes)
        run = [found]
        while found.rows is not None:
            start += found.rows.num_rows
            max_rows -= found.rows.num_rows
            max_bytes -= found.size
            if max_rows <= 0 or max_bytes <= 0 or start >= found.bounds.latest:
                break
            found = self.read(partition, start, max_rows=max_rows, max_bytes=max_bytes)
            if found.rows is not None:
                run.append(found)
        return run

    def files(self, partition: int, start: int, end: int) -> Sequence[LogFile]:
        """Return the files with the rows of a range, in order of their offsets.

        Retention and merges remove files, also those that were returned.

        Args:
            partition: The partition.
            start: Offset of the first row; inclusive.
            end: Exclusive, at most latest.

        Raises:
            Unsupported: misuse; the rows are not in files of one partition each.
            OffsetOutOfRange: data_loss; ``start`` is not between earliest and latest.
            CorruptData: data_loss; a file is not of the topic, or has other rows.
        """
        msg = f"topic {self.name!r} has no files that other programs read by offset"
        raise Unsupported(msg)

    @abstractmethod
    def wait(
        self,
        partition: int,
        offset: int,
        timeout: float,
        cancelled: threading.Event | None = None,
    ) -> bool:
        """Wait until the latest is beyond ``offset``; return whether it is.

        Returns early, with False, if `wake` is called after ``cancelled`` was set, also
        before the wait.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make every cancelled `wait` of this log return."""

    @abstractmethod
    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        """Return the first offset appended at or after a time; None if there is none.

        By the log's clock; if it goes back, the later time is used.
        """

    @abstractmethod
    def stage(self, attempt: str, *, validated: bool = False) -> LogStage:
        """Start to stage an attempt.

        Sealed rows that are neither committed nor discarded are removed by age.

        Args:
            attempt: A fresh uuid.
            validated: Whether the caller validates each batch by a `BatchValidator` of
                the log's schema before it appends it: it is not done a second time.
        """

    def check_files(self) -> None:
        """Refuse a topic that takes no files of other programs.

        Raises:
            Unsupported: misuse; its segments are not Parquet files in a folder.
        """
        raise self._takes_no_files()

    def stage_files(self, attempt: str) -> FileStage:
        """Start to stage an attempt whose files another program writes.

        What is neither committed nor discarded is removed by age.

        Args:
            attempt: A fresh uuid.

        Raises:
            Unsupported: misuse; see `check_files`.
        """
        raise self._takes_no_files()

    def _takes_no_files(self) -> Unsupported:
        return Unsupported(f"topic {self.name!r} takes no files of other programs")

    @abstractmethod
    def discard(self, staged: Staged) -> None:
        """Discard the sealed rows of an attempt; may be called twice."""

    @abstractmethod
    def commit(self, epoch: Epoch) -> Committed:
        """Append all staged rows of an epoch atomically, over all partitions.

        The owner of the writer is looked at before the number: a superseded instance
        is refused whatever it commits. Of a repeated epoch the staged rows are
        discarded (rule W3).

        Raises:
            WriterFenced: permanent; another instance has claimed the writer.
            MisuseError: misuse; staged rows of an attempt no longer exist. Nothing was
                appended.
        """

    @abstractmethod
    def claim(self, writer: str, instance: str) -> LastCommit | None:
        """Claim a writer for an instance, and return its last commit.

        Args:
            writer: Writer id.
            instance: A new uuid for each instance.
        """

    @abstractmethod
    def last(self, writer: str) -> LastCommit | None:
        """Return the last commit of a writer; None if none is remembered."""

    @abstractmethod
    def owner(self, writer: str) -> str | None:
        """The instance that has claimed a writer; None where none has."""

    @abstractmethod
    def writers(self) -> Mapping[str, LastCommit]:
        """Return the last commits of all remembered writers."""

    @abstractmethod
    def forget(self, idle: float, keep: str | None = None) -> None:
        """Forget writers that have not committed for ``idle`` seconds (rule W7).

        Args:
            idle: Seconds.
            keep: A writer that is never forgotten.
        """

    @abstractmethod
    def grow(self, partitions: int) -> None:
        """Increase the number of partitions; a smaller number is an error.

        Raises:
            MisuseError: misuse.
        """

    @abstractmethod
    def truncate(self, before: Mapping[int, int]) -> None:
        """Delete the rows before these offsets, by partition."""

    @abstractmethod
    def retain(self, retention: Retention, hold: Mapping[int, int]) -> None:
        """Delete rows by ``retention``.

        Args:
            retention: The limits.
            hold: By partition, an offset from which on all rows are kept.
        """

    def sweep(self) -> None:  # noqa: B027 - not every log has files
        """Remove staged rows that were neither committed nor aborted for a day."""

    def compact(self) -> None:  # noqa: B027 - not every log has files
        """Merge small segments and remove unused ones; offsets are unchanged."""

    @abstractmethod
    def verify(self) -> Verification:
        """Read all rows, and check them against the commits."""

    def facts(self) -> Mapping[str, str | int]:
        """Return properties to show: segments, bytes, ..."""
        return {}


class LogStore(ABC):
    """Stores topics. Thread-safe."""

    @abstractmethod
    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> Log:
        """Create a topic.

        Raises:
            MisuseError: misuse; the topic exists, or would have no partition.
            SchemaMismatch: permanent; the schema has an unsupported type.
        """

    @abstractmethod
    def open(self, name: str) -> Log:
        """Open a topic.

        Raises:
            TopicNotFound: permanent.
        """

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a topic and all its rows.

        Raises:
            TopicNotFound: permanent.
        """

    @abstractmethod
    def names(self) -> Sequence[str]:
        """Return the names of all topics, sorted."""
