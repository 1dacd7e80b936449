"""Checks of rows before they are sent, which can name the offending row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import MessageTooLarge, Partition, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

_MILLISECOND: Final = 1000
"""In microseconds, the unit of timestamps here."""
_BEFORE: Final = "message.timestamp.before.max.ms"
_AFTER: Final = "message.timestamp.after.max.ms"
_UNLIMITED: Final = 2**62
_SKEW: Final = 300_000
"""Milliseconds by which the clocks of broker and writer may differ: the broker decides
about times that are so close to the limit."""


class RowChecks:
    """Refuses rows that a topic would reject or change.

    Args:
        topic: The target topic.
        settings: The topic's configuration; empty if it cannot be read.
        lengths: Whether to check lengths; False with compression, where only the broker
            can decide.
    """

    def __init__(
        self, topic: str, settings: Mapping[str, str], *, lengths: bool
    ) -> None:
        self._topic = topic
        limit = settings.get("max.message.bytes") if lengths else None
        self._limit = None if limit is None else int(limit)
        # With LogAppendTime the broker replaces every timestamp, as configured.
        self._keeps_timestamps = (
            settings.get("message.timestamp.type") != "LogAppendTime"
        )
        self._limits = {
            key: int(settings[key])
            for key in (_BEFORE, _AFTER)
            if key in settings
            and self._keeps_timestamps
            and int(settings[key]) < _UNLIMITED
        }
        self._compacted = "compact" in settings.get("cleanup.policy", "")
        self._rows = 0

    def __call__(self, rows: pa.RecordBatch, partition: int) -> None:
        """Check rows of `message_schema` for one partition.

        Raises:
            MessageTooLarge: permanent; a message exceeds the topic's limit.
            SchemaMismatch: permanent; a timestamp or a header cannot be written, or a
                row of a compacted topic has no key.
        """
        before, self._rows = self._rows, self._rows + rows.num_rows
        where = Partition(self._topic, partition)
        self._check_lengths(rows, before, where)
        if self._keeps_timestamps:
            self._check_timestamps(rows.column("timestamp"), before, where)
            self._check_limits(rows.column("timestamp"), before, where)
        self._check_headers(rows.column("headers"), before, where)
        if self._compacted:
            self._check_keys(rows.column("key"), before, where)

    def _check_lengths(
        self, rows: pa.RecordBatch, before: int, where: Partition
    ) -> None:
        if self._limit is None:
            return
        lengths = _lengths(rows)
        longest = pc.max(lengths).as_py() or 0
        if longest <= self._limit:
            return
        row = before + pc.index(lengths, longest).as_py()
        msg = f"row {row} for topic {self._topic!r} has a message of {longest} "
        msg += "bytes with key and headers, max.message.bytes of the topic is "
        msg += str(self._limit)
        remedy = "increase the topic's max.message.bytes, or write smaller messages"
        raise MessageTooLarge(msg, partition=where, remedy=remedy)

    def _check_timestamps(
        self, timestamps: pa.Array, before: int, where: Partition
    ) -> None:
        """Refuse the one millisecond that librdkafka replaces by the current time.

        Its ``produce`` interprets 0 as "no timestamp". Times before 1970 are kept.
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
        msg = f"row {before + index} for topic {self._topic!r} has a '_timestamp' "
        msg += "of 1970-01-01T00:00:00.000Z, which the Kafka client replaces by the "
        msg += "current time"
        remedy = (
            "write null for the current time, or a time after the first millisecond of "
            "1970"
        )
        raise SchemaMismatch(msg, partition=where, remedy=remedy)

    def _check_limits(
        self, timestamps: pa.Array, before: int, where: Partition
    ) -> None:
        """Refuse times that the topic does not accept: the broker names no row."""
        if not self._limits or timestamps.null_count == len(timestamps):
            return
        now = time.time_ns() // 1_000_000
        millis = pc.divide(timestamps.cast(pa.int64()), _MILLISECOND)
        for key, limit in self._limits.items():
            ahead = pc.subtract(millis, now)
            distance = ahead if key == _AFTER else pc.negate(ahead)
            index = pc.index(pc.greater(distance, limit + _SKEW), True).as_py()
            if index < 0:
                continue
            msg = f"row {before + index} for topic {self._topic!r} has a '_timestamp' "
            msg += (
                f"of {millis[index]} ms since 1970, which is outside of {key}={limit} "
            )
            msg += "of the topic"
            remedy = f"increase the topic's {key}, or write null for the current time"
            raise SchemaMismatch(msg, partition=where, remedy=remedy)

    def _check_keys(self, keys: pa.Array, before: int, where: Partition) -> None:
        """Refuse rows without a key, which cannot be compacted."""
        if not keys.null_count:
            return
        row = before + pc.index(keys.is_null(), True).as_py()
        msg = f"row {row} for topic {self._topic!r} has no key, and the topic is "
        msg += "compacted (cleanup.policy)"
        remedy = "set producer.key.columns, or fill the column _key"
        raise SchemaMismatch(msg, partition=where, remedy=remedy)

    def _check_headers(self, headers: pa.Array, before: int, where: Partition) -> None:
        """Refuse names with a NUL, at which the client ends them."""
        if headers.null_count == len(headers):
            return
        found = pc.index(pc.match_substring(headers.flatten().field("key"), "\0"), True)
        if found.as_py() < 0:
            return
        row = before + pc.list_parent_indices(headers)[found.as_py()].as_py()
        msg = f"row {row} for topic {self._topic!r} has a header whose name contains a "
        msg += "NUL character, where the Kafka client would end the name"
        remedy = "write header names without NUL characters"
        raise SchemaMismatch(msg, partition=where, remedy=remedy)


def _lengths(rows: pa.RecordBatch) -> pa.Array:
    """Bytes of the key, the value and the headers of each row."""
    columns = (rows.column(name) for name in ("key", "value"))
    key, value = (pc.binary_length(c).fill_null(0) for c in columns)
    headers = rows.column("headers")
    if headers.null_count == len(headers):
        return pc.add(key, value)
    pairs = headers.flatten()
    parts = (pc.binary_length(pairs.field(n)).fill_null(0) for n in ("key", "value"))
    within = np.bincount(
        pc.list_parent_indices(headers), pc.add(*parts), minlength=len(headers)
    )
    return pc.add(pc.add(key, value), pa.array(within.astype(np.int64)))
