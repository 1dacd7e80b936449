"""A topic on disk: reads rows by offset from segments, and commits epochs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.arrowlog.checks import check_growth
from streamfactory.arrowlog.clocks import BOUND
from streamfactory.arrowlog.disk.commits import CommitQueue
from streamfactory.arrowlog.disk.filestage import DiskFileStage
from streamfactory.arrowlog.disk.format_lookup import fewer_partitions, format_named
from streamfactory.arrowlog.disk.housekeeping import Housekeeper
from streamfactory.arrowlog.disk.names import record_name
from streamfactory.arrowlog.disk.reading import RowReader
from streamfactory.arrowlog.disk.segments import RollingWriter
from streamfactory.arrowlog.disk.staging import DiskStage, StagedFile
from streamfactory.arrowlog.disk.waiting import Waiters
from streamfactory.arrowlog.log import Log
from streamfactory.arrowlog.values import PartitionBounds
from streamfactory.arrowlog.writers import idle_writers
from streamfactory.spi import (
    BatchValidator,
    MisuseError,
    StreamError,
    Unsupported,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import (
        Callable,
        Collection,
        Mapping,
        Sequence,
    )

    from streamfactory.arrowlog.disk.journal import Journal
    from streamfactory.arrowlog.disk.records import Record
    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.state import State
    from streamfactory.arrowlog.stages import FileStage, SoundStage
    from streamfactory.arrowlog.values import (
        Committed,
        Epoch,
        LogSlice,
        Staged,
        StoredFile,
    )
    from streamfactory.arrowlog.writers import RememberedWriter
    from streamfactory.spi import LastCommit

_BY_FORMAT: Final = 'write it with format("streamfactory")'
_WRITTEN: Final = (
    f"{_BY_FORMAT}, or write to a topic that was created with segment.format=parquet"
)

log = logging.getLogger("streamfactory")


@final
class DiskLog(Log):
    """One topic.

    Args:
        journal: Its records; its clock is that of append times.
        settings: Settings of its segments.
        tidy: Sweeps files outside the topic; called with the topic's sweep.
    """

    def __init__(
        self,
        journal: Journal,
        settings: Settings,
        tidy: Callable[[], None] | None = None,
    ) -> None:
        self.journal = journal
        self.name = journal.name
        self.incarnation = journal.incarnation
        self.storage = journal.storage
        self.schema = journal.known.schema
        self.validator = BatchValidator(self.schema, values=settings.check_values)
        self.segment_format = journal.known.segment_format
        self._settings = settings
        self._rows = RowReader(journal, self.validator)
        self.segments = self._rows.segments
        self._waiters = Waiters(journal)
        self._commits = CommitQueue(journal, settings)
        self._bounds: tuple[int, list[PartitionBounds]] = (-1, [])
        """The bounds, and the version of the topic that has them."""
        self._housekeeper = Housekeeper(journal, self.segments, settings, tidy=tidy)

    # --- reading ----------------------------------------------------------------

    def bounds(self) -> Sequence[PartitionBounds]:
        state = self.journal.refreshed()
        version, bounds = self._bounds
        if version != state.version:
            edges = zip(state.earliest, state.latest, strict=True)
            bounds = [PartitionBounds(i, *edge) for i, edge in enumerate(edges)]
            self._bounds = state.version, bounds
        return bounds

    def read(
        self, partition: int, start: int, *, max_rows: int, max_bytes: int
    ) -> LogSlice:
        return self._rows.read(partition, start, max_rows, max_bytes)

    def files(self, partition: int, start: int, end: int) -> Sequence[StoredFile]:
        return self._rows.files(partition, start, end)

    def offsets_at(
        self, timestamp_ms: int, partitions: Collection[int]
    ) -> Mapping[int, int | None]:
        return self._rows.offsets_at(timestamp_ms, partitions)

    def wait(
        self,
        partition: int,
        offset: int,
        timeout: float,
        cancelled: threading.Event | None = None,
    ) -> bool:
        return self._waiters.wait(partition, offset, timeout, cancelled)

    def wake(self) -> None:
        self._waiters.wake()

    # --- writing ----------------------------------------------------------------

    def stage(self, attempt: str) -> SoundStage:
        self.journal.refreshed()  # raises if the topic was deleted
        form = format_named(self.segment_format)
        settings = self._settings
        return DiskStage(
            attempt,
            self.incarnation,
            self.validator,
            self.journal.known_with,
            lambda: RollingWriter(self.storage, self.schema, settings, form),
            carried_size=settings.carried_size(form.name),
        )

    def check_files(self) -> None:
        if format_named(self.segment_format).mixed:
            msg = f"topic {self.name!r} has segments of the format "
            msg += f"{self.segment_format}, which only this log writes"
            raise Unsupported(msg, remedy=_WRITTEN)
        if not self.storage.adopts:
            msg = f"{self.storage.location} is no place that other programs write "
            raise Unsupported(
                msg + "to", remedy='write it with format("streamfactory")'
            )

    def stage_files(self, attempt: str) -> FileStage:
        self.journal.refreshed()  # raises if the topic was deleted
        self.check_files()
        return DiskFileStage(
            attempt, self.storage, self.schema, self._settings, self.journal.known_with
        )

    def discard(self, staged: Staged) -> None:
        self._commits.discard([file.name for file in StagedFile.of([staged])])

    def commit(self, epoch: Epoch) -> Committed:
        committed = self._commits.commit(epoch)
        try:
            self._housekeeper.after_commit()
        except (StreamError, OSError, pa.ArrowException) as error:
            # The epoch is committed nevertheless.
            log.warning("%s: housekeeping: %s", self.name, error)
        return committed

    def claim(self, writer: str, instance: str) -> LastCommit | None:
        return self._commits.claim(writer, instance)

    def remembered(self) -> Mapping[str, RememberedWriter]:
        return self.journal.refreshed().writers

    def clock(self) -> float:
        return self.journal.clock.now(self.journal.known.at)

    def checked(self, now: float) -> float:
        # The storage has a clock of its own: that of a server, or of the system.
        state = self.journal.known
        if now < state.at - BOUND:
            return now
        try:
            written = self.storage.written(record_name(state.version))
        except FileNotFoundError:  # of a snapshot
            return now
        ahead = state.at - written
        if ahead <= BOUND:
            return now
        what = "the clock of this machine, or of the last writer,"
        self.report(what, "the storage's time is used")
        return now - ahead

    def report(self, what: str, instead: str) -> None:
        self.journal.clock.report(what, instead)

    def written(self, partition: int, offset: int) -> tuple[int, float] | None:
        run = self.journal.known_with(partition).index.find(partition, offset)
        if run is None or run.file in self.journal.known.inline:
            return None
        try:
            return run.end, self.storage.written(run.file)
        except FileNotFoundError:  # merged
            return None

    def sizes(self, partition: int) -> Sequence[tuple[int, int, int]]:
        return self.journal.refreshed().index.sizes(partition)

    def forget(self, idle: float, keep: str | None = None) -> None:
        def build(state: State) -> Record | None:
            now, millis = self.clock(), idle * 1000
            forgotten = idle_writers(state.writers, now - millis, keep)
            if forgotten and (checked := self.checked(now)) != now:
                forgotten = idle_writers(state.writers, checked - millis, keep)
            return (
                self.journal.record(state, forgotten=forgotten) if forgotten else None
            )

        if build(self.journal.known) is not None:
            self.journal.publish(build)

    def grow(self, partitions: int) -> None:
        def build(state: State) -> Record | None:
            have = len(state.latest)
            most = format_named(self.segment_format).most_partitions
            if partitions > most and partitions != have:
                msg = f"topic {self.name!r} can have at most {most} partitions"
                remedy = fewer_partitions(self.segment_format)
                raise MisuseError(msg, remedy=remedy)
            check_growth(self.name, have, partitions)
            if partitions == have:
                return None
            return self.journal.record(state, partitions=partitions)

        self.journal.publish(build)

    def truncate(self, before: Mapping[int, int]) -> None:
        self._housekeeper.truncate(before)

    def sweep(self) -> None:
        self._housekeeper.sweep()

    def compact(self) -> None:
        self._housekeeper.tidy_up()

    def facts(self) -> Mapping[str, str | int]:
        state = self.journal.refreshed()
        return {
            "version": state.version,
            "segment format": state.segment_format,
            "segments": state.segments,
            "small segments": len(state.small),
            "inline segments": len(state.inline),
            "bytes": state.index.held(state.floor),
            "remembered writer ids": len(state.writers),
            "location": self.storage.location,
        }

    def close(self) -> None:
        """Release resources; the topic can still be used."""
        self._waiters.close()
        self.segments.close()
        self.storage.close()
