"""Writes consecutive epochs of one writer, for jobs without Spark."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import ClosedError
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.guard import log

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.spi import LastCommit, Position, StreamConfig
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.writing.sink import Sink
    from streamfactory.wiring.writing.writer import Writer

_PREFIX: Final = "realtime.segment.flush.threshold."
_ROWS: Final = 1_000_000
_SECONDS: Final = 1.0
_BYTES: Final = 128 * 1024**2


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of an epoch: it ends with the batch that reaches one of them."""

    rows: int = _ROWS
    """Maximum rows, if batches can be split."""
    seconds: float = _SECONDS
    """Seconds since the first row of the epoch."""
    size: int = _BYTES
    """Bytes, about."""

    @classmethod
    def of(cls, config: StreamConfig) -> Thresholds:
        """Create it from the options ``realtime.segment.flush.threshold.*``.

        0 is not set.
        """
        given = [config.get(_PREFIX + key) for key in ("rows", "segment.rows")]
        rows = [number for number in given if number]
        millis = config.get(_PREFIX + "time")
        return cls(
            min(rows, default=_ROWS),
            millis / 1000 if millis else _SECONDS,
            config.get(_PREFIX + "segment.size") or _BYTES,
        )


@final
class Epochs(Closing):
    """The epochs of one writer with one task. Not thread-safe.

    With a writer id the writer is claimed: earlier instances can no longer commit.

    Args:
        sink: The sink; the caller closes it later.
        schema: Schema of the rows, with the framework's columns.
        writer_id: Survives restarts; None claims no idempotence.
        clock: The clock.

    Raises:
        StreamError: See `Sink.committer`, `Committer.last` and `Sink.writer`: a schema
            that does not fit is refused here, before any row is written.
    """

    def __init__(
        self, sink: Sink, schema: pa.Schema, *, writer_id: str | None, clock: Clock
    ) -> None:
        self.last: LastCommit | None = None
        """The writer's last commit when it was claimed."""
        self.thresholds = Thresholds.of(sink.config)
        self.rows = 0
        """Rows committed here."""
        self.epochs = 0
        """Epochs committed here."""
        self.pending = 0
        """Rows of the open epoch."""
        self.unread = 0
        """Rows committed here that were not sent: every reader had disconnected."""
        self._sink = sink
        self._schema = schema
        self._writer_id = writer_id
        self._clock = clock
        self._size = 0
        self._since: float | None = None
        self._writer: Writer | None = None
        self._closed = False
        with ExitStack() as unless_made:
            self._committer = sink.committer(writer_id=writer_id)
            unless_made.callback(self._committer.close)
            if writer_id is not None:
                self.last = self._committer.last()
            self._epoch = 0 if self.last is None else self.last.epoch + 1
            self._open()
            unless_made.pop_all()

    @property
    def epoch(self) -> int:
        """Number of the open epoch."""
        return self._epoch

    @property
    def begun(self) -> bool:
        """Whether the open epoch has a write, of rows or of none."""
        return self._since is not None

    @property
    def due(self) -> bool:
        """Whether the open epoch has reached a threshold."""
        return (
            self.pending >= self.thresholds.rows
            or self._size >= self.thresholds.size
            or self.patience <= 0
        )

    @property
    def room(self) -> int:
        """Number of rows that can be added to the open epoch.

        At least 1 unless it is due.
        """
        return self.thresholds.rows - self.pending

    @property
    def patience(self) -> float:
        """Seconds until the open epoch ends by time."""
        if self._since is None:
            return self.thresholds.seconds
        return self._since + self.thresholds.seconds - self._clock.now()

    def write(self, rows: pa.RecordBatch, size: int) -> None:
        """Add rows to the open epoch; blocks while the sink is full.

        Args:
            rows: The rows. A batch of which none are left begins the epoch, too: its
                position is committed in time.
            size: Bytes that were read for them.

        Raises:
            StreamError: See `Writer.write`. The epoch is aborted: restart from the last
                commit.
        """
        if rows.num_rows:
            self._open().write(rows)
        self.pending += rows.num_rows
        self._size += size
        if self._since is None:
            self._since = self._clock.now()

    def commit(self, position: Position) -> None:
        """Commit the open epoch, which may be empty; the next one begins with a write.

        Raises:
            StreamError: See `Committer.commit`. After a `TransientError` it is unknown
                whether the epoch was committed: restart, and read `last`.
        """
        writer = self._open()
        self._committer.commit(self._epoch, [writer.commit()], position)
        writer.close()
        unread = writer.counters.unread
        if unread and not self.unread:
            text = "stream %r: every reader has disconnected: rows are not sent"
            log.warning(text, self._sink.config.name)
        self.unread += unread
        self._writer = None
        self._epoch += 1
        self.epochs += 1
        self.rows += self.pending
        self.pending = self._size = 0
        self._since = None

    def close(self) -> None:
        """Close; aborts an open epoch. May be called twice."""
        if self._closed:
            return
        self._closed = True
        with ExitStack() as last:
            last.callback(self._committer.close)
            if self._writer is not None:
                last.callback(self._writer.close)
                last.callback(self._writer.abort)

    def _open(self) -> Writer:
        if self._closed:
            msg = "the epochs of this writer are closed"
            raise ClosedError(msg, stream=self._sink.config.name)
        if self._writer is None:
            self._writer = self._sink.writer(
                self._schema,
                writer_id=self._writer_id,
                epoch=self._epoch,
                committer=self._committer,
                shared=False,
            )
        return self._writer
