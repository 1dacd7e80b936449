"""Which partition rows go to, and what travels beside them (rule W8)."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import Outgoing, SchemaMismatch, headers_type
from streamfactory.spi.producer import CARRIED_COLUMNS
from streamfactory.wiring.core.conform import check_names, conform
from streamfactory.wiring.writing.murmur import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SPECIAL: Final = ("_partition", *CARRIED_COLUMNS)

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
        SchemaMismatch: permanent; one of them has a type that it cannot have, or two
            columns have one name.
    """
    check_names(rows.schema)
    present = [name for name in SPECIAL if name in rows.schema.names]
    if not present:
        return Parcel(rows, {})
    special = {name: _cast(name, rows.column(name)) for name in present}
    kept = [name for name in rows.schema.names if name not in special]
    return Parcel(rows.select(kept), special)


def _cast(name: str, column: pa.Array) -> pa.Array:
    kind = _KINDS.get(name)
    if kind is None:
        text = pa.types.is_large_string(column.type) or pa.types.is_string(column.type)
        kind = pa.string() if text else pa.binary()
    field = pa.field(name, kind)
    rows = pa.RecordBatch.from_arrays([column], names=[name])
    return conform(rows, pa.schema([field])).column(0)


def home_of(writer_id: str | None, epoch: int, task: int | None) -> int:
    """What rows without key and partition are spread by.

    The number of the task where there are tasks. Else each epoch of a writer goes to
    the next partition, and the same epoch to the same one when it is tried again;
    writers begin at different partitions. Nothing is ever tried again for nobody.
    """
    if task is not None:
        return task
    if writer_id is None:
        return random.randrange(2**31)  # noqa: S311 - not a secret
    return zlib.crc32(writer_id.encode(errors="replace")) + epoch


class Router:
    """Spreads rows over partitions.

    Args:
        count: Answers how many partitions a topic has; None is the sink's own topic.
        home: Modulo the number of partitions: where rows without key or partition go.
        key_columns: Columns whose values are the key, where there is no ``_key``.
    """

    def __init__(
        self,
        count: Callable[[str | None], int],
        home: int,
        key_columns: Sequence[str] = (),
    ) -> None:
        self._count = count
        self._home = home
        self._key_columns = list(key_columns)

    def key_of(self, parcel: Parcel) -> pa.Array | None:
        """What chooses the partition of each row; None where nothing does.

        Raises:
            SchemaMismatch: permanent; a key column is missing, or cannot be a key.
        """
        key = parcel.special.get("_key")
        if key is not None or not self._key_columns:
            return key
        rows = parcel.rows
        missing = [n for n in self._key_columns if n not in rows.schema.names]
        if missing:
            msg = f"the key column {missing[0]!r} is not among the rows"
            raise SchemaMismatch(msg)
        parts = [_octets(name, rows.column(name)) for name in self._key_columns]
        if len(parts) == 1:
            return parts[0]
        return pc.binary_join_element_wise(*parts, pa.scalar(b"\0"))

    def route(self, parcel: Parcel, key: pa.Array | None) -> Iterator[Outgoing]:
        """Rows by partition and topic; their order within a partition is kept.

        Args:
            parcel: The rows, and what travels with them.
            key: As `key_of` answers it.

        Raises:
            SchemaMismatch: permanent; a partition is null, or not there.
        """
        for topic, part, keys in _by_topic(parcel, key):
            chosen = self._choose(part, keys, self._count(topic))
            if isinstance(chosen, int):
                yield _outgoing(part, chosen, topic, None)
                continue
            order = np.argsort(chosen, kind="stable")
            partitions, begins = np.unique(chosen[order], return_index=True)
            if len(partitions) == 1:
                yield _outgoing(part, int(partitions[0]), topic, None)
                continue
            groups = np.split(order, begins[1:])
            for partition, group in zip(partitions, groups, strict=True):
                yield _outgoing(part, int(partition), topic, pa.array(group))

    def _choose(
        self, parcel: Parcel, key: pa.Array | None, count: int
    ) -> np.ndarray | int:
        given = parcel.special.get("_partition")
        if given is not None:
            return _given(given, count)
        home = self._home % count
        if key is None or count == 1:
            return home
        chosen = np.full(len(key), home, np.int32)
        valid = key.is_valid().to_numpy(zero_copy_only=False)
        if valid.any():
            hashed = key.drop_null().cast(pa.binary())
            chosen[valid] = partition_of(hashed, count)
        return chosen


def _given(column: pa.Array, count: int) -> np.ndarray:
    if column.null_count:
        msg = f"column '_partition' has {column.null_count} nulls"
        raise SchemaMismatch(msg)
    numbers = column.to_numpy()
    if numbers.min() < 0 or numbers.max() >= count:
        msg = f"'_partition' has {numbers.min()} to {numbers.max()}"
        remedy = f"the stream has partitions 0 to {count - 1}"
        raise SchemaMismatch(msg, remedy=remedy)
    return np.asarray(numbers)


def _octets(name: str, column: pa.Array) -> pa.Array:
    """Binary as it is, everything else as the octets of its text."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type):
        return column
    try:
        if not pa.types.is_fixed_size_binary(column.type):
            column = column.cast(pa.string())
        return column.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        msg = f"the key column {name!r} is {column.type}, which cannot be a key"
        raise SchemaMismatch(msg) from error


def _by_topic(
    parcel: Parcel, key: pa.Array | None
) -> Iterator[tuple[str | None, Parcel, pa.Array | None]]:
    topics = parcel.special.get("_topic")
    if topics is None:
        yield None, parcel, key
        return
    for topic in pc.unique(topics).to_pylist():
        if topic is None:
            msg = "column '_topic' has nulls"
            raise SchemaMismatch(msg)
        mask = pc.equal(topics, topic)
        special = {n: c.filter(mask) for n, c in parcel.special.items()}
        part = Parcel(parcel.rows.filter(mask), special)
        yield topic, part, None if key is None else key.filter(mask)


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
