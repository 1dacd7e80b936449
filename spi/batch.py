"""Results of a fetch: `Fetched` of a backend, `MessageBatch` of the framework."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from streamfactory.spi.notebook import header_of, html_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.spi.ends import End
    from streamfactory.spi.partitions import Partition

_SHOWN: Final = 5
"""Rows that notebooks show of a batch."""


class BatchState(Enum):
    """The state of a batch; it is the reason why an empty batch is empty (rule R5)."""

    DATA = "data"
    """It has rows."""
    CAUGHT_UP = "caught_up"
    """Empty: the next offset reached the latest offset known during this call, or the
    requested end."""
    IDLE = "idle"
    """Empty: the deadline passed and the latest is not known."""
    THROTTLED = "throttled"
    """Empty: the source throttled the consumer; implies nothing about lag."""
    END_OF_PARTITION = "end_of_partition"
    """Empty, and this partition will never have another message."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A range of offsets that is known to be lost.

    Losses are never skipped silently.

    Args:
        partition: Where the messages were.
        start: First offset lost, inclusive.
        end: First offset that is not lost; None if unknown.
        cause: ``retention``, ``truncated``, ``incarnation``, ``vanished``, or a
            sentence.
    """

    partition: Partition
    start: int
    end: int | None
    cause: str

    def to_dict(self) -> dict[str, str | int | None]:
        """Return plain values, for ``--json`` and for counters."""
        return {
            "partition": str(self.partition),
            "from": self.start,
            "to": self.end,
            "cause": self.cause,
        }


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one call of ``fetch_messages``.

    Rows and bytes are hints that save work: the framework cuts larger results and keeps
    the rest for the next call. The timeout is binding.

    Args:
        max_rows: Rows that are wanted at most; at least 1.
        max_bytes: Bytes that are wanted at most; at least 1.
        timeout: Seconds; at most 0.25 unless the author's consumer defines ``wake``.
    """

    max_rows: int
    max_bytes: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Fetched:
    """The result of ``fetch_messages`` of a consumer.

    Args:
        rows: Envelopes (`envelope_schema`) or typed rows, in strictly rising order of
            (offset, ordinal within the message). None for an empty result. The
            framework owns the batch from here on: do not write into its buffers.
        next_offset: The offset to continue at; it may be beyond ``start`` although
            ``rows`` is empty (aborted transactions, compacted tails).
        offsets: The offset of each row, int64. None means consecutive rows from
            ``start``, or for envelopes their ``offset`` column.
        state: Set it only if known: ``CAUGHT_UP``, ``THROTTLED``, ``END_OF_PARTITION``.
            The framework derives the others.
        latest: The offset that the next message will get, if known.
        held_from: No message between this offset and the first row (or ``next_offset``,
            if there is no row) was lost. If it is at most ``start``, a gap in the
            offsets is not a loss, and the framework saves a metadata call. None if
            unknown. It does not apply across incarnations.
        incarnation: The incarnation of these offsets; set in every result, empty ones
            included, if it can change while a consumer is open. A change is reported by
            a result without rows, whose ``next_offset`` belongs to the new incarnation
            and may be below ``start``; the framework then applies rule R7. A change is
            any difference from the previous result of this consumer, also after a seek
            or a reconnection. If None although the metadata has an incarnation, the
            framework checks it before rows are handed out
            (`MetadataProvider.fetch_incarnations`, rule R13).
        unfiltered_count: Messages received, filtered ones and markers included. None
            means the number of ``rows``.
        size: Bytes of the rows in memory (uncompressed), if known at no cost. If None,
            the framework estimates it; never compute ``rows.nbytes`` for it.
        losses: Losses that the source itself reports.
        end: With ``END_OF_PARTITION``, the kind of end; None is `Finished`.
        received: ``time.monotonic()`` when the last row had been received, if the
            result waited in a queue of a group member: one check of the incarnation
            then covers all results that were received before it. None: just now.
    """

    rows: pa.RecordBatch | None
    next_offset: int
    offsets: pa.Int64Array | None = None
    state: BatchState | None = None
    latest: int | None = None
    held_from: int | None = None
    incarnation: str | None = None
    unfiltered_count: int | None = None
    size: int | None = None
    losses: Sequence[Loss] = ()
    end: End | None = None
    received: float | None = None


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Rows of one partition with their offsets. Created by the framework.

    Args:
        partition: The partition that was read.
        rows: Of the stream's schema, exactly, on every batch (rule D4). May be empty.
        start_offset: The requested start, inclusive.
        next_offset: The offset to continue at; may be beyond the last row.
        state: Why it has rows, or none.
        first_offset: Offset of the first row; None if there is no row.
        offsets: Offset of each row; None means consecutive ones from ``first_offset``.
        latest: Offset that the next message will get, as known during the call; None if
            unknown.
        unfiltered_count: Messages received, including those that produced no row.
        size: Bytes received; an estimate if the backend does not report them.
        incarnation: What its offsets count; None if the source has none.
        losses: What was lost before its rows.
        end: The kind of end, with ``END_OF_PARTITION``.
        dead_letters: Undecodable messages of this range, if ``copy`` or a group
            collects them, as rows of the dead-letter schema. None if there are none.
    """

    partition: Partition
    rows: pa.RecordBatch
    start_offset: int
    next_offset: int
    state: BatchState
    first_offset: int | None = None
    offsets: pa.Int64Array | None = None
    latest: int | None = None
    unfiltered_count: int = 0
    size: int = 0
    incarnation: str | None = None
    losses: tuple[Loss, ...] = field(default=())
    end: End | None = None
    dead_letters: pa.RecordBatch | None = None

    @property
    def num_rows(self) -> int:
        """Rows in this batch."""
        return int(self.rows.num_rows)

    @property
    def lag(self) -> int | None:
        """Latest minus next offset (rule M7); None if the latest offset is unknown."""
        if self.latest is None:
            return None
        return max(0, self.latest - self.next_offset)

    def __len__(self) -> int:
        return self.num_rows

    def __repr__(self) -> str:
        rows = f"{self.num_rows} row{'' if self.num_rows == 1 else 's'}"
        offsets = f"offsets {self.start_offset} to {self.next_offset}"
        return (
            f"<MessageBatch of {self.partition}: {rows}, {offsets}, {self.state.value}>"
        )

    def _repr_html_(self) -> str:
        facts: list[tuple[str, object]] = [
            ("rows", self.num_rows),
            ("offsets", f"{self.start_offset} to {self.next_offset}"),
            ("lag", "unknown" if self.lag is None else self.lag),
            ("state", self.state.value),
            *(
                (f"lost: {loss.cause}", f"{loss.start} to {loss.end}")
                for loss in self.losses
            ),
        ]
        table = [header_of(self.rows.schema.names), *rows_of(self.rows, _SHOWN)]
        left = self.num_rows - _SHOWN
        notes = [f"{left} more rows"] if left > 0 else []
        return html_of(f"batch of {self.partition}", facts, (table,), notes)
