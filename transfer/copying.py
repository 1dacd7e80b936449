"""One stream copied into another, exactly once where both ends allow it.

The position of the source is stored in the sink, with the rows that it belongs to:
whoever begins again asks the sink where it stands. Where a sink cannot remember, a
checkpoint does, and rows after the last one come again.
"""

from __future__ import annotations

import re
import zlib
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    Checkpoint,
    EpochMarkerLost,
    Finished,
    Guarantee,
    IncarnationChanged,
    Position,
    PositionRefused,
    SchemaMismatch,
    StreamError,
    TransientError,
    Verdict,
    combine,
)
from streamfactory.transfer.conversion import Route
from streamfactory.wiring.config.guarantees import check_guarantee
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.reading.acknowledging import Acknowledger
from streamfactory.wiring.reading.following import all_ended, read_from, refuse_torn
from streamfactory.wiring.reading.progress import ProgressGroup
from streamfactory.wiring.writing.diverting import Diversion
from streamfactory.wiring.writing.epochs import Epochs

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    import pyarrow as pa

    from streamfactory.spi import CheckpointStore, LastCommit, Loss, MessageBatch
    from streamfactory.transfer.conversion import Conversion
    from streamfactory.wiring.reading.rotation import Rotation
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.writing.sink import Sink

_ANOTHER: Final = (
    "another stream of this name is copied under a writer id of its own (--writer); "
    "where the topic was made again, set `out.of.range` to earliest or latest"
)
_INSTANCE: Final = "0-of-1"
_TURN: Final = 0.2
"""Seconds that one fetch waits at the most: a stop is noticed that soon."""


@dataclass(frozen=True, slots=True)
class Copied:
    """Where a copy stands."""

    rows: int
    """Copied by this run."""
    epochs: int
    """Committed by this run, with rows."""
    position: Position
    """Next offset of each partition of the source, as it is committed."""
    complete: bool
    """Whether it reached its end, rather than being stopped."""
    losses: tuple[Loss, ...] = ()
    """What the source had lost."""
    dead_letters: int = 0
    """Committed by this run."""


