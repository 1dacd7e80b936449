"""Turns the results of one consumer into checked batches (rules R1, R4, R5, D4)."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, final

from streamfactory.spi import (
    BatchState,
    ConnectionFailed,
    ContractBroken,
    Failed,
    Fetched,
    Finished,
    MessageBatch,
)
from streamfactory.wiring.decoding.deadletters import with_incarnation
from streamfactory.wiring.reading.clipping import Answer, cut

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.spi import FetchLimits, Loss, Partition
    from streamfactory.wiring.decoding.row_schema import Shaper
    from streamfactory.wiring.reading.bounds import Bounds
    from streamfactory.wiring.reading.counters import Counters


def checked_answer(answer: object) -> Fetched:
    """Return the result of ``fetch_messages`` if it has the right type (rule R5).

    Raises:
        ContractBroken: plugin.
    """
    if not isinstance(answer, Fetched):
        msg = f"rule R5: fetch_messages returned a {type(answer).__name__}"
        raise ContractBroken(msg)
    return answer


def refuse_torn(batch: MessageBatch, stream: str) -> None:
    """Raise if a partition broke off instead of ending.

    Raises:
        ConnectionFailed: transient.
    """
    if isinstance(batch.end, Failed):
        msg = f"the stream broke off: {batch.end.cause}"
        raise ConnectionFailed(
            msg, stream=stream, partition=batch.partition, offset=batch.next_offset
        )


@final
class BatchMaker:
    """Creates the batches of one partition, for a reader or a group member.

    One thread at a time.

    Args:
        partition: The partition.
        shaper: Converts rows to the declared schema; closed with this.
        bounds: Incarnation and losses of the partition.
        counters: Counts rows and batches.
    """

    def __init__(
        self, partition: Partition, shaper: Shaper, bounds: Bounds, counters: Counters
    ) -> None:
        self._partition = partition
        self._shaper = shaper
        self._bounds = bounds
        self._counters = counters
        self.rest: Answer | None = None
        """Rows of the last result beyond the limits: the next batch begins with
        them."""

    @property
    def schema(self) -> pa.Schema:
        """Of every batch."""
        return self._shaper.schema

    def begin_range(self) -> None:
        """Begin a planned range: reset the error budget (rule D3)."""
        self._shaper.begin_range()

    def accept(self, where: int, fetched: Fetched, *, drop: bool = True) -> Answer:
        """Check the offsets of a result (rule R1).

        Args:
            where: The requested offset; that of the first row, if rows have no offsets.
            fetched: The result of the consumer.
            drop: Whether rows before ``where`` are dropped.

        Raises:
            ContractBroken: plugin; the offsets contradict rule R1.
        """
        offsets = self._shaper.offsets_of(fetched)
        answer = Answer.of(where, fetched, offsets)
        count = answer.num_rows
        if not count:
            return answer
        if offsets is not None and len(offsets) != count:
            msg = f"rule R1: {count} rows with {len(offsets)} offsets"
            raise ContractBroken(msg)
        first, last = answer.offset(0), answer.offset(count - 1)
        if last >= fetched.next_offset or last < first:
            msg = (
                f"rule R1: rows from {first} to {last}, but {fetched.next_offset} "
                "is next"
            )
            raise ContractBroken(msg)
        # Earlier rows were not requested: the beginning of a chunk, a redelivery.
        return answer.drop(where) if drop and first < where else answer

    def batch(
        self,
        start: int,
        where: int,
        end: int | None,
        limits: FetchLimits,
        answer: Answer,
    ) -> MessageBatch:
        """Return the next batch; rows beyond the limits are kept in `rest`.

        Args:
            start: The offset that the caller requested.
            where: The offset where reading continued: beyond ``start`` after a loss.
            end: End of the range, exclusive; None for no end.
            limits: Maximum rows and bytes.
            answer: A result that `accept` returned.

        Raises:
            SchemaMismatch: permanent; the rows do not fit (rule D4).
            DecodeError: decode.
        """
        answer, self.rest, next_offset = cut(answer, end, limits)
        next_offset = max(next_offset, where)
        if end is not None:
            next_offset = min(next_offset, end)
        fetched = answer.fetched
        began = perf_counter()
        rows, offsets, letters = self._shaper.shape(
            answer.rows, answer.offsets, answer.start, self._partition
        )
        self._counters.decode_seconds += perf_counter() - began
        if letters is not None:
            self._counters.dead_letters += letters.num_rows
        self._count(int(rows.num_rows), answer)
        state = self._state(int(rows.num_rows), fetched, next_offset, end)
        ended = state is BatchState.END_OF_PARTITION
        incarnation = self._bounds.incarnation
        if letters is not None:
            letters = with_incarnation(letters, incarnation)
        return MessageBatch(
            partition=self._partition,
            rows=rows,
            start_offset=start,
            next_offset=next_offset,
            state=state,
            first_offset=_first(answer, offsets) if rows.num_rows else None,
            offsets=offsets,
            latest=fetched.latest,
            unfiltered_count=answer.count,
            size=answer.size,
            incarnation=incarnation,
            losses=self._take_losses(fetched.losses),
            end=(fetched.end or Finished()) if ended else None,
            dead_letters=letters,
        )

    def empty(
        self,
        start: int,
        next_offset: int,
        state: BatchState = BatchState.CAUGHT_UP,
    ) -> MessageBatch:
        """Return a batch without rows, without calling the consumer (rule R4)."""
        rows, _, _ = self._shaper.shape(None, None, start, self._partition)
        return MessageBatch(
            self._partition,
            rows,
            start,
            next_offset,
            state,
            incarnation=self._bounds.incarnation,
            losses=self._take_losses(()),
        )

    def close(self) -> None:
        """Close the decoder."""
        self.rest = None
        self._shaper.close()

    def _state(
        self, rows: int, fetched: Fetched, next_offset: int, end: int | None
    ) -> BatchState:
        if rows:
            return BatchState.DATA
        if fetched.state is BatchState.END_OF_PARTITION and not fetched.rows:
            return BatchState.END_OF_PARTITION
        if fetched.state is BatchState.THROTTLED:
            return fetched.state
        if fetched.latest is not None:
            reached = next_offset >= fetched.latest
        else:
            reached = fetched.state is BatchState.CAUGHT_UP and self.rest is None
        if reached or (end is not None and next_offset >= end):
            return BatchState.CAUGHT_UP
        return BatchState.IDLE

    def _count(self, rows: int, answer: Answer) -> None:
        counters = self._counters
        counters.messages += answer.count
        counters.bytes += answer.size
        counters.bad_messages = self._shaper.bad_messages
        if rows:
            counters.rows += rows
            counters.batches += 1

    def _take_losses(self, reported: Sequence[Loss]) -> tuple[Loss, ...]:
        losses = (*self._bounds.losses, *reported)
        self._bounds.losses = []
        self._counters.losses.extend(losses)
        return losses


def _first(answer: Answer, offsets: pa.Int64Array | None) -> int:
    return answer.start if offsets is None else int(offsets[0].as_py())
