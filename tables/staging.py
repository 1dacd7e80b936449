"""Data files of one attempt, beside the table: no commit names them yet."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.arrowlog.decoding import (
    InvalidValue,
    list_of,
    mapping_of,
    members_of,
    optional,
    payload_of,
    text,
    whole,
)
from streamfactory.conversion.conform import Conformer
from streamfactory.spi import StreamWriter
from streamfactory.tables.datafiles import DataFile, DataFiles
from streamfactory.tables.matching import bare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.spi import CommitMessage, Outgoing, WriteContext
    from streamfactory.tables.keyed import KeyedChanges
    from streamfactory.tables.writable import Seen

_NAME: Final = re.compile(
    r"(?:[\w.~%-]{1,255}=[\w.~%-]{1,255}/)*part-\d{5,10}-[0-9a-f]{32}-\d{1,10}\.parquet",
    re.ASCII,
)
"""Of a data file, with folders of its partition: no other one is ever committed, or
removed."""


@dataclass(frozen=True, slots=True)
class Staged:
    """What an attempt has staged: the payload of its commit message."""

    attempt: str
    files: Sequence[DataFile]
    table: str
    """Identity of the table."""
    columns: str
    """Columns of the table as of the attempt, as the format writes them."""
    keys: str | None = None
    """File of the keys that the attempt changes; None if its rows are appended."""

    @property
    def paths(self) -> list[str]:
        """All files of the attempt."""
        keys = [] if self.keys is None else [self.keys]
        return [*(one.path for one in self.files), *keys]

    def payload(self) -> dict[str, Any]:
        """As plain values."""
        files = [
            {
                "path": one.path,
                "size": one.size,
                "rows": one.rows,
                "values": dict(one.values),
            }
            for one in self.files
        ]
        return {
            "attempt": self.attempt,
            "files": files,
            "table": self.table,
            "columns": self.columns,
            "keys": self.keys,
        }

    @classmethod
    def of(cls, message: CommitMessage) -> Staged:
        """What a commit message has.

        Raises:
            CorruptData: data_loss; the payload is not that of a writer of a table.
        """
        found = payload_of(message, _PAYLOAD)
        files = tuple(DataFile(**one) for one in found.pop("files"))
        return cls(files=files, **found)


def _name(value: Any) -> str:
    """The name of a data file."""
    found = text(value)
    if _NAME.fullmatch(found) is None:
        msg = f"{found[:80]!r} is no name of a data file"
        raise InvalidValue(msg)
    return found


_PAYLOAD: Final = members_of(
    {
        "attempt": text,
        "files": list_of(
            members_of(
                {
                    "path": _name,
                    "size": whole(),
                    "rows": whole(),
                    "values": mapping_of(text, optional(text)),
                }
            )
        ),
        "table": text,
        "columns": text,
        "keys": optional(_name),
    }
)


@final
class TableWriter(StreamWriter):
    """Writes the rows of one attempt to new Parquet files.

    Args:
        storage: Of the table's folder.
        context: Of the attempt.
        seen: The table.
        changes: Of rows that are written by key; None: rows are appended.
    """

    def __init__(
        self,
        storage: Storage,
        context: WriteContext,
        seen: Seen,
        changes: KeyedChanges | None = None,
    ) -> None:
        # The table may have been created by another process, with other columns; and
        # a format may have fewer types.
        self._fitting = Conformer(bare(seen.schema))
        self._storage = storage
        self._attempt = context.attempt
        prefix = f"part-{context.task:05}-{context.attempt}"
        self._files = DataFiles(
            storage, prefix, seen.schema, seen.partitions, seen.form
        )
        self._changes = changes
        self._keys: str | None = None
        self._table, self._columns = seen.identity, seen.columns

    def write(self, outgoing: Outgoing) -> None:
        if self._changes is None:
            self._files.add(self._fitting.conform(outgoing.rows))
            return
        rows, numbers = self._changes.take(outgoing.rows)
        if rows.num_rows:
            self._files.add(self._fitting.conform(rows), numbers)

    def commit(self) -> Any:
        self._files.finish()
        if self._changes is not None:
            self._files.keep(self._changes.last())
            self._keys = self._files.new_path()
            self._changes.save(self._storage, self._keys)
        staged = Staged(
            self._attempt, self._files.finished, self._table, self._columns, self._keys
        )
        return staged.payload()

    def abort(self) -> None:
        self._files.remove()
        if self._keys is not None:
            self._storage.remove([self._keys])

    def close(self) -> None:
        self._files.abandon()