@final
class Copy(Closing):
    """One stream into another. One thread runs it.

    Args:
        source: Where from; closed with the copy.
        sink: Where to; closed with the copy.
        writer_id: Who writes.
        checkpoints: Where positions are kept beside the sink; closed with the copy.
        carried: Whether both are streams of messages: then key, headers and timestamp
            go along.
        letters: Where dead letters go; closed with the copy.
        convert: Makes of the source's batches what the sink gets; else they go as
            they are.

    Raises:
        GuaranteeRefused: config; ``guarantee`` of either end asks for more.
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
    ) -> None:
        self.writer_id = writer_id
        self.created = False
        """Whether the sink's topic was made for this copy."""
        self._source = source
        self._sink = sink
        self._store = checkpoints
        self._group = _file_name(writer_id)
        self._carried = carried
        self._letters = letters
        self._convert = convert
        self._diversion: Diversion | None = None
        self._generation = 0
        self._progress = ProgressGroup(source)
        self._acknowledger = Acknowledger(source)
        self._committed = False
        self._position: Position | None = None
        self._rows = self._epochs = self._dead = 0
        self._losses: list[Loss] = []
        self.guarantee = self._promise()
        """What copying promises, with reasons."""

    @property
    def source_name(self) -> str:
        """Of the stream that is copied."""
        return self._source.config.name

    @property
    def sink_name(self) -> str:
        """Of the stream that is written."""
        return self._sink.config.name

    @property
    def rows(self) -> int:
        """Rows committed so far."""
        return self._rows

    def mask(self, text: str) -> str:
        """``text`` without any secret of either configuration."""
        return self._sink.config.mask(self._source.config.mask(text))

    def run(
        self,
        stop: threading.Event,
        *,
        follow: bool = False,
        tell: Callable[[int], None] = lambda _: None,
    ) -> Copied:
        """Copy until caught up with what is there now, or for ever.

        After passing trouble it begins again where the sink stands.

        Args:
            stop: Once it is set, the open epoch is committed, and that is all.
            follow: Go on for ever, new partitions included.
            tell: Is given the rows so far, often.

        Raises:
            SchemaMismatch: permanent; rows of the source do not fit the sink. Nothing
                was written.
            PositionRefused: permanent; the writer was used for something else.
            EpochMarkerLost: data_loss; the sink has forgotten the writer, a checkpoint
                has not.
            StreamError: As either end raises. What was read before the source failed
                is committed.
        """
        failures = 0
        while True:
            done = self._epochs
            try:
                return self._pass(stop, follow=follow, tell=tell)
            except TransientError as error:
                failures = failures + 1 if self._epochs == done else 1
                policy = self._sink.guard.policy
                again = self._source.claims.replayable and failures < policy.attempts
                if not again or stop.is_set():
                    raise
                log.warning("the copy begins again: %s", error)
                self._source.clock.wait(stop, policy.pause(failures))

    def close(self) -> None:
        """Close both ends; twice is fine."""
        with ExitStack() as last:
            last.callback(self._sink.close)
            last.callback(self._source.close)
            if self._letters is not None:
                last.callback(self._letters.close)
            if self._store is not None:
                last.callback(self._store.close)

    def _pass(
        self, stop: threading.Event, *, follow: bool, tell: Callable[[int], None]
    ) -> Copied:
        with ExitStack() as stack:
            route = self._route()
            stack.callback(route.close)
            epochs = Epochs(
                self._sink,
                route.schema,
                writer_id=self.writer_id,
                clock=self._source.clock,
            )
            stack.callback(epochs.close)
            self._begin_letters(stack)
            self._position = self._stands_at(epochs.last)
            if self._position is not None:
                # The last run may have ended between its commit and this.
                self._acknowledge(self._position)
            rotation = read_from(
                self._source, start=self._position, default="earliest", follow=follow
            )
            stack.callback(self._end_pass, rotation)
            if self._position is None:
                # Now, so that a restart before the first row begins where this did.
                self._settle(epochs, rotation)
            complete = self._pump(epochs, rotation, route, stop, tell, follow=follow)
            self._settle(epochs, rotation)
            self._progress.publish(self._position)  # also where nothing new came
            if self._committed:
                self._acknowledge(self._position)  # again, where that failed before
        if self._dead and self._letters is not None:
            place = self._letters.config.name
            log.warning("dead letters in %r: %d more", place, self._dead)
        if complete and not self._sink.claims.durable:
            # What does not outlive this process ends with it: readers learn that all
            # is well.
            self._sink.end_stream(Finished())
        assert self._position is not None
        return Copied(
            self._rows,
            self._epochs,
            self._position,
            complete,
            tuple(self._losses),
            self._dead,
        )

    def _begin_letters(self, stack: ExitStack) -> None:
        """Take the dead letters of a pass, beginning where their stream stands."""
        if self._letters is None:
            return
        writer_id = f"{self.writer_id}/dead-letters"
        diversion = Diversion(self._letters, writer_id, self._source.clock)
        stack.callback(diversion.close)
        self._diversion = diversion

    def _pump(
        self,
        epochs: Epochs,
        rotation: Rotation,
        route: Conversion,
        stop: threading.Event,
        tell: Callable[[int], None],
        *,
        follow: bool,
    ) -> bool:
        """Move rows until the end, or until stopped; whether it was the end."""
        while not stop.is_set():
            batch = self._next(epochs, rotation)
            if batch is not None:
                self._take(epochs, route, batch)
            diversion = self._diversion
            late = diversion is not None and diversion.due
            if late or (epochs.pending and epochs.due):
                self._settle(epochs, rotation)
            tell(self._rows + epochs.pending)
            if rotation.finished:
                return True
            if batch is None and follow and all_ended(self._source, rotation):
                return True
        return False

    def _take(self, epochs: Epochs, route: Conversion, batch: MessageBatch) -> None:
        """Write the rows of a batch, and its dead letters before them."""
        diversion = self._diversion
        if diversion is not None:
            diversion.add(batch)
        if not batch.num_rows:
            return
        rows, letters, offsets = route.apply(batch)
        if letters is not None:
            assert diversion is not None
            diversion.put(batch.partition, letters, offsets, batch.incarnation)
        self._write(epochs, rows, batch)

    def _write(self, epochs: Epochs, rows: pa.RecordBatch, batch: MessageBatch) -> None:
        try:
            epochs.write(rows, batch.size)
        except SchemaMismatch as error:
            msg = f"rows of {batch.partition} from offset {batch.first_offset} up to "
            msg += f"{batch.next_offset} cannot be written: {error.what}"
            error.what = msg
            raise

    def _next(self, epochs: Epochs, rotation: Rotation) -> MessageBatch | None:
        patience = epochs.patience if epochs.pending else _TURN
        try:
            batch = rotation.next_batch(max(0.0, min(_TURN, patience)))
            if batch is not None:
                refuse_torn(batch, self._source.config.name)
        except IncarnationChanged as error:
            # Nothing is committed: rows of both lives may be among those read.
            error.remedy = _ANOTHER
            raise
        except StreamError:
            self._settle(epochs, rotation)
            raise
        return batch

    def _settle(self, epochs: Epochs, rotation: Rotation) -> None:
        """Commit the open epoch with its position, where either has moved."""
        position = rotation.position
        if not epochs.pending and position == self._position:
            return
        rows = epochs.pending
        if self._diversion is not None:
            # First: what is committed behind them is not read again.
            before = self._diversion.rows
            self._diversion.commit(position)
            self._dead += self._diversion.rows - before
        if rows or self._remembered:
            epochs.commit(position)
            self._epochs += bool(rows)
            self._rows += rows
        if self._store is not None:
            checkpoint = Checkpoint(position, self._generation + 1)
            self._store.save(self._group, _INSTANCE, checkpoint)
            self._generation += 1
        self._position = position
        self._progress.publish(position)
        if rows:
            self._committed = True
        if self._committed:
            self._acknowledge(position)
        rotation.begin_range()

    def _acknowledge(self, position: Position | None) -> None:
        """Acknowledge what is committed durably; a start alone commits nothing."""
        if self._sink.claims.durable:
            self._acknowledger.acknowledge(position)

    def _stands_at(self, last: LastCommit | None) -> Position | None:
        """Where to begin; None where nobody has begun yet."""
        name = self._sink.config.name
        saved = None
        if self._store is not None:
            saved = self._store.load(self._group).get(_INSTANCE)
        if saved is not None:
            self._generation = max(self._generation, saved.generation)
        if last is not None:
            if last.source_position is None:
                msg = (
                    f"writer id {self.writer_id!r} was used by a writer other than copy"
                )
                raise PositionRefused(
                    msg, stream=name, remedy="copy under another writer id"
                )
            return last.source_position
        if self._remembered and (saved is not None or self._position is not None):
            msg = f"the sink has forgotten the writer {self.writer_id!r}"
            remedy = (
                "look what the sink holds, then copy under another writer id, or "
                "remove the checkpoint to begin again at the start"
            )
            raise EpochMarkerLost(msg, stream=name, remedy=remedy)
        return self._position if saved is None else saved.position

    @property
    def _remembered(self) -> bool:
        """Whether the sink itself remembers how far its writer is."""
        return self._sink.claims.idempotent

    def _end_pass(self, rotation: Rotation) -> None:
        rotation.close()
        self._losses += rotation.counters.losses

    def _promise(self) -> Verdict:
        source, sink = self._source, self._sink
        parts = [source.guarantee, sink.guarantee(writer_id=self.writer_id)]
        if self._letters is not None:
            parts.append(self._letters.guarantee(writer_id=self.writer_id))
        verdict = combine(*parts)
        if not self._remembered and self._store is None:
            reason = "nobody keeps the position, so a new run copies all again"
            verdict = combine(verdict, Verdict(Guarantee.AT_LEAST_ONCE, (reason,)))
        return check_guarantee("copy", verdict, [source.config, sink.config])

    def _route(self) -> Conversion:
        if self._convert is not None:
            return self._convert(self._source.schema)
        partitions = len(self._source.metadata.partitions())
        count = self._sink.partition_count()
        keyed = self._carried or bool(self._sink.config.get("producer.key.columns"))
        kept = partitions == count or not keyed
        dropped = {"_topic", "_offset", "_partition"} if self._carried else set()
        return Route(self._source.schema, dropped, count if kept else None)


def _file_name(writer_id: str) -> str:
    """A name for a folder that no other writer has."""
    readable = re.sub("[^A-Za-z0-9._-]+", "-", writer_id).strip("-._")[:80]
    return f"w-{readable}-{zlib.crc32(writer_id.encode()):08x}"
