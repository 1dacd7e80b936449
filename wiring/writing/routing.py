"""Routes rows to partitions, and separates the framework's columns (rule W8)."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.compiled import routing as compiled
from streamfactory.conversion.conform import check_names, conform
from streamfactory.spi import Outgoing, SchemaMismatch, headers_type
from streamfactory.spi.ddl import type_text
from streamfactory.spi.producer import TOMBSTONE
from streamfactory.wiring.writing.murmur import partition_of, stable_order

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

ROUTING: Final = frozenset({"_partition", "_key", TOMBSTONE})
"""Columns that say where a row goes, or that its message has no value: of rows for any
sink (rule W8)."""

_KINDS: Final = {
    "_partition": pa.int32(),
    TOMBSTONE: pa.bool_(),
    "_headers": headers_type(),
    "_timestamp": pa.timestamp("us", tz="UTC"),
    "_topic": pa.string(),
}
_SAMPLE: Final = 1024
"""Rows that decide whether keys repeat."""
_BINARY: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
# Not floating-point numbers: equal ones can have two texts, 0 and -0.
_ENCODED: Final = (
    pa.types.is_integer,
    pa.types.is_date,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
"""Types that can be made a dictionary, of equal texts for equal values."""


class Parcel(NamedTuple):
    """Rows without the framework's columns, and these columns."""

    rows: pa.RecordBatch
    special: dict[str, pa.Array]

    def take(self, index: pa.Array) -> Parcel:
        """The rows of some indices, in their order."""
        special = {name: column.take(index) for name, column in self.special.items()}
        return Parcel(self.rows.take(index), special)

    def filter(self, mask: pa.Array) -> Parcel:
        """The rows for which a mask is true."""
        special = {name: one.filter(mask) for name, one in self.special.items()}
        return Parcel(self.rows.filter(mask), special)

    def slice(self, begin: int, size: int) -> Parcel:
        """Consecutive rows; nothing is copied."""
        special = {n: c.slice(begin, size) for n, c in self.special.items()}
        return Parcel(self.rows.slice(begin, size), special)


def framework_columns(carries: Collection[str], *, messages: bool) -> frozenset[str]:
    """Return the columns of rows to write that are the framework's.

    All others are columns of the rows, whatever their name: they are stored, or refused
    like any column that the sink does not have.

    Args:
        carries: Columns that the sink's type stores with a message.
        messages: Whether the sink stores messages; else it stores rows, and of these
            columns its type can only have the one of topics.
    """
    return ROUTING.union(carries if messages else {"_topic"}.intersection(carries))


def unpack(rows: pa.RecordBatch, special: frozenset[str]) -> Parcel:
    """Separate the framework's columns, `framework_columns`, from the rows.

    Raises:
        SchemaMismatch: permanent; one of them has an invalid type, or two columns have
            the same name.
    """
    check_names(rows.schema)
    names = rows.schema.names
    if special.isdisjoint(names):
        return Parcel(rows, {})
    found = {n: _cast(n, rows.column(n)) for n in names if n in special}
    kept = [name for name in names if name not in special]
    return Parcel(rows.select(kept), found)


def special_fields(names: Collection[str], own: pa.Schema) -> list[pa.Field]:
    """The framework's columns among those of a row that is written as text.

    Args:
        names: Columns of the row.
        own: Columns of the topic: one of them is not the framework's.
    """
    known = ("_key", *_KINDS)
    found = [name for name in known if name in names and name not in own.names]
    return [pa.field(name, _KINDS.get(name, pa.string())) for name in found]


def check_unreserved(schema: pa.Schema, special: frozenset[str]) -> None:
    """Refuse a sink with a column that could not be written.

    Raises:
        SchemaMismatch: permanent; a column has the name of one of the framework's.
    """
    for name in schema.names:
        if name in special:
            msg = f"the sink has a column {name!r}, which is the name of a framework's"
            remedy = "write to a sink whose columns have other names"
            raise SchemaMismatch(msg, remedy=remedy)


