"""Which rows a commit of a Delta table changed, by the actions of its log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.spi import FormatRefused
from streamfactory.tables import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Action = Mapping[str, Any]

TYPE: Final = "_change_type"
"""Column of the change data feed: the kind of a row."""
_KINDS: Final = {
    "insert": INSERT,
    "update_preimage": UPDATE_BEFORE,
    "update_postimage": UPDATE_AFTER,
    "delete": DELETE,
}


class FileChange(NamedTuple):
    """Rows of a file that a commit changed."""

    action: Action
    """Names the file."""
    kind: str
    """Of the rows; `TYPE` where each row of the file has its own."""
    inside: Action | None = None
    """Deletion vector of the rows that are meant; None means all."""
    outside: Action | None = None
    """Deletion vector of rows that are left out."""


def file_changes(
    added: Sequence[Action], removed: Sequence[Action]
) -> Iterator[FileChange]:
    """Changes of a commit without files of the change data feed.

    A file that is both added and removed has another deletion vector: rows that only
    the new one marks were deleted, rows that only the old one marks were restored.
    """
    new = {one.get("path"): one for one in added}
    old = {one.get("path"): one for one in removed}
    for one in removed:
        before, path = one.get("deletionVector"), one.get("path")
        if path not in new:
            yield FileChange(one, DELETE, outside=before)
        elif after := new[path].get("deletionVector"):
            yield FileChange(one, DELETE, inside=after, outside=before)
    for one in added:
        after, path = one.get("deletionVector"), one.get("path")
        if path not in old:
            yield FileChange(one, INSERT, outside=after)
        elif before := old[path].get("deletionVector"):
            yield FileChange(one, INSERT, inside=before, outside=after)


def count_records(action: Action) -> int | None:
    """Rows of a file, deleted ones included; None where the log does not state them."""
    stats = action.get("stats")
    if not isinstance(stats, str):
        return None
    try:
        found = json.loads(stats)
    except (ValueError, RecursionError):
        return None
    records = found.get("numRecords") if isinstance(found, dict) else None
    return records if type(records) is int and records >= 0 else None


def kinds_of(rows: pa.RecordBatch, path: str) -> pa.StringArray:
    """Kinds of the rows of a file of the change data feed.

    Raises:
        FormatRefused: permanent; a kind is not known.
    """
    column = rows.column(TYPE).cast(pa.string())
    codes = pc.index_in(column, pa.array(list(_KINDS), pa.string()))
    if codes.null_count:
        what = f"{path!r} has changes of an unknown kind"
        raise FormatRefused(what)
    return pa.array(list(_KINDS.values()), pa.string()).take(codes)
