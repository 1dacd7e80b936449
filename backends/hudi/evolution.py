"""Column ids of Hudi's schema evolution: they show what was renamed, or added again.

A commit of a writer with ``hoodie.schema.on.read.enable`` states them beside its
columns. Files are read by names here, and by hudi-rs: what has another id there is
refused.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from streamfactory.backends.hudi.instants import FOLDER
from streamfactory.backends.hudi.slices import Slice, file_time
from streamfactory.spi import FormatRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from streamfactory.backends.hudi.instants import Instant
    from streamfactory.backends.hudi.rows import SliceRows
    from streamfactory.backends.hudi.slices import View
    from streamfactory.backends.hudi.stats import Effects
    from streamfactory.backends.hudi.timeline import Timeline
    from streamfactory.tables import Piece, TableFiles

_HISTORY: Final = f"{FOLDER}/.schema"
"""Folder of the schemas of earlier commits."""
_REWRITE: Final = (
    "select the other columns, or rewrite the table: insert overwrite, or clustering"
)
_SUFFIX: Final = ".schemacommit"
_DEEPEST: Final = 64

_T = TypeVar("_T")


@lru_cache(64)
def column_ids(text: str) -> Mapping[str, int]:
    """The ids of the columns of a schema, and of fields within them, by dotted path.

    Raises:
        FormatRefused: permanent; the text is no schema with ids.
    """
    return _parsed(lambda: dict(_fields(json.loads(text), "", 0)))


def ids_before(content: bytes, time: str) -> Mapping[str, int] | None:
    """The ids of the schema that a commit without one had; None if it is unknown.

    Args:
        content: Of a file of earlier schemas.
        time: Of the commit.

    Raises:
        FormatRefused: permanent; the content is no list of schemas.
    """

    def read() -> Mapping[str, int] | None:
        known = {one["version_id"]: one for one in json.loads(content)["schemas"]}
        last = max((at for at in known if at <= int(time)), default=None)
        return None if last is None else dict(_fields(known[last], "", 0))

    return _parsed(read)


def moved(file: Mapping[str, int], table: Mapping[str, int]) -> str | None:
    """The first column of a table that a file has by another name, or had by its own.

    None if names match all columns.
    """
    paths = {number: path for path, number in file.items()}
    for path, number in table.items():
        if file.get(path, number) != number or paths.get(number, path) != path:
            return path
    return None


def _parsed(read: Callable[[], _T]) -> _T:
    try:
        return read()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        what = f"the column ids of the table cannot be read: {error}"
        raise FormatRefused(what[:300]) from error


def _fields(record: Any, parent: str, depth: int) -> Iterator[tuple[str, int]]:
    for field in record["fields"]:
        yield from _numbered(field, f"{parent}{field['name']}", "id", "type", depth)


def _numbered(
    holder: Any, path: str, number: str, kind: str, depth: int
) -> Iterator[tuple[str, int]]:
    if type(holder[number]) is not int or depth > _DEEPEST:
        what = f"{path[:100]} has no id, or is too deep"
        raise ValueError(what)
    yield path, holder[number]
    inner = holder[kind]
    if not isinstance(inner, dict):
        return
    if inner["type"] == "record":
        yield from _fields(inner, f"{path}.", depth + 1)
    for name in {"array": ["element"], "map": ["key", "value"]}.get(inner["type"], []):
        yield from _numbered(inner, f"{path}.{name}", f"{name}_id", name, depth + 1)


@final
class Evolution:
    """Refuses files whose columns names do not match. Thread-safe.

    Args:
        files: Of the table.
        slices: Finds the files of a file group.
        timeline: Of the table.
        effects: Returns what an instant did.
        most: Bytes that a file of earlier schemas may have.
    """

    def __init__(
        self,
        files: TableFiles,
        slices: SliceRows,
        timeline: Timeline,
        effects: Callable[[View, Instant], Effects],
        most: int,
    ) -> None:
        self._files, self._slices, self._timeline = files, slices, timeline
        self._effects, self._most = effects, most

    def check(
        self,
        found: View,
        index: int,
        piece: Piece,
        table: str,
        names: Sequence[str],
    ) -> None:
        """Refuse a piece of whose columns one was renamed, or added again.

        Args:
            found: The timeline.
            index: Of the commit.
            piece: Its rows.
            table: The columns as of when the stream was opened, with their ids.
            names: Columns wanted.
        """
        ids = column_ids(table)
        wanted = {p: i for p, i in ids.items() if p.partition(".")[0] in names}
        for slices in self._read_slices(found, index, piece):
            for instant in self._instants_of(found, index, slices):
                written = self._ids_of(found, instant)
                column = None if written is None else moved(written, wanted)
                if written is None or column is not None:
                    what = f"column {column!r} of" if column else "the columns of"
                    what += f" {piece.path!r} cannot be matched by name: commit "
                    what += f"{instant} has other columns, by their ids in Hudi"
                    raise FormatRefused(what, remedy=_REWRITE)

    def _read_slices(self, found: View, index: int, piece: Piece) -> Iterator[Slice]:
        """The files of which columns are read."""
        detail: Any = piece.detail
        if "written" not in detail:
            yield Slice(detail["base"], detail["logs"])
            return
        one = detail["written"]
        if one.base and not found.merge_on_read:
            yield Slice(one.path, ())
            earlier = [index - 1] if one.deletes else []
        else:
            earlier = [index, index - 1]
        for at in earlier:
            held = self._slices.find(found.moment(at), one.partition, one.id)
            if held is not None:
                yield held

    def _instants_of(self, found: View, index: int, files: Slice) -> list[str]:
        """The instants that wrote the files of a slice."""
        times = [file_time(path) for path in (files.base, *files.logs) if path]
        if files.logs and found.layout == 1:  # log files have the time of the base file
            first = min(times)
            commits = found.commits[: index + 1]
            times += [one.time for one in commits if one.time >= first]
        return times

    def _ids_of(self, found: View, time: str) -> Mapping[str, int] | None:
        """The column ids of the files that an instant wrote; None if unknown."""
        known = [one for one in found.all if one.time == time]
        known = known or [
            one for one in self._timeline.archived(found.properties) if one.time == time
        ]
        text = self._effects(found, known[0]).ids if known else None
        if text is not None:
            return column_ids(text)
        names = self._files.entries(_HISTORY)[0]
        last = max((name for name in names if name.endswith(_SUFFIX)), default=None)
        if last is None:
            return None
        return ids_before(self._files.read(f"{_HISTORY}/{last}", self._most), time)
