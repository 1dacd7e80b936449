"""Copies a stream to another, exactly once if both ends support it.

The position of the source is stored in the sink with its rows, and read from there
after a restart. If a sink cannot store it, a checkpoint does, and rows after the last
checkpoint are copied again.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    Finished,
    Guarantee,
    IncarnationChanged,
    Position,
    SchemaMismatch,
    StreamError,
    TransientError,
    Verdict,
)
from streamfactory.spi.claims import combine
from streamfactory.transfer.conversion import route_between
from streamfactory.transfer.positions import CopyPositions
from streamfactory.transfer.reports import CommitReports
from streamfactory.transfer.skipping import Skipping
from streamfactory.wiring.config.guarantees import check_guarantee
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.core.throttle import Throttle
from streamfactory.wiring.reading.acknowledging import Acknowledger
from streamfactory.wiring.reading.following import all_ended, read_from
from streamfactory.wiring.reading.progress import ProgressGroup
from streamfactory.wiring.reading.rotation import Rotation
from streamfactory.wiring.reading.skipping import held
from streamfactory.wiring.writing.diverting import Diversion
from streamfactory.wiring.writing.epochs import Epochs

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from streamfactory.engines.row_query import RowQuery
    from streamfactory.spi import CheckpointStore, Loss, MessageBatch, Skipped
    from streamfactory.transfer.conversion import Conversion
    from streamfactory.wiring.controls.control import Control
    from streamfactory.wiring.controls.states import Pause
    from streamfactory.wiring.reading.skipped_ranges import SkippedRanges
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.writing.sink import Sink

    Reading = Rotation | SkippedRanges

_ANOTHER: Final = (
    "copy another stream of this name with another `writer_id=`; "
    "if the topic was recreated, set `out.of.range` to earliest or latest"
)
_TURN: Final = 0.2
"""Maximum seconds of one fetch, and so of the reaction to a stop."""


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a copy."""

    rows: int
    """Rows copied by this run."""
    epochs: int
    """Epochs with rows that this run committed."""
    position: Position
    """Committed next offset of each partition of the source."""
    complete: bool
    """Whether it reached its end instead of being stopped."""
    losses: tuple[Loss, ...] = ()
    """Losses of the source."""
    dead_letters: int = 0
    """Dead letters that this run committed."""
    confirmed: bool = True
    """False if a reader of a sink that stores nothing left early: it lacks rows."""
    pause: Pause | None = None
    """Why it ended before its end: it was paused when it started."""
    skipped: tuple[Skipped, ...] = ()
    """What this run skipped to be on time; `position` has all that is not read yet."""


