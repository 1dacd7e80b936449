"""Reads the rows of file slices, and what a commit changed in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.backends.hudi.merging import KEY, TIME
from streamfactory.backends.hudi.slices import Slice, file_groups
from streamfactory.tables import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    Kept,
    PieceGone,
    count_rows,
    stream_rows,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.backends.hudi.merging import Merger
    from streamfactory.backends.hudi.slices import Moment, View
    from streamfactory.backends.hudi.stats import Written
    from streamfactory.tables import TableFiles

_COUNTS: Final = 4096


@final
class SliceRows:
    """Reads file slices as of commits. Thread-safe.

    Of a copy-on-write table one batch is held at a time, and the keys of one file group
    where inserts must be distinguished from updates; of a merge-on-read table the rows
    of one file group, which are merged and sorted by key.

    Args:
        files: Of the table.
        merger: Of slices with log files.
    """

    def __init__(self, files: TableFiles, merger: Merger) -> None:
        self._files = files
        self._merger = merger
        self._counts: Kept[int] = Kept(_COUNTS)

    def find(self, moment: Moment, folder: str, group: str) -> Slice | None:
        """The files of a group as of a commit, of those that exist now."""
        known = file_groups(self._files.entries(folder)[0]).get(group)
        return None if known is None else moment.slice(folder, known)

    def count(self, found: View, index: int, files: Slice) -> int:
        """Rows of a slice as of a commit; kept, because the files never change.

        Raises:
            PieceGone: A file does not exist.
        """
        key = (files, self._as_of(found, index) if files.logs else None)
        known = self._counts.get(key)
        if known is not None:
            return known
        if files.logs:
            known = self._merge(found, index, files).num_rows
        else:
            assert files.base is not None
            known = count_rows(self._files, files.base)
        return self._counts.add(key, known)

    def changed(
        self, found: View, index: int, one: Written, names: list[str], rows: int
    ) -> Iterator[tuple[int, pa.RecordBatch, pa.StringArray]]:
        """The rows of a file group that a commit inserted, updated and deleted."""
        written_by = found.commits[index].time
        after, before = self._around(found, index, one)
        kept = None
        if before is not None:
            kept = self._keys(found, index - 1, before, rows)
        wanted = [*names, *(name for name in (KEY, TIME) if name not in names)]
        number, left = 0, []
        for _, batch in self.rows(found, index, after, wanted, 0, rows):
            keys = batch.column(KEY)
            if one.deletes:
                left.append(keys)
            mask = pc.equal(batch.column(TIME), written_by)
            changed = batch.filter(mask)
            if changed.num_rows:
                began = one.new or not one.base
                kinds = _kinds(changed.column(KEY), kept, new=began)
                yield number, changed, kinds
                number += changed.num_rows
        if one.deletes and before is not None:
            held = pa.chunked_array(left, pa.string())
            for _, batch in self.rows(found, index - 1, before, wanted, 0, rows):
                gone = batch.filter(
                    pc.invert(pc.is_in(batch.column(KEY), value_set=held))
                )
                if gone.num_rows:
                    kinds = pa.repeat(pa.scalar(DELETE), gone.num_rows)
                    yield number, gone, kinds
                    number += gone.num_rows

    def _around(
        self, found: View, index: int, one: Written
    ) -> tuple[Slice, Slice | None]:
        """The files of a group after a commit, and before it where that is needed."""
        if one.base and not found.merge_on_read:
            after: Slice | None = Slice(one.path, ())
        else:
            after = self.find(found.moment(index), one.partition, one.id)
        if after is None or (one.base and after.base is None):
            what = f"{one.path!r} does not exist"
            raise PieceGone(what)
        if one.new or (one.base and not one.deletes and not one.inserts):
            return after, None
        before = self.find(found.moment(index - 1), one.partition, one.id)
        if before is None and (one.base or after != Slice(None, (one.path,))):
            what = f"the file before {one.path!r} does not exist"
            raise PieceGone(what)
        return after, before

    def _keys(
        self, found: View, index: int, files: Slice, rows: int
    ) -> pa.ChunkedArray:
        batches = self.rows(found, index, files, [KEY], 0, rows)
        return pa.chunked_array(
            [batch.column(KEY) for _, batch in batches], pa.string()
        )

    def rows(
        self,
        found: View,
        index: int,
        files: Slice,
        names: list[str],
        skip: int,
        rows: int,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows of a slice as of a commit, each batch with its first number.

        Those of a merge-on-read table by record key: so they have the same numbers
        before and after a compaction.
        """
        if not found.merge_on_read:
            assert files.base is not None
            for batch, first in stream_rows(
                self._files, files.base, columns=names, skip=skip, most=rows
            ):
                yield first, batch
            return
        if files.logs:
            table = self._merge(found, index, files)
        else:
            assert files.base is not None
            wanted = [*names, *([] if KEY in names else [KEY])]
            batches = [
                batch.rows
                for batch in stream_rows(
                    self._files, files.base, columns=wanted, skip=0, most=rows
                )
            ]
            if not batches:
                return
            table = pa.Table.from_batches(batches).sort_by(KEY)
        first = 0
        for batch in table.to_batches(max_chunksize=rows):
            yield first, batch
            first += batch.num_rows

    def _merge(self, found: View, index: int, files: Slice) -> pa.Table:
        return self._merger.read(self._files, files, self._as_of(found, index))

    def _as_of(self, found: View, index: int) -> str | None:
        """The last instant whose blocks count, where files do not name theirs."""
        return found.commits[index].time if found.layout == 1 else None


def _kinds(
    keys: pa.StringArray, before: pa.ChunkedArray | None, *, new: bool
) -> pa.StringArray:
    """The kind of each changed row, by whether its key was there before."""
    if before is None:
        return pa.repeat(pa.scalar(INSERT if new else UPDATE_AFTER), len(keys))
    known = pc.is_in(keys, value_set=before)
    return pc.if_else(known, UPDATE_AFTER, INSERT)
