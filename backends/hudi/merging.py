"""Merges the log files of a file group into its base file, by ``hudi``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import hudi
import pyarrow as pa

from streamfactory.spi import CorruptData
from streamfactory.tables import ForkGuard, PieceGone, store_failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.backends.hudi.slices import Slice
    from streamfactory.tables import TableFiles

KEY: Final = "_hoodie_record_key"
TIME: Final = "_hoodie_commit_time"
_MAGIC: Final = b"#HUDI#"
_SIZE: Final = 8
_PANIC: Final = "pyo3_runtime"
_guard = ForkGuard("log files of a Hudi table cannot be merged")


@final
class Merger:
    """Reads file slices that have log files. Thread-safe.

    Args:
        location: Of the table.
        storage: Options of the location for ``hudi``.
    """

    def __init__(self, location: str, storage: Mapping[str, str]) -> None:
        self._location = location
        self._storage = dict(storage)

    def read(self, files: TableFiles, found: Slice, as_of: str | None) -> pa.Table:
        """The merged rows, by record key. All of them are held in memory.

        Args:
            files: Of the table.
            found: Which files.
            as_of: Blocks of log files of later instants are left out.

        Raises:
            PieceGone: A file does not exist.
            CorruptData: data_loss; a file is damaged.
            Unsupported: misuse; this process was forked from one that has read.
        """
        _guard.check()
        # hudi-rs opens files by their paths, whatever they are.
        if found.base is not None:
            _open(files, found.base).close()
        for path in found.logs:
            _check_log(files, path)
        options = hudi.HudiReadOptions()
        if as_of is not None:
            options = options.with_as_of_timestamp(as_of)
        try:
            table = hudi.HudiTable(self._location, self._storage)
            reader = table.create_file_group_reader_with_options(options)
            rows = reader.read_file_slice_from_paths(
                found.base or "", list(found.logs), options
            )
        except MemoryError:
            raise
        except Exception as error:
            raise self._failed(files, found, error) from error
        except BaseException as error:
            # A panic of hudi-rs is no Exception, and its type cannot be imported.
            if type(error).__module__ != _PANIC:
                raise
            raise self._failed(files, found, error) from error
        return pa.Table.from_batches([rows]).sort_by(KEY)

    def _failed(
        self, files: TableFiles, found: Slice, error: BaseException
    ) -> Exception:
        """What is raised for an error of hudi-rs."""
        for path in filter(None, (found.base, *found.logs)):
            if not files.exists(path):
                what = f"{path!r} does not exist"
                return PieceGone(what)
        path = found.base or found.logs[-1]
        failure = store_failure(error, f"{self._location}/{path}")
        if failure is not None:
            return failure
        what = f"the file slice of {path!r} cannot be merged: {error}"
        return CorruptData(what[:500], remedy="restore its files from a copy")


def _check_log(files: TableFiles, path: str) -> None:
    """Follow the blocks of a log file to its end: hudi-rs passes over damaged ones.

    Each block is the magic, its length, its content, and last its length with the magic
    again.
    """
    with _open(files, path) as source:
        size, at = source.size(), 0
        while at < size:
            head = source.read_at(len(_MAGIC) + _SIZE, at)
            length = int.from_bytes(head[len(_MAGIC) :], "big")
            end = at + len(_MAGIC) + _SIZE + length
            whole = head.startswith(_MAGIC) and length >= _SIZE and end <= size
            if whole:
                tail = source.read_at(_SIZE, end - _SIZE)
                whole = int.from_bytes(tail, "big") == end - _SIZE - at
            if not whole:
                what = f"the log file {path!r} is damaged at byte {at}"
                raise CorruptData(what, remedy="restore the file from a copy")
            at = end


def _open(files: TableFiles, path: str) -> pa.NativeFile:
    try:
        return files.open(path)
    except FileNotFoundError as error:
        what = f"{path!r} does not exist"
        raise PieceGone(what) from error
