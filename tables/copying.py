"""Copies rows of a table to new data files, which replace others."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

from streamfactory.conversion.conform import Conformer
from streamfactory.tables.datafiles import DataFiles
from streamfactory.tables.matching import bare
from streamfactory.tables.writable import by_partition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.tables.datafiles import DataFile
    from streamfactory.tables.writable import LiveFile, Seen

COPIED: Final = 1 << 16
"""Rows that are copied at a time."""


def copied(
    storage: Storage,
    seen: Seen,
    files: Sequence[LiveFile],
    rows_of: Callable[[LiveFile], Iterable[pa.RecordBatch]],
) -> Sequence[DataFile]:
    """Write rows of files again; after an error no new file is left.

    A partition at a time: its rows go to few files, and few are open at once.

    Args:
        storage: Of the table.
        seen: The table as of the commit that has the files.
        files: Have the rows.
        rows_of: Returns the rows of a file that are kept.
    """
    prefix = f"part-00000-{uuid.uuid4().hex}"
    made = DataFiles(storage, prefix, seen.schema, seen.partitions, seen.form)
    fitting = Conformer(bare(seen.schema))
    try:
        for found in by_partition(files).values():
            for file in found:
                for rows in rows_of(file):
                    made.add(fitting.conform(rows))
            made.finish()
    except BaseException:
        made.remove()
        raise
    return made.finished
