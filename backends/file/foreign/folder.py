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
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from streamfactory.arrowlog.disk.folders import Folders, Modes
from streamfactory.backends.file.foreign.layout import (
    Layout,
    LostFile,
    Settings,
    open_file,
)
from streamfactory.backends.file.foreign.manifest import Entry, Manifest
from streamfactory.backends.file.foreign.medium import Stamp, stamp_of, translate_errors
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

log = logging.getLogger("streamfactory")

MANIFEST: Final = ".streamfactory-manifest"

_CHUNK: Final = 256
"""Files per manifest part."""
_SPARE: Final = 20.0
"""Minimum pause between two scans of the folder, as a multiple of a scan's duration."""
_WATCHED: Final = 64
"""Incomplete files whose index is kept in memory."""
_OLD: Final = 60.0
"""Seconds after which a warning about an incomplete file is logged."""


class _Found(NamedTuple):
    """A complete file that is not listed yet."""

    entry: Entry
    schema: pa.Schema


class Folder(Layout):
    """The files of a folder."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._root = os.path.abspath(settings.path)  # noqa: PTH100 - a link stays
        self._folders = Folders(
            Path(self._root), Modes(), foreign=True, links=settings.links
        )
        self._manifest = Manifest(_manifest_folder(settings))
        self._file: tuple[int, IndexedFile, Stamp] | None = None
        self._watched: dict[str, tuple[Stamp, IndexedFile | None]] = {}
        self._warned: set[str] = set()
        self._not_before = 0.0

    def refresh(self) -> None:
        self._manifest.refresh()
        self._update()

    def discover(self, *, eager: bool = False) -> None:
        began = time.monotonic()
        if not eager and began < self._not_before:
            return
        present = self._present()
        self._list(present)
        self.earliest = self._held_from(present)
        ended = time.monotonic()
        self._not_before = ended + _SPARE * (ended - began)

    def find(self, offset: int) -> tuple[IndexedFile, int]:
        index = self._manifest.find(offset)
        start = self._manifest.starts[index]
        entry = self._manifest.entries[index]
        path = self._path(entry.name)
        try:
            stamp = stamp_of(path, self._folders)
            if self._file is None or self._file[::2] != (index, stamp):
                self._open(index, entry, stamp)
        except TopicNotFound as error:
            raise self._lost(index, "is missing", None) from error
        assert self._file is not None
        return self._file[1], start

    def close(self) -> None:
        if self._file is not None:
            self._file[1].close()
            self._file = None
        for _, file in self._watched.values():
            if file is not None:
                file.close()
        self._watched.clear()
        self._folders.forget()
        self._manifest.close()

    def _open(self, index: int, entry: Entry, stamp: Stamp) -> None:
        if self._file is not None:
            self._file[1].close()
            self._file = None
        settings, changed = self._settings, "has changed since it was listed"
        try:
            path = self._path(entry.name)
            file = open_file(path, entry.form, settings.longest, self._folders)
        except (CorruptData, FormatRefused, SchemaMismatch) as error:
            raise self._lost(index, changed, error.what) from error
        try:
            same = file.whole and file.rows == entry.rows
            schema = self._manifest.schema
            # Other processes may have written the manifest with another schema.
            if file.schema is None or schema is None or difference(file.schema, schema):
                same = False
            if not same or not file.is_listed_as(entry.incarnation):
                raise self._lost(index, changed, file.fingerprint())
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
        msg = f"the file {self._path(entry.name)!r}, {where}, {what}"
        return LostFile(msg, end, entry.incarnation, found)

    # --- looking --------------------------------------------------------------------

    def _present(self) -> dict[str, os.DirEntry[str]]:
        """The entries of the folder that belong to the stream, by name."""
        path, names = self._settings.path, self._settings.names
        with translate_errors(path), os.scandir(path) as entries:
            return {
                entry.name: entry
                for entry in entries
                if _is_wanted(entry.name)
                and (names == "*" or fnmatch.fnmatchcase(entry.name, names))
            }

    def _list(self, present: dict[str, os.DirEntry[str]]) -> None:
        """List complete files in order; repeat if another process published first."""
        self.refresh()
        names = self._ordered(present)
        found: list[_Found] = []
        trouble: StreamError | None = None
        while (names and trouble is None) or found:
            while names and len(found) < _CHUNK and trouble is None:
                try:
                    found += self._whole(names.pop(0), found)
                except StreamError as error:
                    trouble = error  # raised after the files before it are listed
            found = self._publish(found)
        self._update()
        if trouble is not None:
            raise trouble

    def _publish(self, found: list[_Found]) -> list[_Found]:
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

    def _ordered(self, present: dict[str, os.DirEntry[str]]) -> list[str]:
        """Names that are not listed yet, in the order of listing."""
        for name in self._watched.keys() - present.keys():
            self._forget(name)
        fresh = sorted(present.keys() - self._manifest.names)
        if self._settings.order == "time":
            links = self._settings.links
            fresh.sort(key=lambda name: _time_of(present[name], links=links))
        return fresh

    def _whole(self, name: str, before: list[_Found]) -> list[_Found]:
        """A file, if it is complete and not listed yet."""
        if name in self._manifest.names:
            return []
        try:
            file = self._watch(name)
        except TopicNotFound:
            file = None  # removed since the scan
        if file is None:
            return []
        try:
            schema = file.schema
            if schema is None:
                msg = f"the stream {file.path!r} ends without a schema"
                raise CorruptData(msg, remedy="rewrite or remove the file")
            first = self._manifest.schema or (before[0].schema if before else schema)
            self._check_schema(name, schema, first)
            digest = hashlib.blake2b(str(schema).encode(), digest_size=12).hexdigest()
            size, mark = file.medium.stamp.size, file.fingerprint()
            self._check_renamed(name, mark, file.medium.stamp.modified)
            entry = Entry(name, file.rows, size, file.form, digest, mark)
        finally:
            self._forget(name)
        return [_Found(entry, schema)]

    def _check_renamed(self, name: str, mark: str, modified: int) -> None:
        """Refuse to read a listed file again under another name."""
        index = self._manifest.listed(mark, modified)
        if index is None:
            return
        before = self._path(self._manifest.entries[index].name)
        with suppress(TopicNotFound):
            stamp_of(before, self._folders)
            return  # it is a copy
        starts = self._manifest.starts
        msg = f"the file {before!r}, which has offsets {starts[index]} to "
        msg += (
            f"{starts[index + 1]}, is missing: {self._path(name)!r} has its content, "
        )
        msg += "and is not read again"
        raise CorruptData(msg, remedy="rename it back, or remove it")

    def _watch(self, name: str) -> IndexedFile | None:
        """The index of a complete file; None if it is incomplete."""
        path, settings = self._path(name), self._settings
        with translate_errors(path):
            status = self._folders.entry(path)
        stamp = Stamp.of(status)
        seen, file = self._watched.pop(name, (None, None))
        if settings.form == PARQUET and "=" in name and _is_folder(status):
            msg = f"{path!r} is a folder of partition values, which are not read"
            remedy = "read a stream of each such folder, or set `names`"
            raise FormatRefused(msg, remedy=remedy)
        if seen == stamp or _is_folder(status):
            self._watched[name] = (stamp, file)
            self._warn_if_old(name, status)
            return None
        if file is not None and file.grew(stamp):
            file.refresh()
        else:
            if file is not None:
                file.close()
            file = open_file(path, settings.form, settings.longest, self._folders)
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

    def _warn_if_old(self, name: str, status: os.stat_result) -> None:
        """Warn of a file that stays incomplete, since its rows are not read."""
        if name in self._warned or _is_folder(status):
            return
        if time.time() - status.st_mtime > _OLD:
            self._warned.add(name)
            log.warning(
                "the file %r is incomplete and has not changed for a minute: its rows "
                "are not part of the stream",
                self._path(name),
            )

    def _check_schema(self, name: str, have: pa.Schema, want: pa.Schema) -> None:
        why = difference(have, want)
        if why is not None:
            msg = (
                f"the schema of the file {self._path(name)!r} differs from the "
                f"stream's: {why}"
            )
            remedy = "remove it, or prefix its name with an underscore"
            raise SchemaMismatch(msg, remedy=remedy)

    def _held_from(self, present: dict[str, os.DirEntry[str]]) -> int:
        """Start offset of the first listed file that still exists."""
        for entry, start in zip(
            self._manifest.entries, self._manifest.starts, strict=False
        ):
            if entry.name in present:
                return start
        return self._manifest.starts[-1]

    def _update(self) -> None:
        manifest = self._manifest
        if manifest.incarnation != self.incarnation:
            self.earliest = 0
        self.latest = manifest.starts[-1]
        self.incarnation = manifest.incarnation
        self.schema = manifest.schema

    def _path(self, name: str) -> str:
        return os.path.join(self._root, name)  # noqa: PTH118 - thousands


def _is_wanted(name: str) -> bool:
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not (hidden or name.endswith((".tmp", ".crc", "._COPYING_")))


def _is_folder(status: os.stat_result) -> bool:
    return (status.st_mode & 0o170000) == 0o040000


def _time_of(entry: os.DirEntry[str], *, links: bool) -> int:
    try:
        return entry.stat(follow_symlinks=links).st_mtime_ns
    except FileNotFoundError:
        return 0  # removed since the scan: it is not listed


def _manifest_folder(settings: Settings) -> Path:
    if settings.state is None:
        return Path(settings.path) / MANIFEST
    whole = os.path.realpath(settings.path)
    digest = hashlib.blake2b(os.fsencode(whole), digest_size=8).hexdigest()
    return Path(settings.state) / f"{Path(whole).name}-{digest}"
