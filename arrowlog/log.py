"""The interface of the log: the same for memory and for disk.

Offsets count rows and are assigned at commit, without gaps. One commit covers all
partitions of a topic, and the same (writer, epoch) has its effect once. Readers see
whole commits only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.clocks import BOUND
from streamfactory.spi import (
    BatchValidator,
    StreamError,
    Unsupported,
    Verification,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Collection, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.stages import FileStage, LogStage, SoundStage
    from streamfactory.arrowlog.values import (
        Committed,
        Epoch,
        LogSlice,
        PartitionBounds,
        Retention,
        Staged,
        StoredFile,
    )
    from streamfactory.arrowlog.writers import RememberedWriter
    from streamfactory.spi import LastCommit

_MOST: Final = 1 << 62
_REPORTED: Final = 100
"""Maximum number of reported problems; a broken disk has thousands."""


class WritableLog(ABC):
    """One topic, which may be in another process. Thread-safe."""

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
    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        """Return the first offset appended at or after a time; None if there is none.

        By the log's clock; if it goes back, the later time is used.
        """

    @abstractmethod
    def stage(self, attempt: str) -> LogStage:
        """Start to stage an attempt.

        Sealed rows that are neither committed nor discarded are removed by age.

        Args:
            attempt: A fresh uuid.
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


class Log(WritableLog):
    """One topic of this process, which is read here, too. Thread-safe.

    What follows from the bounds, the sizes and the remembered writers of a topic is
    here; how rows are stored, and how commits become durable, is in the subclasses.
    """

    validator: BatchValidator
    """Of the topic's rows."""

    @abstractmethod
    def stage(self, attempt: str) -> SoundStage: ...

    @abstractmethod
    def clock(self) -> float:
        """Return milliseconds since the epoch, by the clock of append times."""

    def checked(self, now: float) -> float:
        """Return a time of the clock, or another one where the clock runs ahead."""
        return now

    @abstractmethod
    def report(self, what: str, instead: str) -> None:
        """Warn once that a time runs ahead, and say what is used instead."""

    def written(self, partition: int, offset: int) -> tuple[int, float] | None:
        """Return when the rows of an offset were stored, and the offset after them.

        In milliseconds, by the storage's clock; None if that is not known.
        """
        return None

    @abstractmethod
    def remembered(self) -> Mapping[str, RememberedWriter]:
        """Return what is stored of all writers.

        Raises:
            TopicNotFound: permanent; the topic was deleted.
        """

    @abstractmethod
    def sizes(self, partition: int) -> Sequence[tuple[int, int, int]]:
        """Return what a partition holds, in order: base, end and bytes in memory."""

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

    def files(self, partition: int, start: int, end: int) -> Sequence[StoredFile]:
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

    def last(self, writer: str) -> LastCommit | None:
        found = self.remembered().get(writer)
        return None if found is None else found.last()

    def owner(self, writer: str) -> str | None:
        """Return the instance that has claimed a writer; None if there is none."""
        found = self.remembered().get(writer)
        return None if found is None else found.owner

    def writers(self) -> Mapping[str, LastCommit]:
        """Return the last commits of all remembered writers."""
        lasts = {name: known.last() for name, known in self.remembered().items()}
        return {name: last for name, last in lasts.items() if last is not None}

    def held(self, partition: int) -> int:
        """Return the bytes of a partition, as rows are in memory."""
        earliest = self.bounds()[partition].earliest
        return sum(
            size * (end - max(base, earliest)) // (end - base)
            for base, end, size in self.sizes(partition)
            if end > earliest
        )

    def retain(self, retention: Retention, hold: Mapping[int, int]) -> None:
        bounds = self.bounds()
        kept = {partition.id: partition.earliest for partition in bounds}

        def keep_from(offsets: Mapping[int, int]) -> None:
            kept.update(
                {
                    partition: max(kept[partition], at)
                    for partition, at in offsets.items()
                }
            )

        if retention.rows is not None:
            keep_from(
                {
                    partition.id: partition.latest - retention.rows
                    for partition in bounds
                }
            )
        if retention.size is not None:
            keep_from(
                {
                    partition.id: self._newest(partition, retention.size)
                    for partition in bounds
                }
            )
        if retention.age is not None:
            latest = {partition.id: partition.latest for partition in bounds}
            keep_from(self._young(retention.age * 1000, kept, latest))
        moved = {
            partition: min(at, hold.get(partition, at))
            for partition, at in kept.items()
        }
        moved = {i: at for i, at in moved.items() if at > bounds[i].earliest}
        if moved:
            self.truncate(moved)

    def _young(
        self, age: float, kept: Mapping[int, int], latest: Mapping[int, int]
    ) -> Mapping[int, int]:
        """Return the first offset of each partition that is not older than an age.

        A commit whose time contradicts the clock does not decide, nor does a clock
        that contradicts the commits: see `checked`.

        Args:
            age: In milliseconds.
            kept: The first offsets to consider.
            latest: The latest offsets.
        """

        def first_at(time: float) -> dict[int, int]:
            found = self.offsets_at(int(time), kept)
            return {i: latest[i] if at is None else at for i, at in found.items()}

        now = self.clock()
        young = first_at(now - age)
        if any(at > kept[i] for i, at in young.items()):
            checked = self.checked(now)
            if checked != now:
                now, young = checked, first_at(checked - age)
        for partition, at in first_at(now + BOUND).items():
            if young[partition] >= at < latest[partition]:
                what = f"the clock of a commit of partition {partition}"
                self.report(what, "rows expire by the times of their files")
                young[partition] = self._written_after(partition, at, now - age)
        return young

    def _written_after(self, partition: int, offset: int, oldest: float) -> int:
        """Return the first offset from one on whose rows were stored after a time."""
        while (found := self.written(partition, offset)) is not None:
            end, written = found
            if written > oldest:
                break
            offset = end
        return offset

    def _newest(self, partition: PartitionBounds, most: int) -> int:
        """Return the first offset of the newest rows of so many bytes."""
        at = partition.latest
        for base, end, size in reversed(self.sizes(partition.id)):
            if size > most:
                return end - most * (end - base) // size
            most -= size
            at = base
        return at

    def verify(self) -> Verification:
        rows, problems = 0, []
        validator = BatchValidator(self.schema)
        for partition in self.bounds():
            at: int | None = partition.earliest
            while at is not None and at < partition.latest:
                try:
                    part = self.read(partition.id, at, max_rows=_MOST, max_bytes=_MOST)
                    assert part.rows is not None
                    validator.validate(part.rows)
                except (StreamError, ValueError) as error:
                    problems.append(f"partition {partition.id}, offset {at}: {error}")
                    if len(problems) >= _REPORTED:
                        break
                    behind = (
                        base for base, _, _ in self.sizes(partition.id) if base > at
                    )
                    at = next(behind, None)
                else:
                    rows += part.rows.num_rows
                    at += part.rows.num_rows
        return Verification(rows, tuple(problems))


class WritableLogStore(ABC):
    """Stores topics, perhaps in another process. Thread-safe."""

    @abstractmethod
    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> WritableLog:
        """Create a topic.

        Raises:
            MisuseError: misuse; the topic exists, or would have no partition.
            SchemaMismatch: permanent; the schema has an unsupported type.
        """

    @abstractmethod
    def open(self, name: str) -> WritableLog:
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


class LogStore(WritableLogStore):
    """Stores topics in this process. Thread-safe."""

    @abstractmethod
    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> Log: ...

    @abstractmethod
    def open(self, name: str) -> Log: ...
