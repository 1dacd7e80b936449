"""Upkeep of tables: creates them, counts their files, and merges small files."""

from __future__ import annotations

import threading
from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from streamfactory.spi import MisuseError, StreamTimeout, TopicAdmin, TopicNotFound
from streamfactory.spi.topics import TO_COMPACT
from streamfactory.tables.committing import tries
from streamfactory.tables.copying import COPIED, copied
from streamfactory.tables.writable import Change, Kind, by_partition
from streamfactory.tables.writing import columns_of_new

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.spi import StreamConfig
    from streamfactory.tables.datafiles import DataFile
    from streamfactory.tables.writable import LiveFile, Seen, WritableTable

_SMALL: Final = 64 << 20
"""Bytes of a file below which it is merged with others."""
_TURNS: Final = 5
"""How often files are written again whose rows other commits change meanwhile."""


class TableAdmin(TopicAdmin):
    """Administers one table. See `TopicAdmin`. A format opens it."""

    ONE_PARTITION: ClassVar = True

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._lock = threading.Lock()
        self._opened: WritableTable | None = None

    @abstractmethod
    def open_table(self) -> WritableTable:
        """Open what the configuration names; there need not be a table yet."""

    @property
    def opened(self) -> WritableTable:
        """The table, opened by the first use."""
        with self._lock:
            self._opened = self._opened or self.open_table()
            return self._opened

    def create(
        self, topic: str, schema: pa.Schema | None, partitions: int | None
    ) -> None:
        try:
            self.opened.look()
        except TopicNotFound:
            pass
        else:
            what = "the table exists"
            raise MisuseError(what)
        if schema is None or partitions not in (None, 1):
            what = "a table has columns and one partition of its stream"
            remedy = "set the option schema, and no number of partitions"
            raise MisuseError(what, remedy=remedy)
        self.opened.create(columns_of_new(schema, self.config))

    def compact(self, topic: str) -> None:
        for _ in range(_TURNS):
            if self._compact():
                return
        what = f"the compaction: other commits changed rows of its files {_TURNS} times"
        raise StreamTimeout(
            what, remedy="compact the table again, when less is written"
        )

    def _compact(self) -> bool:
        """Whether no other commit has changed the files or the columns meanwhile."""
        seen = self.opened.look()
        live = self.opened.live(seen, keeps_rows=True)
        removed = to_compact(live.files, _small(seen))
        if not removed:
            return True

        def rows_of(file: LiveFile) -> Iterator[pa.RecordBatch]:
            for chunk in live.table.read(file.piece, 0, None, COPIED):
                yield chunk.rows

        added = copied(self.opened.storage, seen, removed, rows_of)
        return self._replaced(seen, removed, added)

    def _replaced(
        self, seen: Seen, removed: Sequence[LiveFile], added: Sequence[DataFile]
    ) -> bool:
        """Commit the copies; False, and they are removed, if they are outdated."""
        keys, form = {one.key for one in removed}, _form(seen)
        refused = False
        try:
            for _ in tries("the compaction"):
                if refused:
                    seen = self.opened.look()
                    now = self.opened.live(seen, keeps_rows=True)
                    removed = [one for one in now.files if one.key in keys]
                    if len(removed) < len(keys) or _form(seen) != form:
                        break
                # After an error of the commit it is unknown whether the table has them.
                refused = False
                if self.opened.commit(seen, Change(added, removed, Kind.COMPACT)):
                    return True
                refused = True
        finally:
            if refused:
                self.opened.storage.remove([one.path for one in added])
        return False

    def facts(self, topic: str) -> Mapping[str, str | int]:
        seen = self.opened.look()
        files, small = self.opened.live(seen, keeps_rows=True).files, _small(seen)
        sizes = [one.piece.size or 0 for one in files]
        return {
            "files": len(files),
            "bytes": sum(sizes),
            "small files": sum(size < small for size in sizes),
            TO_COMPACT: len(to_compact(files, small)),
        }

    def close(self) -> None:
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()


def to_compact(files: Sequence[LiveFile], most: int) -> list[LiveFile]:
    """The files that a compaction replaces.

    Those of a partition that has several small ones, and those with rows that are
    marked as deleted.

    Args:
        files: Of the table.
        most: Bytes from which on a file is not small.
    """
    small = by_partition(one for one in files if (one.piece.size or 0) < most)
    merged = {id(one) for found in small.values() if len(found) > 1 for one in found}
    return [one for one in files if one.is_marked or id(one) in merged]


def _small(seen: Seen) -> int:
    """Bytes from which on a file is not small: one that ended by its size is none."""
    return min(_SMALL, seen.form.largest or _SMALL)


def _form(seen: Seen) -> Hashable:
    """What the files of a table depend on."""
    return seen.identity, seen.columns, tuple(one.name for one in seen.partitions)