@final
class Copy(Closing):
    """A copy of one stream to another. One thread runs it.

    Args:
        source: The source; closed with the copy.
        sink: The sink; closed with the copy.
        writer_id: Writer id.
        checkpoints: Stores positions apart from the sink; closed with the copy.
        carried: Whether both streams have undecoded messages, so that key, headers and
            timestamp are copied.
        letters: The sink of dead letters; closed with the copy.
        convert: Converts the source's batches, of the schema that it is given; by
            default they are copied unchanged.
        query: Makes the rows to write of those of the source.
        control: What users ask of it; None if they cannot.
        backfill: Creates what reads the source, from a position on, instead of a
            rotation of its partitions: then nothing is skipped, and progress is not
            published.
        beside: Other sinks, which the conversion writes; closed with the copy.
        default: Where it begins without a start option: ``earliest`` or ``latest``.
        on_commit: Called with the number of each epoch and its position, after the
            commit.

    Raises:
        GuaranteeRefused: config; ``guarantee`` of either end is stronger.
        ConfigError: config; see `Skipping`.
    """

    def __init__(
        self,
        source: Source,
        sink: Sink,
        writer_id: str,
        *,
        checkpoints: CheckpointStore | None = None,
        carried: bool = False,
        letters: Sink | None = None,
        convert: Callable[[pa.Schema], Conversion] | None = None,
        query: RowQuery | None = None,
        control: Control | None = None,
        backfill: Callable[[Position | None], SkippedRanges] | None = None,
        beside: Sequence[Sink] = (),
        default: str = "earliest",
        on_commit: Callable[[int, Position], None] | None = None,
    ) -> None:
        self.writer_id = writer_id
        self.created = False
        """Whether this copy created the sink's topic."""
        self._source = source
        self._sink = sink
        self._positions = CopyPositions(sink, writer_id, checkpoints)
        self._letters = letters
        self._beside = beside
        self._default = default
        self._on_commit = on_commit
        self._convert = convert or (
            lambda _: route_between(source, sink, carried=carried, query=query)
        )
        self._control = control
        if control is not None:
            rate = partial(control.rate, source.rate)
            source.throttle = Throttle(rate, source.clock)
        self._paused: Pause | None = None
        """Why it waits, or did not begin."""
        self._diversion: Diversion | None = None
        self._route: Conversion | None = None
        """Of this pass."""
        self._backfill = backfill
        self._reports = CommitReports(source.config, sink.config, writer_id, control)
        self._skipping = None
        if backfill is None:
            self._skipping = Skipping(source, sink, writer_id, self._reports.job)
        self._progress = None if backfill else ProgressGroup(source)
        self._acknowledger = Acknowledger(source)
        self._committed = False
        """Whether this run has committed rows: then positions are acknowledged."""
        self._position: Position | None = None
        self._rows = self._epochs = self._dead = 0
        self._losses: list[Loss] = []
        self.guarantee = self._promise()
        """The guarantee of the copy, with reasons."""

    @property
    def source_name(self) -> str:
        """Name of the source."""
        return self._source.config.name

    @property
    def sink_name(self) -> str:
        """Name of the sink."""
        return self._sink.config.name

    @property
    def rows(self) -> int:
        """Rows committed so far."""
        return self._rows

    def mask(self, text: str) -> str:
        """Return ``text`` with the secrets of both configurations masked."""
        return self._sink.config.mask(self._source.config.mask(text))

    def run(
        self,
        stop: threading.Event,
        *,
        follow: bool = False,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> Copied:
        """Copy up to the latest offsets of now, or continuously.

        While it is paused, it waits, with all rows that were read committed. If it does
        not follow and is paused already, it returns. After a transient error it
        restarts at the committed position.

        Args:
            stop: When set, the open epoch is committed and this returns.
            follow: Continue after the latest offsets, with new partitions.
            on_progress: Called frequently with the number of rows so far.

        Raises:
            SchemaMismatch: permanent; rows of the source do not fit the sink. Nothing
                was written.
            PositionRefused: permanent; the writer id was used by another command.
            EpochMarkerLost: data_loss; the sink no longer remembers the writer, but a
                checkpoint exists.
            StreamError: Raised by either end. Rows that were read before the source
                failed are committed.
        """
        failures = 0
        while True:
            done = self._epochs
            try:
                return self._pass(stop, follow=follow, on_progress=on_progress)
            except TransientError as error:
                failures = failures + 1 if self._epochs == done else 1
                policy = self._sink.guard.policy
                again = self._source.claims.replayable and failures < policy.attempts
                if not again or stop.is_set():
                    raise
                log.warning("the copy restarts: %s", error)
                self._source.clock.wait(stop, policy.pause(failures))

    def close(self) -> None:
        """Close both ends; may be called twice."""
        with ExitStack() as last:
            last.callback(self._sink.close)
            last.callback(self._source.close)
            for one in (*self._beside, self._letters):
                if one is not None:
                    last.callback(one.close)
            last.callback(self._positions.close)

    def _pass(
        self, stop: threading.Event, *, follow: bool, on_progress: Callable[[int], None]
    ) -> Copied:
        with ExitStack() as stack:
            self._route = route = self._convert(self._source.schema)
            stack.callback(route.close)
            epochs = Epochs(
                self._sink,
                route.schema,
                writer_id=self.writer_id,
                clock=self._source.clock,
            )
            stack.callback(epochs.close)
            self._begin_letters(stack)
            self._position = self._positions.load(epochs.last, self._position)
            if self._position is not None:
                # The last run may have ended between commit and acknowledgement.
                self._acknowledge(self._position)
            rotation = self._read(follow=follow)
            stack.callback(self._end_pass, rotation)
            if self._position is None:
                # Committed now, so that a restart before the first row begins at the
                # same start.
                self._settle(epochs, rotation)
            route.begin(self._position)
            complete = False
            if not self._begins_paused(follow=follow):
                complete = self._pump(
                    epochs, rotation, route, stop, on_progress, follow=follow
                )
            self._settle(epochs, rotation)
            self._publish(self._position)  # also without new rows
            if self._committed:
                self._acknowledge(self._position)  # repeated if it failed before
        return self._result(complete=complete, unread=epochs.unread)

    def _result(self, *, complete: bool, unread: int) -> Copied:
        """Of a pass that has ended and committed."""
        if self._dead and self._letters is not None:
            place = self._letters.config.name
            log.warning("dead letters in %r: %d more", place, self._dead)
        confirmed = not unread
        if complete and not self._sink.claims.durable:
            # Streams that end with this process are ended normally for their readers.
            confirmed &= self._sink.end_stream(Finished()) is None
        assert self._position is not None
        return Copied(
            self._rows,
            self._epochs,
            self._position,
            complete,
            tuple(self._losses),
            self._dead,
            confirmed,
            self._paused,
            () if self._skipping is None else tuple(self._skipping.ranges),
        )

    def _read(self, *, follow: bool) -> Reading:
        """Begin to read the source at the committed position."""
        if self._backfill is not None:
            return self._backfill(self._position)
        rotation = read_from(
            self._source, start=self._position, default=self._default, follow=follow
        )
        if self._skipping is not None:
            self._skipping.begin(rotation.position)
        return rotation

    def _keep_up(self, epochs: Epochs, rotation: Reading, *, follow: bool) -> None:
        """Skip what is too late, and commit this at once."""
        if self._skipping is None or not isinstance(rotation, Rotation):
            return
        late, changed = self._skipping.look(rotation, follow=follow)
        if late:
            # Dead letters of what was read are committed with a position before the
            # skipped ranges: a restart may find these not skipped.
            self._settle(epochs, rotation)
            self._skipping.skip(rotation, late)
        if late or changed:
            self._settle(epochs, rotation)

    def _begins_paused(self, *, follow: bool) -> bool:
        """Whether there is nothing to do: a scheduler's copies must not pile up."""
        if self._control is not None and not follow:
            self._paused = self._control.pause
        return self._paused is not None

    def _hold(self, epochs: Epochs, rotation: Reading, stop: threading.Event) -> None:
        """While the copy is paused: commit what was read, and wait."""
        if self._control is not None and self._control.pause is not None:
            self._settle(epochs, rotation)
            self._control.wait(stop)

    def _begin_letters(self, stack: ExitStack) -> None:
        """Collect dead letters of a pass, from the position in their stream on."""
        if self._letters is None:
            return
        writer_id = f"{self.writer_id}/dead-letters"
        diversion = Diversion(self._letters, writer_id, self._source.clock)
        stack.callback(diversion.close)
        self._diversion = diversion

    def _pump(
        self,
        epochs: Epochs,
        rotation: Reading,
        route: Conversion,
        stop: threading.Event,
        on_progress: Callable[[int], None],
        *,
        follow: bool,
    ) -> bool:
        """Copy rows until the end or the stop; return whether it was the end."""
        while not stop.is_set():
            self._hold(epochs, rotation, stop)
            self._keep_up(epochs, rotation, follow=follow)
            batch = self._next(epochs, rotation)
            if batch is not None:
                self._take(epochs, route, batch)
            diversion = self._diversion
            late = route.due or (diversion is not None and diversion.due)
            if late or (epochs.begun and epochs.due):
                self._settle(epochs, rotation)
            on_progress(self._rows + epochs.pending)
            if rotation.finished:
                return True
            if batch is None and follow and self._all_ended(rotation):
                return True
        return False

    def _all_ended(self, rotation: Reading) -> bool:
        return isinstance(rotation, Rotation) and all_ended(self._source, rotation)

    def _take(self, epochs: Epochs, route: Conversion, batch: MessageBatch) -> None:
        """Write the rows of a batch, and its dead letters before them."""
        diversion = self._diversion
        if diversion is not None:
            diversion.add(batch)
        if not batch.num_rows:
            return
        self._reports.add(batch)
        rows, letters = route.apply(batch)
        if letters is not None:
            assert diversion is not None
            diversion.put(letters)
        self._write(epochs, rows, batch)

    def _write(self, epochs: Epochs, rows: pa.RecordBatch, batch: MessageBatch) -> None:
        try:
            epochs.write(rows, batch.size)
        except SchemaMismatch as error:
            msg = f"rows of {batch.partition} from offset {batch.first_offset} up to "
            msg += f"{batch.next_offset} cannot be written: {error.what}"
            error.what = msg
            raise

    def _next(self, epochs: Epochs, rotation: Reading) -> MessageBatch | None:
        patience = epochs.patience if epochs.begun else _TURN
        try:
            with _explained():
                batch = rotation.next_batch(max(0.0, min(_TURN, patience)))
        except IncarnationChanged:
            raise  # nothing is committed
        except StreamError:
            self._settle(epochs, rotation)
            raise
        return batch

    def _settle(self, epochs: Epochs, rotation: Reading) -> None:
        """Commit the open epoch with its position, if either has changed."""
        position = rotation.position
        if not epochs.pending and position == self._position:
            return
        with _explained():
            rotation.verify()
        rows = epochs.pending
        if self._diversion is not None:
            # Dead letters first: after the commit their range is not read again.
            before = self._diversion.rows
            self._diversion.commit(position)
            self._dead += self._diversion.rows - before
        assert self._route is not None
        self._route.commit(position)
        epoch = epochs.epoch
        if rows or self._positions.remembered:
            with self._reports.commit(epochs, self._position, position):
                epochs.commit(position)
            self._epochs += bool(rows)
            self._rows += rows
        self._positions.save(position)
        self._position = position
        self._publish(position)
        if self._on_commit is not None:
            self._on_commit(epoch, position)
        if rows:
            self._committed = True
        if self._committed:
            self._acknowledge(position)
        rotation.begin_range()

    def _publish(self, position: Position | None) -> None:
        if self._progress is not None:
            self._progress.publish(position)

    def _acknowledge(self, position: Position | None) -> None:
        """Acknowledge a durably committed position; not a mere start."""
        if self._sink.claims.durable and position is not None:
            self._acknowledger.acknowledge(held(position))

    def _end_pass(self, rotation: Reading) -> None:
        rotation.close()
        self._losses += rotation.counters.losses

    def _promise(self) -> Verdict:
        source, sink = self._source, self._sink
        sinks = (sink, *self._beside, self._letters)
        found = (one.guarantee(writer_id=self.writer_id) for one in sinks if one)
        parts = [source.guarantee, *found]
        verdict = combine(*parts)
        if not self._positions.stored:
            reason = "the position is not stored, so a new run copies all rows again"
            verdict = combine(verdict, Verdict(Guarantee.AT_LEAST_ONCE, (reason,)))
        configs = [one.config for one in (source, *sinks) if one]
        return check_guarantee("copy", verdict, configs)


@contextmanager
def _explained() -> Iterator[None]:
    """Say how to copy a topic that was recreated."""
    try:
        yield
    except IncarnationChanged as error:
        error.remedy = _ANOTHER
        raise
