"""A folder of Arrow files as one stream, in the order in which they became complete.

A file is listed once it is complete: a random-access file has its footer, a stream its
end marker. So listed files never grow and are never reordered. Files that are found
complete at the same time are ordered by name or by time. Incomplete files do not block
others; they are listed when they are complete. Hidden and temporary names are ignored,
as in Spark, and so are subfolders.
"""

from __future__ import annotations

import fnmatch
import hashlib
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from streamfactory.backends.file.foreign.layout import Layout, LostFile, open_file
from streamfactory.backends.file.foreign.manifest import Entry
from streamfactory.backends.file.foreign.medium import Replaced, translate_errors
from streamfactory.backends.file.foreign.types import difference
from streamfactory.backends.file.foreign_options import PARQUET
from streamfactory.spi import (
    CorruptData,
    FormatRefused,
    SchemaMismatch,
    StreamError,
    TopicNotFound,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.backends.file.foreign.indexed import IndexedFile
    from streamfactory.backends.file.foreign.layout import Settings
    from streamfactory.backends.file.foreign.manifest import Manifest
    from streamfactory.backends.file.foreign.medium import Stamp
    from streamfactory.backends.file.foreign.places import Found, Place

log = logging.getLogger("streamfactory")

_CHUNK: Final = 256
"""Files per manifest part."""
_SPARE: Final = 20.0
"""Minimum pause between two scans of the folder, as a multiple of a scan's duration."""
_WATCHED: Final = 64
"""Incomplete files whose index is kept in memory."""
_CHANGED: Final = "has changed since it was listed"
_OLD: Final = 60.0
"""Seconds after which a warning about an incomplete file is logged."""


class _Listed(NamedTuple):
    """A complete file that is not listed yet."""

    entry: Entry
    schema: pa.Schema


class Folder(Layout):
    """The files of a folder.

    Args:
        settings: The options.
        place: Where the files are; closed with the layout.
        manifest: Their order; closed with the layout.
    """

    def __init__(self, settings: Settings, place: Place, manifest: Manifest) -> None:
        self._settings = settings
        self._place = place
        self._manifest = manifest
        self._file: tuple[int, IndexedFile, Stamp] | None = None
        self._watched: dict[str, tuple[Stamp, IndexedFile | None]] = {}
        self._warned: set[str] = set()
        self._not_before = 0.0

    def refresh(self) -> None:
        self._manifest.refresh()
        self._update()

    def discover(self, *, eager: bool = False, end: int | None = None) -> None:
        began = time.monotonic()
        if not eager and began < self._not_before:
            return
        self._search()
        ended = time.monotonic()
        self._not_before = ended + _SPARE * (ended - began)

    def find(self, offset: int) -> tuple[IndexedFile, int]:
        index = self._manifest.find(offset)
        start = self._manifest.starts[index]
        name = self._manifest.entries[index].name
        try:
            file = self._file
            if (
                file is None
                or file[0] != index
                or not self._place.is_unchanged(name, file[2])
            ):
                self._open(index, self._manifest.entries[index])
        except TopicNotFound as error:
            raise self._lost(index, "is missing", None) from error
        except Replaced as error:
            raise self._lost(index, _CHANGED, None) from error
        assert self._file is not None
        return self._file[1], start

    def drop(self) -> None:
        self._close_file()

    def close(self) -> None:
        self._close_file()
        for _, file in self._watched.values():
            if file is not None:
                file.close()
        self._watched.clear()
        self._place.close()
        self._manifest.close()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file[1].close()
            self._file = None

    def _open(self, index: int, entry: Entry) -> None:
        self._close_file()
        settings = self._settings
        stamp = self._place.look(entry.name).stamp
        medium = self._place.open(entry.name, stamp)
        try:
            file = open_file(medium, entry.form, settings.longest)
        except (CorruptData, FormatRefused, SchemaMismatch) as error:
            raise self._lost(index, _CHANGED, error.what) from error
        try:
            same = file.whole and file.rows == entry.rows
            schema = self._manifest.schema
            # Other processes may have written the manifest with another schema.
            if file.schema is None or schema is None or difference(file.schema, schema):
                same = False
            if not same or not file.is_listed_as(entry.incarnation):
                raise self._lost(index, _CHANGED, file.fingerprint())
            if settings.mapped:
                with translate_errors(file.path):
                    file.medium.map()
        except BaseException:
            file.close()
            raise
        self._file = (index, file, stamp)

    def _lost(self, index: int, what: str, found: str | None) -> LostFile:
        entry, starts = self._manifest.entries[index], self._manifest.starts
        end = starts[index + 1]
        where = f"which has offsets {starts[index]} to {end}"
        msg = f"the file {self._place.path(entry.name)!r}, {where}, {what}"
        return LostFile(msg, end, entry.incarnation, found)

    # --- looking --------------------------------------------------------------------

    def _search(self) -> None:
        """List the folder: new files, and the first one that is still there."""
        self.refresh()
        fresh: dict[str, Found | None] = {}
        first = len(self._manifest.entries)
        for name, found in self._place.names():
            if not self._belongs(name):
                continue
            index = self._manifest.names.get(name)
            if index is None:
                fresh[name] = found
            else:
                first = min(first, index)
        for name in self._watched.keys() - fresh.keys():
            self._forget(name)
        self._list(fresh)
        self.earliest = self._manifest.starts[first]

    def _belongs(self, name: str) -> bool:
        """Whether a name is one of the stream's."""
        names = self._settings.names
        return _is_wanted(name) and (names == "*" or fnmatch.fnmatchcase(name, names))

    def _list(self, fresh: dict[str, Found | None]) -> None:
        """List complete files in order; repeat if another process published first."""
        names = self._ordered(fresh)
        found: list[_Listed] = []
        trouble: StreamError | None = None
        while (names and trouble is None) or found:
            while names and len(found) < _CHUNK and trouble is None:
                try:
                    name = names.pop(0)
                    found += self._whole(name, fresh[name], found)
                except StreamError as error:
                    trouble = error  # raised after the files before it are listed
            found = self._publish(found)
        self._update()
        if trouble is not None:
            raise trouble

    def _publish(self, found: list[_Listed]) -> list[_Listed]:
        """List files; returns those not listed because another process was first."""
        if not found:
            return []
        schema = self._manifest.schema or found[0].schema
        self._manifest.publish([item.entry for item in found], schema)
        left = [x for x in found if x.entry.name not in self._manifest.names]
        for item in left:
            assert self._manifest.schema is not None
            self._check_schema(item.entry.name, item.schema, self._manifest.schema)
        return left

    def _ordered(self, fresh: dict[str, Found | None]) -> list[str]:
        """Names that are not listed yet, in the order of listing."""
        names = sorted(fresh)
        if self._settings.order == "time":
            names.sort(key=lambda name: self._time_of(name, fresh[name]))
        return names

    def _time_of(self, name: str, found: Found | None) -> int:
        try:
            return (found or self._place.look(name)).stamp.modified
        except (TopicNotFound, FormatRefused):
            return 0  # not listed: it was removed since the scan, or is refused

    def _whole(
        self, name: str, status: Found | None, before: list[_Listed]
    ) -> list[_Listed]:
        """A file, if it is complete and not listed yet."""
        if name in self._manifest.names:
            return []
        try:
            file = self._watch(name, status or self._place.look(name))
            if file is None:
                return []
            schema = file.schema
            if schema is None:
                msg = f"the stream {file.path!r} ends without a schema"
                raise CorruptData(msg, remedy="rewrite or remove the file")
            first = self._manifest.schema or (before[0].schema if before else schema)
            self._check_schema(name, schema, first)
            digest = hashlib.blake2b(str(schema).encode(), digest_size=12).hexdigest()
            size, mark = file.medium.stamp.size, file.fingerprint()
            if self._place.renames:
                self._check_renamed(name, mark, file.medium.stamp.modified)
        except (TopicNotFound, Replaced):
            return []  # removed or overwritten since the scan
        except BaseException:
            self._forget(name)
            raise
        self._forget(name)
        return [_Listed(Entry(name, file.rows, size, file.form, digest, mark), schema)]

    def _check_renamed(self, name: str, mark: str, modified: int) -> None:
        """Refuse to read a listed file again under another name."""
        index = self._manifest.listed(mark, modified)
        if index is None:
            return
        listed = self._manifest.entries[index].name
        with suppress(TopicNotFound):
            self._place.look(listed)
            return  # it is a copy
        before = self._place.path(listed)
        starts = self._manifest.starts
        msg = f"the file {before!r}, which has offsets {starts[index]} to "
        msg += f"{starts[index + 1]}, is missing: {self._place.path(name)!r} has its "
        msg += "content, and is not read again"
        raise CorruptData(msg, remedy="rename it back, or remove it")

    def _watch(self, name: str, status: Found) -> IndexedFile | None:
        """The index of a complete file; None if it is incomplete."""
        settings, stamp = self._settings, status.stamp
        seen, file = self._watched.pop(name, (None, None))
        if settings.form == PARQUET and "=" in name and status.is_folder:
            path = self._place.path(name)
            msg = f"{path!r} is a folder of partition values, which are not read"
            remedy = "read a stream of each such folder, or set `names`"
            raise FormatRefused(msg, remedy=remedy)
        if seen == stamp or status.is_folder:
            self._watched[name] = (stamp, file)
            self._warn_if_old(name, status)
            return None
        if file is not None and file.grew(stamp):
            file.refresh()
        else:
            if file is not None:
                file.close()
            medium = self._place.open(name, stamp)
            file = open_file(medium, settings.form, settings.longest)
        if not file.whole and len(self._watched) >= _WATCHED:
            file.close()
            self._watched[name] = (stamp, None)
            return None
        self._watched[name] = (stamp, file)
        if file.whole:
            return file
        self._warn_if_old(name, status)
        return None

    def _forget(self, name: str) -> None:
        _, file = self._watched.pop(name, (None, None))
        if file is not None:
            file.close()

    def _warn_if_old(self, name: str, status: Found) -> None:
        """Warn of a file that stays incomplete, since its rows are not read."""
        if name in self._warned or status.is_folder:
            return
        if time.time() - status.stamp.modified / 1e9 > _OLD:
            self._warned.add(name)
            log.warning(
                "the file %r is incomplete and has not changed for a minute: its rows "
                "are not part of the stream",
                self._place.path(name),
            )

    def _check_schema(self, name: str, have: pa.Schema, want: pa.Schema) -> None:
        why = difference(have, want)
        if why is not None:
            msg = (
                f"the schema of the file {self._place.path(name)!r} differs from the "
                f"stream's: {why}"
            )
            remedy = "remove it, or prefix its name with an underscore"
            raise SchemaMismatch(msg, remedy=remedy)

    def _update(self) -> None:
        manifest = self._manifest
        if manifest.incarnation != self.incarnation:
            self.earliest = 0
        self.latest = manifest.starts[-1]
        self.incarnation = manifest.incarnation
        self.schema = manifest.schema


def _is_wanted(name: str) -> bool:
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not (hidden or name.endswith((".tmp", ".crc", "._COPYING_")))