def _cast(name: str, column: pa.Array) -> pa.Array:
    kind = _KINDS.get(name)
    if kind is None:
        text = pa.types.is_large_string(column.type) or pa.types.is_string(column.type)
        kind = pa.string() if text else pa.binary()
    field = pa.field(name, kind)
    rows = pa.RecordBatch.from_arrays([column], names=[name])
    return conform(rows, pa.schema([field])).column(0)


def home_of(writer_id: str | None, epoch: int, task: int | None) -> int:
    """Return the number that determines the partition of rows without a key.

    It is the number of the task, if there are tasks. Otherwise each epoch of a writer
    goes to the next partition, and a repeated epoch to the same one; writers begin at
    different partitions. Without a writer id, epochs are never repeated, so it is
    random.
    """
    if task is not None:
        return task
    if writer_id is None:
        return random.randrange(2**31)  # noqa: S311 - not a secret
    return zlib.crc32(writer_id.encode(errors="replace")) + epoch


class Router:
    """Distributes rows to partitions.

    Args:
        count: Returns the number of partitions of a topic; None is the sink's own
            topic.
        home: Modulo the number of partitions, the partition of rows without key or
            partition.
        key_columns: Columns whose values are the key, if there is no ``_key``.
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
        """Return the key that determines the partition of each row.

        None if there is none.

        Binary; integers as they are where the compiled core makes their texts; or a
        dictionary of either where keys repeat. `plain` makes binary of each.

        Raises:
            SchemaMismatch: permanent; a key column is missing, or cannot be a key.
        """
        key = parcel.special.get("_key")
        if key is not None:
            return _octets("_key", _distinct(key))
        if not self._key_columns:
            return None
        rows = parcel.rows
        missing = [n for n in self._key_columns if n not in rows.schema.names]
        if missing:
            msg = f"the key column {missing[0]!r} is not among the rows"
            raise SchemaMismatch(msg)
        columns = [(name, rows.column(name)) for name in self._key_columns]
        if len(columns) == 1:
            return _octets(columns[0][0], _distinct(columns[0][1]))
        parts = [plain(_octets(name, _distinct(column))) for name, column in columns]
        return _distinct(pc.binary_join_element_wise(*parts, pa.scalar(b"\0")))

    def route(self, parcel: Parcel, key: pa.Array | None) -> Sequence[Outgoing]:
        """Return rows by partition and topic; preserves the order within a partition.

        Args:
            parcel: The rows, and the framework's columns.
            key: The result of `key_of`.

        Raises:
            SchemaMismatch: permanent; a partition is null, or does not exist.
        """
        if key is None and not parcel.special:  # most batches, many of them small
            return [Outgoing(parcel.rows, self._home % self._count(None))]
        return list(self._split(parcel, key))

    def _split(self, parcel: Parcel, key: pa.Array | None) -> Iterator[Outgoing]:
        for topic, part, keys in _by_topic(parcel, key):
            chosen = self._choose(part, keys, self._count(topic))
            if isinstance(chosen, int):
                yield _outgoing(part, chosen, topic)
                continue
            sizes, order = compiled.split(chosen) or _split(chosen)
            ordered = part.take(order) if len(sizes) > 1 else part
            begin = 0
            for partition, size in sizes:
                yield _outgoing(ordered.slice(begin, size), partition, topic)
                begin += size

    def partitions(self, parcel: Parcel, rows: int) -> pa.Array:
        """Return the partition of each row, in the sink's own topic.

        Args:
            parcel: The rows, and the framework's columns.
            rows: How many; the parcel may have no columns of its own.

        Raises:
            SchemaMismatch: permanent; as `key_of` and `route`.
        """
        chosen = self._choose(parcel, self.key_of(parcel), self._count(None))
        if isinstance(chosen, int):
            chosen = np.full(rows, chosen)
        return pa.array(chosen, pa.int32())

    def _choose(
        self, parcel: Parcel, key: pa.Array | None, count: int
    ) -> np.ndarray | int:
        given = parcel.special.get("_partition")
        if given is not None:
            return _given(given, count)
        home = self._home % count
        if key is None or count == 1:
            return home
        if pa.types.is_dictionary(key.type):
            # The last entry is that of rows without a key.
            partitions = np.append(_hashed(key.dictionary, count, home), home)
            indices = key.indices.cast(pa.int64()).fill_null(len(key.dictionary))
            chosen: np.ndarray = partitions[indices.to_numpy()]
            return chosen
        return _hashed(key, count, home)


def _split(partitions: np.ndarray) -> tuple[Sequence[tuple[int, int]], pa.Array]:
    """What `compiled.split` returns, without the core."""
    sizes = np.bincount(partitions)
    found = np.flatnonzero(sizes)
    pairs = zip(found.tolist(), sizes[found].tolist(), strict=True)
    return list(pairs), pa.array(stable_order(partitions))


def _hashed(keys: pa.Array, count: int, home: int) -> np.ndarray:
    """The partition of each key; ``home`` for nulls."""
    if compiled.hashes(keys.type):
        return compiled.partitions_of(keys, count, home)
    if not keys.null_count:
        return partition_of(keys, count)
    chosen = np.full(len(keys), home, np.int32)
    valid = keys.is_valid().to_numpy(zero_copy_only=False)
    chosen[valid] = partition_of(keys.drop_null(), count)
    return chosen


def _given(column: pa.Array, count: int) -> np.ndarray:
    if column.null_count:
        msg = f"column '_partition' has {column.null_count} nulls"
        raise SchemaMismatch(msg)
    numbers = column.to_numpy()
    if numbers.min() < 0 or numbers.max() >= count:
        msg = f"column '_partition' has values {numbers.min()} to {numbers.max()}"
        remedy = f"use partitions 0 to {count - 1}"
        raise SchemaMismatch(msg, remedy=remedy)
    return np.asarray(numbers)


def _distinct(column: pa.Array) -> pa.Array:
    """The column, as a dictionary where its values repeat: each is hashed once.

    The compiled core hashes every value in less time than a dictionary takes.
    """
    if compiled.hashes(column.type):
        return column
    if len(column) <= _SAMPLE or not any(fits(column.type) for fits in _ENCODED):
        return column
    found = pc.count_distinct(column.slice(0, _SAMPLE)).as_py()
    return column.dictionary_encode() if found <= _SAMPLE // 2 else column


def plain(column: pa.Array) -> pa.Array:
    """The key of each row, a result of `Router.key_of`, as sinks store it: binary."""
    if pa.types.is_dictionary(column.type):
        return plain(column.dictionary_decode())
    if pa.types.is_integer(column.type):
        return column.cast(pa.string()).cast(pa.binary())
    return column


def _octets(name: str, column: pa.Array) -> pa.Array:
    """Binary as it is, everything else as the octets of its text.

    A dictionary keeps its indices, and integers are kept for the compiled core.
    """
    if pa.types.is_dictionary(column.type):
        values = _octets(name, column.dictionary)
        return pa.DictionaryArray.from_arrays(column.indices, values)
    kept = pa.types.is_integer(column.type) and compiled.hashes(column.type)
    if kept or pa.types.is_binary(column.type):
        return column
    try:
        if not any(fits(column.type) for fits in _BINARY):
            column = column.cast(pa.string())
        return column.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        kind = type_text(column.type)
        msg = f"the key column {name!r} has type {kind}, which cannot be a key"
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


def _outgoing(parcel: Parcel, partition: int, topic: str | None) -> Outgoing:
    return Outgoing(
        rows=parcel.rows,
        partition=partition,
        key=parcel.special.get("_key"),
        headers=parcel.special.get("_headers"),
        timestamp=parcel.special.get("_timestamp"),
        topic=topic,
    )
