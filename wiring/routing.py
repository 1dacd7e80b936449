"""Which partition rows go to, and what travels beside them (rule W8)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import Outgoing, SchemaMismatch, headers_type
from streamfactory.wiring.murmur import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SPECIAL: Final = ("_partition", "_key", "_headers", "_timestamp", "_topic")

_KINDS: Final = {
    "_partition": pa.int32(),
    "_headers": headers_type(),
    "_timestamp": pa.timestamp("us", tz="UTC"),
    "_topic": pa.string(),
}


@dataclass(frozen=True, slots=True)
class Parcel:
    """Rows without the framework's columns, and these beside them."""

    rows: pa.RecordBatch
    special: dict[str, pa.Array]


def unpack(rows: pa.RecordBatch) -> Parcel:
    """Take the framework's columns out of the rows.

    Raises:
        SchemaMismatch: permanent; one of them has a type that it cannot have.
    """
    present = [name for name in SPECIAL if name in rows.schema.names]
    if not present:
        return Parcel(rows, {})
    special = {name: _cast(name, rows.column(name)) for name in present}
    kept = [name for name in rows.schema.names if name not in special]
    return Parcel(rows.select(kept), special)


def _cast(name: str, column: pa.Array) -> pa.Array:
    kind = _KINDS.get(name)
    if kind is None:
        kind = pa.string() if pa.types.is_large_string(column.type) else column.type
        if not (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            kind = pa.binary()
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = f"column {name!r} is {column.type}, wanted {kind}"
        raise SchemaMismatch(msg) from error


class Router:
    """Spreads rows over partitions.

    Args:
        partitions: How many there are.
        task: Number of the task: where rows without key or partition go.
        key_columns: Columns whose values are the key, where there is no ``_key``.
    """

    def __init__(
        self, partitions: int, task: int, key_columns: Sequence[str] = ()
    ) -> None:
        self._count = partitions
        self._home = task % partitions
        self._key_columns = list(key_columns)

    def route(self, parcel: Parcel) -> Iterator[Outgoing]:
        """Rows by partition and topic; their order within a partition is kept.

        Raises:
            SchemaMismatch: permanent; a partition is null, or not there.
        """
        for topic, part in _by_topic(parcel):
            chosen = self._choose(part)
            if isinstance(chosen, int):
                yield _outgoing(part, chosen, topic, None)
                continue
            for partition in np.unique(chosen):
                mask = chosen == partition
                index = None if mask.all() else pa.array(np.nonzero(mask)[0])
                yield _outgoing(part, int(partition), topic, index)

    def _choose(self, parcel: Parcel) -> np.ndarray | int:
        given = parcel.special.get("_partition")
        if given is not None:
            return self._given(given)
        key = parcel.special.get("_key")
        if key is None and self._key_columns:
            key = self._key_of(parcel.rows)
        if key is None or self._count == 1 or not len(key):
            return self._home
        chosen = np.full(len(key), self._home, np.int32)
        valid = key.is_valid().to_numpy(zero_copy_only=False)
        if valid.any():
            hashed = key.drop_null().cast(pa.binary())
            chosen[valid] = partition_of(hashed, self._count)
        return chosen

    def _given(self, column: pa.Array) -> np.ndarray | int:
        if not len(column):
            return self._home
        if column.null_count:
            msg = f"column '_partition' has {column.null_count} nulls"
            raise SchemaMismatch(msg)
        numbers = column.to_numpy()
        if numbers.min() < 0 or numbers.max() >= self._count:
            msg = f"'_partition' has {numbers.min()} to {numbers.max()}"
            remedy = f"the stream has partitions 0 to {self._count - 1}"
            raise SchemaMismatch(msg, remedy=remedy)
        return np.asarray(numbers)

    def _key_of(self, rows: pa.RecordBatch) -> pa.Array:
        missing = [n for n in self._key_columns if n not in rows.schema.names]
        if missing:
            msg = f"the key column {missing[0]!r} is not among the rows"
            raise SchemaMismatch(msg)
        parts = [_text(rows.column(name)) for name in self._key_columns]
        if len(parts) == 1:
            return parts[0]
        return pc.binary_join_element_wise(*parts, "\0")


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        return column
    return column.cast(pa.string())


def _by_topic(parcel: Parcel) -> Iterator[tuple[str | None, Parcel]]:
    topics = parcel.special.get("_topic")
    if topics is None:
        yield None, parcel
        return
    for topic in pc.unique(topics).to_pylist():
        if topic is None:
            msg = "column '_topic' has nulls"
            raise SchemaMismatch(msg)
        mask = pc.equal(topics, topic)
        special = {n: c.filter(mask) for n, c in parcel.special.items()}
        yield topic, Parcel(parcel.rows.filter(mask), special)


def _outgoing(
    parcel: Parcel, partition: int, topic: str | None, index: pa.Array | None
) -> Outgoing:
    def take(column: pa.Array | None) -> pa.Array | None:
        return column if column is None or index is None else column.take(index)

    return Outgoing(
        rows=parcel.rows if index is None else parcel.rows.take(index),
        partition=partition,
        key=take(parcel.special.get("_key")),
        headers=take(parcel.special.get("_headers")),
        timestamp=take(parcel.special.get("_timestamp")),
        topic=topic,
    )
