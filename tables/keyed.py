"""Rows that are written by key: which change of an attempt is the last of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamfactory.spi import SchemaMismatch, Unsupported
from streamfactory.spi.computing import pc
from streamfactory.spi.ddl import type_text
from streamfactory.tables.columns import CHANGE, NAMES
from streamfactory.tables.table import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from streamfactory.arrowlog.disk.storage import Storage

_KINDS: Final = (INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE)
_NUMBER: Final = "_number"
"""Column of the numbers of rows, beside key columns."""
_types: Final = pa.types
_KEYS: Final = (
    _types.is_integer,
    _types.is_string,
    _types.is_binary,
    _types.is_fixed_size_binary,
    _types.is_boolean,
    _types.is_date,
    _types.is_timestamp,
    _types.is_decimal,
)
"""Types whose values are equal or not, without a doubt."""


def check_key(schema: pa.Schema, names: Sequence[str]) -> None:
    """Refuse columns that cannot be the key of a table.

    Raises:
        SchemaMismatch: permanent; one is missing, of another type, or of a name that is
            taken; or the table has a column of a name that changes have.
    """
    taken = [name for name in NAMES if name in schema.names]
    if taken:
        what = f"the table has a column {taken[0]!r}, which is not stored of rows that "
        what += "are written by key"
        remedy = "rename it, or append rows, without producer.key.columns"
        raise SchemaMismatch(what, remedy=remedy)
    for name in names:
        if name not in schema.names:
            what = f"the table has no column {name!r}, which producer.key.columns names"
            raise SchemaMismatch(what)
        kind = schema.field(name).type
        if name == _NUMBER or not any(fits(kind) for fits in _KEYS):
            what = f"column {name!r} is {type_text(kind)}, which cannot be a key"
            remedy = (
                "name columns of integers, text, bytes, dates, timestamps or decimals"
            )
            raise SchemaMismatch(what, remedy=remedy)


@final
class KeyedChanges:
    """The changes of one attempt, by key. One thread.

    Holds the key of each changed row, 8 bytes of each row, and no other columns.

    Args:
        names: Of the key columns.
        most: Bytes of keys that are held.
    """

    def __init__(self, names: Sequence[str], most: int) -> None:
        self._names = list(names)
        self._most = most
        self._count = 0
        self._keys: list[pa.Table] = []
        self._bytes = 0

    def take(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """The rows that are to be stored, each with its number in the attempt.

        Left out are deletes, images before updates, and rows behind which their key
        comes again.

        Args:
            rows: With the kind of change in ``_change``; without it, or where it is
                null, a row is inserted or updated.

        Raises:
            SchemaMismatch: permanent; a kind is unknown, or a key is null.
            Unsupported: misuse; there are too many keys.
        """
        kinds = _kinds(rows)
        if kinds is not None:
            kept = pc.not_equal(kinds, UPDATE_BEFORE)
            rows, kinds = rows.filter(kept), kinds.filter(kept)
        numbers = np.arange(self._count, self._count + rows.num_rows)
        self._count += rows.num_rows
        self._hold(rows, numbers)
        last = self._keys[-1].column(_NUMBER).to_numpy() - (self._count - len(rows))
        stored = np.zeros(rows.num_rows, np.bool_)
        stored[last] = True
        if kinds is not None:
            deleted = pc.equal(kinds, DELETE).to_numpy(zero_copy_only=False)
            stored &= ~deleted
        own = [name for name in rows.schema.names if name not in NAMES]
        return rows.select(own).filter(pa.array(stored)), numbers[stored]

    def last(self) -> NDArray[np.int64]:
        """The numbers of the last change of each key, rising."""
        self._reduce()
        found: NDArray[np.int64] = np.sort(
            np.concatenate([one.column(_NUMBER).to_numpy() for one in self._keys])
            if self._keys
            else np.empty(0, np.int64)
        )
        return found

    def save(self, storage: Storage, path: str) -> None:
        """Write each key that was changed, once, to a file."""
        self._reduce()
        blob = storage.create(path)
        try:
            found = pa.concat_tables(self._keys) if self._keys else pa.table({})
            kept = [one for one in found.column_names if one != _NUMBER]
            pq.write_table(found.select(kept), blob.sink)
            blob.finish()
        except BaseException:
            blob.abandon()
            raise

    def _hold(self, rows: pa.RecordBatch, numbers: NDArray[np.int64]) -> None:
        keys = pa.Table.from_batches([rows.select(self._names)])
        for name in self._names:
            if missing := keys.column(name).null_count:
                what = f"{missing} rows have a null in column {name!r}, which is part "
                what += "of the key"
                raise SchemaMismatch(what, remedy="write rows with a key, or drop them")
        self._keys.append(self._distinct(keys.append_column(_NUMBER, [numbers])))
        self._bytes += self._keys[-1].nbytes
        if self._bytes > self._most:
            newest = self._keys[-1]
            self._keys.pop()
            self._reduce()
            self._keys.append(newest)
            self._bytes = sum(one.nbytes for one in self._keys)
        if self._bytes > self._most:
            what = f"the keys of {self._count} rows have more than {self._most} bytes"
            remedy = "end epochs sooner (realtime.segment.flush.threshold.rows), or "
            raise Unsupported(what, remedy=remedy + "raise key.max.bytes")

    def _reduce(self) -> None:
        """Hold the last change of each key only."""
        if len(self._keys) > 1:
            self._keys = [self._distinct(pa.concat_tables(self._keys))]

    def _distinct(self, keys: pa.Table) -> pa.Table:
        grouped = keys.group_by(self._names, use_threads=False)
        found = grouped.aggregate([(_NUMBER, "max")])
        return found.rename_columns([*self._names, _NUMBER])


def _kinds(rows: pa.RecordBatch) -> pa.Array | None:
    """The kind of each row; None where rows have none."""
    if CHANGE not in rows.schema.names:
        return None
    kinds = rows.column(CHANGE)
    kinds = pc.fill_null(kinds.cast(pa.string()), INSERT)
    known = pc.is_in(kinds, value_set=pa.array(_KINDS))
    if not pc.all(known).as_py():
        other = kinds.filter(pc.invert(known))[0].as_py()
        what = f"column {CHANGE!r} has {other!r}, which is no kind of change"
        raise SchemaMismatch(what, remedy=f"kinds are {', '.join(_KINDS)}")
    return kinds
