"""Applies the changes of an epoch to a table: files with changed rows are replaced.

Files are immutable. One that has rows of a changed key is written again without these
rows, and the commit removes it (copy-on-write). Files whose statistics exclude the
keys are not read; of others the key columns are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamfactory.spi import MisuseError
from streamfactory.spi.computing import pc
from streamfactory.tables.copying import COPIED, copied
from streamfactory.tables.kept import Kept
from streamfactory.tables.matching import bare, by_id
from streamfactory.tables.parquet import open_parquet

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.tables.datafiles import DataFile
    from streamfactory.tables.places import TableFiles
    from streamfactory.tables.staging import Staged
    from streamfactory.tables.table import Chunk, Piece, Table
    from streamfactory.tables.writable import LiveFile, Seen, WritableTable

_SCANNED: Final = 1 << 20
"""Rows whose keys are compared at a time."""
_FOOTERS: Final = 4096
"""Files whose bounds are kept."""
_ROW: Final = "_row"
_types: Final = pa.types
_BOUNDED: Final = (_types.is_integer, _types.is_string, _types.is_date)
"""Types whose values, and those of statistics, Python compares as Parquet does."""

Bounds = tuple[Any, Any] | None


class Replaced(NamedTuple):
    """What a commit does to the files of a table, beside those that were staged."""

    added: Sequence[DataFile] = ()
    removed: Sequence[LiveFile] = ()


@final
class Merge:
    """The keys that an epoch changes. One thread.

    Args:
        storage: Has the files of keys.
        staged: Of all attempts.
        names: Of the key columns.
        epoch: For messages.

    Raises:
        MisuseError: misuse; two tasks have changed one key.
    """

    def __init__(
        self,
        storage: Storage,
        staged: Sequence[Staged],
        names: Sequence[str],
        epoch: int,
    ) -> None:
        self._names = list(names)
        self._epoch = epoch
        found = [_read(storage, one.keys) for one in staged if one.keys is not None]
        found = [one for one in found if one.num_rows]
        self._keys = pa.concat_tables(found) if found else None
        if len(found) > 1:
            self._check_once()
        self._bounds = {name: self._bounds_of(name) for name in self._names}
        self._footers: Kept[dict[str, Bounds]] = Kept(_FOOTERS)

    def replace(self, table: WritableTable, seen: Seen) -> Replaced:
        """Write the files that have rows of these keys again, without them.

        Args:
            table: The table.
            seen: As of the commit behind which the next one is made.
        """
        if self._keys is None:
            return Replaced()
        live = table.live(seen)
        key = pa.schema([seen.schema.field(name) for name in self._names])
        keys = self._keys.cast(bare(key))
        removed: list[LiveFile] = []

        def rows_of(file: LiveFile) -> Iterator[pa.RecordBatch]:
            if self._excluded(key, file.piece, live.places):
                return
            numbers = _matching(live.table, file.piece, keys)
            if not numbers.size:
                return
            removed.append(file)
            for chunk in live.table.read(file.piece, 0, None, COPIED):
                kept = ~np.isin(numbers_of(chunk), numbers, assume_unique=True)
                if kept.any():
                    yield chunk.rows.filter(pa.array(kept))

        return Replaced(copied(table.storage, seen, live.files, rows_of), removed)

    def _excluded(self, key: pa.Schema, piece: Piece, files: TableFiles) -> bool:
        """Whether the statistics of a file exclude each of the keys."""
        kept = self._footers.get(piece.path)
        if kept is None:
            with open_parquet(files, piece.path) as file:
                names = {one.name: _name_in(file.schema, one) for one in key}
                kept = {
                    name: None if found is None else file.bounds(found)
                    for name, found in names.items()
                }
            self._footers.add(piece.path, kept)
        for name, mine in self._bounds.items():
            theirs = kept[name]
            if mine is None or theirs is None or type(mine[0]) is not type(theirs[0]):
                continue
            if mine[1] < theirs[0] or theirs[1] < mine[0]:
                return True
        return False

    def _bounds_of(self, name: str) -> Bounds:
        if self._keys is None:
            return None
        column = self._keys.column(name)
        if not any(fits(column.type) for fits in _BOUNDED):
            return None
        found = pc.min_max(column).as_py()
        return found["min"], found["max"]

    def _check_once(self) -> None:
        """Refuse keys of two tasks: the order of their changes is unknown."""
        assert self._keys is not None
        grouped = self._keys.group_by(self._names, use_threads=False)
        count = grouped.aggregate([([], "count_all")])
        twice = count.filter(pc.greater(count.column("count_all"), 1))
        if twice.num_rows:
            key = twice.select(self._names).slice(0, 1).to_pylist()[0]
            what = f"epoch {self._epoch}: {twice.num_rows} keys were changed by more "
            what += f"than one task, such as {key}: the order of changes is unknown"
            remedy = "repartition the rows by producer.key.columns"
            raise MisuseError(what, remedy=remedy)


def _matching(table: Table, piece: Piece, keys: pa.Table) -> NDArray[np.int64]:
    """The numbers of the rows of a file that have one of the keys."""
    found, names = [np.empty(0, np.int64)], keys.column_names
    for chunk in table.read(piece, 0, names, _SCANNED):
        rows = pa.Table.from_batches([chunk.rows.select(names)]).cast(keys.schema)
        rows = rows.append_column(_ROW, [numbers_of(chunk)])
        same = rows.join(keys, names, join_type="left semi", use_threads=False)
        found.append(same.column(_ROW).to_numpy())
    return np.concatenate(found)


def numbers_of(chunk: Chunk) -> NDArray[np.int64]:
    """The number of each row within its piece."""
    if chunk.numbers is not None:
        found: NDArray[np.int64] = chunk.numbers.to_numpy(zero_copy_only=False)
        return found
    return np.arange(chunk.first, chunk.first + chunk.rows.num_rows)


def _read(storage: Storage, path: str) -> pa.Table:
    with storage.open(path).file as file:
        return pq.read_table(file, use_threads=False)


def _name_in(file: pa.Schema, column: pa.Field) -> str | None:
    """The name that a column of the table has in a file; None if it is not there."""
    number = by_id(column)
    for field in file:
        same = field.name == column.name if number is None else by_id(field) == number
        if same:
            found: str = field.name
            return found
    return None
