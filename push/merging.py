"""The order in which a reader gets the batches of several lanes.

A policy takes batches from the queues with the channel's lock held (`Merge.pull`), and
computes without it (`Merge.next`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import ConfigError, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.push.queues import LaneQueue


class Merge(ABC):
    """One reader's policy."""

    @abstractmethod
    def pull(self, lanes: Sequence[LaneQueue]) -> bool:
        """Take what the next batch needs.

        Returns:
            Whether `next` has a batch. False where more has to arrive, or where all
            lanes have ended and are empty.
        """

    @abstractmethod
    def next(self) -> pa.RecordBatch:
        """The next batch, after `pull` has returned True."""

    def check(  # noqa: B027 - optional
        self, lane: int, batches: Sequence[pa.RecordBatch]
    ) -> None:
        """Refuse rows that cannot be merged, before any of them is queued."""


class _OneByOne(Merge):
    """Returns batches as they were pushed."""

    def __init__(self) -> None:
        self._taken: pa.RecordBatch | None = None

    def next(self) -> pa.RecordBatch:
        rows, self._taken = self._taken, None
        assert rows is not None
        return rows


@final
class Arrival(_OneByOne):
    """The order in which batches were pushed, over all lanes."""

    def pull(self, lanes: Sequence[LaneQueue]) -> bool:
        oldest = None
        for lane in lanes:
            # Numbers differ, so that no rows are compared.
            if lane.items and (oldest is None or lane.items[0] < oldest.items[0]):
                oldest = lane
        if oldest is not None:
            self._taken = oldest.pop()
        return oldest is not None


@final
class RoundRobin(_OneByOne):
    """One batch of each lane in turn; lanes without a batch are passed over."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 0

    def pull(self, lanes: Sequence[LaneQueue]) -> bool:
        for step in range(len(lanes)):
            number = (self._at + step) % len(lanes)
            if lanes[number].items:
                self._at = number + 1
                self._taken = lanes[number].pop()
                return True
        return False


@final
class Ordered(Merge):
    """Ascending values of one column; each lane must be sorted by it.

    Buffers one batch of each lane. Waits for the slowest lane: no row is returned while
    another lane could still push a smaller value.

    Args:
        column: Name of the column; no nulls and no NaN.
        schema: Of the table.
        lanes: How many there are.

    Raises:
        ConfigError: config; there is no such column, or its values have no order.
    """

    def __init__(self, column: str, schema: pa.Schema, lanes: int) -> None:
        at = schema.get_field_index(column)
        if at < 0:
            msg = f"merge: the table has no column {column!r}"
            raise ConfigError(msg, remedy=f"name one of {schema.names}")
        try:
            pc.min(pa.array([], schema.field(at).type))
            pc.less_equal(*[pa.array([], schema.field(at).type)] * 2)
        except pa.ArrowNotImplementedError as error:
            msg = f"merge: column {column!r} ({schema.field(at).type}) has no order"
            raise ConfigError(msg) from error
        self._column, self._at = column, at
        self._heads: list[pa.RecordBatch | None] = [None] * lanes
        self._last: list[Any] = [None] * lanes
        """The last value that was pushed, of each lane."""

    def check(self, lane: int, batches: Sequence[pa.RecordBatch]) -> None:
        last = self._last[lane]
        for rows in batches:
            if rows.num_rows:
                self._check_order(lane, rows.column(self._at), last)
                last = rows.column(self._at)[-1]
        self._last[lane] = last

    def _check_order(self, lane: int, values: pa.Array, last: Any) -> None:
        # Of NaN and of null no comparison is true.
        pairs = [(values, values), (values[:-1], values[1:])]
        if last is not None:
            pairs.append((pa.array([last], values.type), values[:1]))
        for smaller, larger in pairs:
            in_order = pc.less_equal(smaller, larger)
            if in_order.null_count or not pc.all(in_order, min_count=0).as_py():
                msg = (
                    f"lane {lane} is not sorted by column {self._column!r}, or "
                    "has nulls or NaN in it"
                )
                raise SchemaMismatch(msg, remedy="sort the rows of each lane")

    def pull(self, lanes: Sequence[LaneQueue]) -> bool:
        complete = True
        for number, lane in enumerate(lanes):
            while self._heads[number] is None and lane.items:
                rows = lane.pop()
                self._heads[number] = rows if rows.num_rows else None
            complete &= self._heads[number] is not None or lane.closed
        return complete and any(head is not None for head in self._heads)

    def next(self) -> pa.RecordBatch:
        heads = [(n, head) for n, head in enumerate(self._heads) if head is not None]
        lasts = pa.array([head.column(self._at)[-1] for _, head in heads])
        bound = pc.min(lasts.cast(heads[0][1].schema.field(self._at).type))
        parts = []
        for number, head in heads:
            fits = pc.less_equal(head.column(self._at), bound)
            count = pc.sum(fits, min_count=0).as_py()
            rest = head.slice(count)
            self._heads[number] = rest if rest.num_rows else None
            if count:
                parts.append(head.slice(0, count))
        if len(parts) == 1:
            return parts[0]
        rows = pa.concat_batches(parts)
        return rows.take(pc.sort_indices(rows.column(self._at)))
