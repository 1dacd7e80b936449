"""One writer's epochs, one after another: rows in, whole epochs out."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import ClosedError
from streamfactory.wiring.core.closing import Closing

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
    """When an epoch is cut: with the batch that reaches one of these."""

    rows: int = _ROWS
    """At the most, where batches can be cut."""
    seconds: float = _SECONDS
    """Since the first row of the epoch."""
    size: int = _BYTES
    """Bytes, about."""

    @classmethod
    def of(cls, config: StreamConfig) -> Thresholds:
        """As the options ``realtime.segment.flush.threshold.*`` say; 0 is not set."""
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
    """The epochs of one writer, from one task. One thread at a time.

    With a writer id, the writer is claimed: no earlier instance commits any more.

    Args:
        sink: Where to; the caller closes it, later.
        schema: Of the rows to come, the framework's columns among them.
        writer_id: Survives restarts; None claims no idempotence.
        clock: Time.

    Raises:
        StreamError: As `Sink.committer`, `Committer.last` and `Sink.writer`: rows that
            do not fit are refused here, before anything is written.
    """

    def __init__(
        self, sink: Sink, schema: pa.Schema, *, writer_id: str | None, clock: Clock
    ) -> None:
        self.last: LastCommit | None = None
        """What the writer had committed when it was claimed."""
        self.thresholds = Thresholds.of(sink.config)
        self.rows = 0
        """Rows committed here."""
        self.epochs = 0
        """Epochs committed here."""
        self.pending = 0
        """Rows of the epoch that is open."""
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
    def due(self) -> bool:
        """Whether the open epoch has reached a threshold."""
        return (
            self.pending >= self.thresholds.rows
            or self._size >= self.thresholds.size
            or self.patience <= 0
        )

    @property
    def room(self) -> int:
        """Rows that the open epoch may still have; at least 1 where none is due."""
        return self.thresholds.rows - self.pending

    @property
    def patience(self) -> float:
        """Seconds until time alone cuts the open epoch."""
        if self._since is None:
            return self.thresholds.seconds
        return self._since + self.thresholds.seconds - self._clock.now()

    def write(self, rows: pa.RecordBatch, size: int) -> None:
        """Add rows to the open epoch; blocks while the sink is full.

        Raises:
            StreamError: As `Writer.write`. The epoch is lost: begin anew.
        """
        self._open().write(rows)
        self.pending += rows.num_rows
        self._size += size
        if self._since is None:
            self._since = self._clock.now()

    def commit(self, position: Position) -> None:
        """End the open epoch, which may be empty; the next one begins with a write.

        Raises:
            StreamError: As `Committer.commit`. After a `TransientError` nobody knows
                whether it is there: begin anew, and `last` tells.
        """
        writer = self._open()
        self._committer.commit(self._epoch, [writer.commit()], position)
        writer.close()
        self._writer = None
        self._epoch += 1
        self.epochs += 1
        self.rows += self.pending
        self.pending = self._size = 0
        self._since = None

    def close(self) -> None:
        """Close; an open epoch is aborted. Twice is fine."""
        if self._closed:
            return
        self._closed = True
        with ExitStack() as last:
            last.callback(self._committer.close)
            if self._writer is not None:
                last.callback(self._writer.close)

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
            )
        return self._writer
