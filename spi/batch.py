"""What a fetch answers: `Fetched` from the author, `MessageBatch` to everybody else."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.spi.ends import End
    from streamfactory.spi.positions import Partition


class BatchState(Enum):
    """Why a batch is as it is; an empty one always says why (rule R5)."""

    DATA = "data"
    """It has rows."""
    CAUGHT_UP = "caught_up"
    """Empty: the next offset reached the latest known during this very call, or the
    end that was asked for."""
    IDLE = "idle"
    """Empty: the deadline passed and the latest is not known."""
    THROTTLED = "throttled"
    """Empty: the source asked to slow down; says nothing about lag."""
    END_OF_PARTITION = "end_of_partition"
    """Empty, and no message will ever come from this partition again."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What is known to be missing: never a silent skip."""

    partition: Partition
    start: int
    """First offset lost, inclusive."""
    end: int | None
    """First offset not lost; None where nobody can say."""
    cause: str
    """``retention``, ``truncated``, ``incarnation``, ``vanished``, or a sentence."""

    def to_dict(self) -> dict[str, str | int | None]:
        """As plain values, for ``--json`` and for counters."""
        return {
            "partition": str(self.partition),
            "from": self.start,
            "to": self.end,
            "cause": self.cause,
        }


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """What one call of an author's ``fetch_messages`` may take.

    Rows and bytes are wishes that spare work: the framework cuts what is too much and
    keeps it for the next call. Time is not a wish.
    """

    max_rows: int
    max_bytes: int
    timeout: float
    """Seconds; at most 0.25 unless the author's consumer defines ``wake``."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What an author's ``fetch_messages`` answers.

    Args:
        rows: Envelopes (`envelope_schema`) or typed rows, in strictly rising order of
            (offset, ordinal within the message). None for an empty answer. The batch
            belongs to the framework from here on: do not write into its buffers.
        next_offset: Where to go on; may lie beyond ``start`` though ``rows`` is empty
            (aborted transactions, compacted tails).
        offsets: The offset of each row, int64. None means consecutive rows from
            ``start``, or for envelopes their ``offset`` column.
        state: Only where known: ``CAUGHT_UP``, ``THROTTLED``, ``END_OF_PARTITION``.
            The framework derives the rest.
        latest: The offset that the next message will get, where this answer knows it.
        held_from: Nothing at or after this offset was lost before the first row of
            this answer (or before ``next_offset``, where there is none). At most
            ``start``, it proves that a gap is a gap and not a loss, and spares the
            framework a metadata call; None where not known. Says nothing across
            incarnations.
        incarnation: What the offsets of this answer count; given with every answer,
            empty ones too, where it may change under an open consumer. A change is
            told by an answer without rows, whose ``next_offset`` counts in the new one
            and may lie below ``start``; the framework then applies rule R7. A change
            since the previous answer of the consumer, also where it has gone to another
            offset or has connected again meanwhile.
        unfiltered_count: Messages received, filtered ones and markers included. None
            means: as many as ``rows`` has.
        size: Bytes of the rows, where known at no cost (of compressed ones, as they
            are in memory). None makes the framework estimate; never compute
            ``rows.nbytes`` for it.
        losses: What the source itself knows to be missing.
        end: With ``END_OF_PARTITION``, the kind of end; None is `Finished`.
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


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Rows of one partition with their place in the stream. Made by the framework."""

    partition: Partition
    rows: pa.RecordBatch
    """Of the stream's schema, exactly, on every batch (rule D4). May be empty."""
    start_offset: int
    """What was asked for, inclusive."""
    next_offset: int
    """Where to go on; may be beyond the last row."""
    state: BatchState
    first_offset: int | None = None
    """Offset of the first row; None where there is no row."""
    offsets: pa.Int64Array | None = None
    """Offset of each row; None means consecutive ones from ``first_offset``."""
    latest: int | None = None
    """Offset that the next message will get, as known during the call; None where
    unknown."""
    unfiltered_count: int = 0
    """Messages received, those included that became no row."""
    size: int = 0
    """Bytes received; an estimate where the backend does not say."""
    incarnation: str | None = None
    losses: tuple[Loss, ...] = field(default=())
    end: End | None = None
    """The kind of end, with ``END_OF_PARTITION``."""
    dead_letters: pa.RecordBatch | None = None
    """The undecodable messages of this range, where ``copy`` or a group asked for them:
    rows of the schema of dead letters. None where there is none."""

    @property
    def num_rows(self) -> int:
        """Rows in this batch."""
        return int(self.rows.num_rows)

    @property
    def lag(self) -> int | None:
        """Latest less next (rule M7); None where the latest is unknown."""
        if self.latest is None:
            return None
        return max(0, self.latest - self.next_offset)

    def __len__(self) -> int:
        return self.num_rows
