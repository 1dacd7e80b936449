"""Checks of rows before they are written, while it is known which row is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import MessageTooLarge, Partition, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

_MILLISECOND: Final = 1000
"""In microseconds, which is how timestamps are written here."""


class RowChecks:
    """Refuses rows that a topic does not take, or not as they are.

    Args:
        topic: Where the rows go.
        settings: The topic's configuration; empty where it cannot be seen.
        lengths: Whether lengths are checked; False where the broker decides, after
            compression.
    """

    def __init__(
        self, topic: str, settings: Mapping[str, str], *, lengths: bool
    ) -> None:
        self._topic = topic
        limit = settings.get("max.message.bytes") if lengths else None
        self._limit = None if limit is None else int(limit)
        # The broker replaces every timestamp of such a topic: the user configured it.
        self._keeps_timestamps = (
            settings.get("message.timestamp.type") != "LogAppendTime"
        )
        self._rows = 0

    def __call__(self, rows: pa.RecordBatch, partition: int) -> None:
        """Check rows of `message_schema` that go to one partition.

        Raises:
            MessageTooLarge: permanent; a message is longer than the topic takes.
            SchemaMismatch: permanent; a timestamp cannot be written.
        """
        before, self._rows = self._rows, self._rows + rows.num_rows
        where = Partition(self._topic, partition)
        self._check_lengths(rows, before, where)
        if self._keeps_timestamps:
            self._check_timestamps(rows.column("timestamp"), before, where)

    def _check_lengths(
        self, rows: pa.RecordBatch, before: int, where: Partition
    ) -> None:
        if self._limit is None:
            return
        columns = (rows.column(name) for name in ("key", "value"))
        key, value = (pc.binary_length(c).fill_null(0) for c in columns)
        lengths = pc.add(key, value)
        longest = pc.max(lengths).as_py() or 0
        if longest <= self._limit:
            return
        row = before + pc.index(lengths, longest).as_py()
        msg = f"row {row} of those for {self._topic!r} makes a message of {longest} "
        msg += f"bytes, and the topic takes {self._limit}"
        remedy = "raise the topic's max.message.bytes, or write smaller messages"
        raise MessageTooLarge(msg, partition=where, remedy=remedy)

    def _check_timestamps(
        self, timestamps: pa.Array, before: int, where: Partition
    ) -> None:
        """Refuse the one millisecond that librdkafka replaces by the current time.

        Its ``produce`` takes 0 for "no timestamp", and no other value stands for 0.
        Times before 1970 are kept.
        """
        if timestamps.null_count == len(timestamps):
            return
        micros = timestamps.cast(pa.int64())
        replaced = pc.and_(
            pc.greater_equal(micros, 0), pc.less(micros, _MILLISECOND)
        ).fill_null(False)
        index = pc.index(replaced, True).as_py()
        if index < 0:
            return
        msg = f"row {before + index} of those for {self._topic!r} has a '_timestamp' "
        msg += "of 1970-01-01T00:00:00.000Z, which the Kafka client replaces by the "
        msg += "current time"
        remedy = (
            "write null there for the time of writing, or a time that is not within "
            "the first millisecond of 1970"
        )
        raise SchemaMismatch(msg, partition=where, remedy=remedy)
