"""The metadata of an Iceberg table: its files, read within limits."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Final, TypeVar, final

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.manifest import read_manifest_list
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from streamfactory.backends.iceberg.checks import (
    DAMAGE,
    check_defaults,
    check_version,
    checked_avro,
    refusal_of,
    refuse_compressed,
)
from streamfactory.spi import (
    CorruptData,
    DataLossError,
    FormatRefused,
    StreamError,
    Unsupported,
)
from streamfactory.spi.causes import first_line
from streamfactory.tables import Kept, missing_table, path_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.table.snapshots import Snapshot

    from streamfactory.backends.iceberg.catalogs import TableCatalog
    from streamfactory.tables import TableFiles

FOLDER: Final = "metadata"
_NAME: Final = re.compile(r"v?(\d{1,18})(?:-[^/]+)?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_AMBIGUOUS: Final = (
    "remove the file that the table's catalog does not name: it was left by a commit "
    "that failed; or commit once more, which writes a newer one"
)
_KEPT: Final = 64
"""Manifests that are kept, immutable as they are: plans and readers list the same."""

T = TypeVar("T")


@final
class IcebergMetadata:
    """Finds and reads the metadata of one table. Thread-safe.

    Args:
        files: Of the table.
        most: Bytes that one file of the metadata may have, also inflated.
        catalog: States which metadata is the newest. None: that with the highest
            number.
    """

    def __init__(
        self, files: TableFiles, most: int, catalog: TableCatalog | None = None
    ) -> None:
        self._catalog = catalog
        self._files = files
        self._most = most
        self._lock = threading.Lock()
        self._name: tuple[str, tuple[int, int]] | None = None
        self._current: TableMetadata | None = None
        self._lists: Kept[list[ManifestFile]] = Kept(_KEPT)
        self._entries: Kept[list[ManifestEntry]] = Kept(_KEPT)

    def current(self) -> TableMetadata:
        """The newest metadata, looked up now.

        Raises:
            TopicNotFound: permanent; there is no table.
            FormatRefused: permanent; it is of another format, or cannot be read.
        """
        if self._catalog is not None:
            return self._found(self._loaded(self._catalog), None)
        name = self._newest_name()
        path = f"{FOLDER}/{name}"
        stamp = self._files.stamp(path)
        with self._lock:
            if self._current is not None and stamp and self._name == (name, stamp):
                return self._current
        content = self._files.read(path, self._most)
        found = self._parsed(path, content)
        return self._found(found, (name, stamp) if stamp else None)

    def close(self) -> None:
        """Close the catalog."""
        if self._catalog is not None:
            self._catalog.close()

    def _found(
        self, found: TableMetadata, name: tuple[str, tuple[int, int]] | None
    ) -> TableMetadata:
        with self._lock:
            if self._current is None or self._current.table_uuid != found.table_uuid:
                self._lists.clear()
                self._entries.clear()
            self._current, self._name = found, name
        return found

    def _loaded(self, catalog: TableCatalog) -> TableMetadata:
        metadata = catalog.load().metadata
        check_version(metadata)
        return metadata

    def manifests(self, snapshot: Snapshot, location: str) -> list[ManifestFile]:
        """The manifests of a snapshot.

        Raises:
            DataLossError: data_loss; the list of manifests was removed.
        """

        def read(files: _TableIO) -> list[ManifestFile]:
            return list(read_manifest_list(files.new_input(snapshot.manifest_list)))

        return self._cached(self._lists, snapshot.manifest_list, location, read)

    def entries(self, manifest: ManifestFile, location: str) -> list[ManifestEntry]:
        """The entries of a manifest, deleted ones included.

        Raises:
            DataLossError: data_loss; the manifest was removed.
        """

        def read(files: _TableIO) -> list[ManifestEntry]:
            found = manifest.fetch_manifest_entry(files, discard_deleted=False)
            counts = (
                manifest.added_files_count,
                manifest.existing_files_count,
                manifest.deleted_files_count,
            )
            if None not in counts and len(found) != sum(filter(None, counts)):
                what = f"it has {len(found)} entries instead of "
                what += f"{sum(filter(None, counts))}"
                raise ValueError(what)
            return found

        return self._cached(self._entries, manifest.manifest_path, location, read)

    def _cached(
        self,
        cache: Kept[list[T]],
        path: str,
        location: str,
        read: Callable[[_TableIO], list[T]],
    ) -> list[T]:
        kept = cache.get(path)
        if kept is None:
            try:
                kept = read(_TableIO(self._files, location, self._most))
            except FileNotFoundError as error:
                what = f"{path!r} of the table's metadata was removed"
                raise DataLossError(what) from error
            except (StreamError, OSError):
                raise
            except Exception as error:  # of two Avro libraries, and of pyiceberg
                cause = first_line(error, 200)
                what = f"{path!r} of the table's metadata is damaged: {cause}"
                raise CorruptData(what) from error
            cache.add(path, kept)
        return kept

    def _newest_name(self) -> str:
        numbered = [
            (int(match[1]), name)
            for name in self._files.sizes(FOLDER)
            if (match := _NAME.fullmatch(name))
        ]
        if not numbered:
            lacks = f"{FOLDER} folder with a *.metadata.json"
            raise missing_table(self._files, "iceberg", lacks)
        number, name = max(numbered)
        same = sorted(name for found, name in numbered if found == number)
        if len(same) > 1:
            what = f"the newest metadata of the table at {self._files.location!r} is "
            what += f"ambiguous: {same[0]!r} and {same[1]!r} have the same number"
            raise FormatRefused(what, remedy=_AMBIGUOUS)
        return name

    def _parsed(self, path: str, content: bytes) -> TableMetadata:
        refuse_compressed(path)
        try:
            check_defaults(json.loads(content))
            metadata = TableMetadataUtil.parse_raw(content.decode())
        except DAMAGE as error:
            what = f"{path!r} of the table {refusal_of(error)}"
            raise FormatRefused(what) from error
        check_version(metadata)
        return metadata


@final
class _TableIO(FileIO):
    """Opens metadata by absolute location, only below the table."""

    def __init__(self, files: TableFiles, location: str, most: int) -> None:
        super().__init__()
        self._files = files
        self._location = location
        self._most = most

    def new_input(self, location: str) -> InputFile:
        return _Input(self._files, path_below(self._location, location), self._most)

    def new_output(self, location: str) -> OutputFile:
        what = "tables are not written"
        raise Unsupported(what)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        what = "tables are not written"
        raise Unsupported(what)


@final
class _Input(InputFile):
    def __init__(self, files: TableFiles, path: str, most: int) -> None:
        super().__init__(path)
        self._files = files
        self._most = most

    def __len__(self) -> int:
        found = self._files.stamp(self.location)
        return 0 if found is None else found[0]

    def exists(self) -> bool:
        return self._files.exists(self.location)

    def open(self, seekable: bool = True) -> InputStream:
        whole = self._files.read(self.location, self._most)
        return checked_avro(self.location, whole, self._most)
