"""Writes Parquet and Arrow files atomically."""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self, final
from urllib.parse import quote

import pyarrow as pa

from streamfactory.conversion.required import fill_required
from streamfactory.spi import MisuseError, StorageFailed, Unsupported
from streamfactory.spi.causes import first_line
from streamfactory.wiring.core.durable import sync_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from streamfactory.spi import Partition

FORMATS: Final = ("parquet", "arrow", "arrows")

_SUFFIXES: Final = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".arrows": "arrows",
}
_MOST: Final = {
    "parquet": (1 << 20, 64 << 20),
    "arrow": (1 << 16, 8 << 20),
    "arrows": (1 << 16, 8 << 20),
}
"""Maximum rows and bytes of one row group or batch, which are buffered in memory."""


def format_of(path: Path, given: str | None, *, by_partition: bool) -> str:
    """Return the format of an output.

    Raises:
        MisuseError: misuse; it cannot be determined, or is not supported.
    """
    found = given
    if found is None and not by_partition:
        found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        msg = f"the format of {path} is unknown"
        raise MisuseError(msg, remedy=f"set it to one of {', '.join(FORMATS)}")
    if found not in FORMATS:
        msg = f"format {found!r} is not supported; use one of {', '.join(FORMATS)}"
        raise MisuseError(msg)
    return found


@final
class Outputs:
    """The destination of files, checked before the stream is read.

    Args:
        path: The file; with ``by_partition`` the folder.
        format: One of `FORMATS`.
        by_partition: One file for each partition.
        force: Replace an existing file; a folder is never replaced.

    Raises:
        MisuseError: misuse; it exists already, or is not a file.
        StorageFailed: permanent; its parent folder does not exist.
    """

    def __init__(
        self, path: Path, format: str, *, by_partition: bool, force: bool
    ) -> None:
        if by_partition and force:
            msg = "a folder is never replaced"
            raise MisuseError(msg, remedy="remove it first, or use another one")
        self.path = path
        self.format = format
        self.by_partition = by_partition
        self.force = force
        if not path.parent.is_dir():
            msg = f"{path} cannot be written: folder {path.parent} does not exist"
            raise StorageFailed(msg, remedy="create it first")
        if os.path.lexists(path):
            self.refuse_there()

    def refuse_there(self) -> None:
        """Raise if the destination exists, unless it is a file that may be replaced.

        Raises:
            MisuseError: misuse.
        """
        if self.force and self.path.is_file():
            return
        msg = f"{self.path} exists already"
        remedy = "use another file, or pass `force=True` to replace it"
        if self.force or self.by_partition:
            msg = (
                f"{msg}, and is not a file, which could be replaced"
                if self.force
                else msg
            )
            remedy = "use another one"
        raise MisuseError(msg, remedy=remedy)

    def begin(self, schema: pa.Schema) -> Writing:
        """Start to write files of a schema."""
        return Writing(self, schema)


@final
class Writing:
    """Files while they are written; a context manager that leaves no incomplete file.

    Args:
        outputs: The destination.
        schema: Schema of all files.
    """

    def __init__(self, outputs: Outputs, schema: pa.Schema) -> None:
        self._outputs = outputs
        self._schema = schema
        path = outputs.path
        self._temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        self._open: Output | None = None
        self._files: list[str] = []
        self._size = 0

    def of(self, partition: Partition) -> Output:
        """Return the file for a partition's rows; earlier partitions are complete."""
        if not self._outputs.by_partition:
            assert self._open is not None
            return self._open
        self._finish()
        # A topic may be named like a path.
        topic = quote(partition.topic, safe=" ")
        name = f"{topic}-{partition.id}.{self._outputs.format}"
        name = f"%2E{name[1:]}" if name.startswith(".") else name
        self._files.append(name)
        return self._begin(self._temporary / name)

    def publish(self) -> tuple[tuple[Path, ...], int]:
        """Publish all files; return them and their bytes.

        Raises:
            MisuseError: misuse; the destination was created meanwhile.
            StorageFailed: permanent.
        """
        self._finish()
        path = self._outputs.path
        with _storing(path):
            if self._outputs.by_partition:
                sync_folder(self._temporary)
            self._move()
        with _storing(path, "it was written, but may not survive a crash"):
            sync_folder(path.parent)
        if self._outputs.by_partition:
            return tuple(path / name for name in self._files), self._size
        return (path,), self._size

    def __enter__(self) -> Self:
        if self._outputs.by_partition:
            with _storing(self._outputs.path):
                self._temporary.mkdir()
        else:
            self._begin(self._temporary)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open is not None:
            self._open.abandon()
        if self._outputs.by_partition:
            shutil.rmtree(self._temporary, ignore_errors=True)
        else:
            with suppress(OSError):
                self._temporary.unlink(missing_ok=True)

    def _begin(self, path: Path) -> Output:
        self._open = Output(path, self._outputs, self._schema)
        return self._open

    def _finish(self) -> None:
        if self._open is not None:
            self._size += self._open.finish()
            self._open = None

    def _move(self) -> None:
        path = self._outputs.path
        if self._outputs.force:
            self._temporary.replace(path)
            return
        if not self._outputs.by_partition:
            try:
                # fails if the path was created meanwhile
                os.link(self._temporary, path)
            except FileExistsError:
                self._outputs.refuse_there()
            except OSError:
                pass  # a file system without hard links
            else:
                return
        if os.path.lexists(path):
            self._outputs.refuse_there()
        self._temporary.rename(path)


@final
class Output:
    """One file while it is written. Rows are combined to row groups or batches.

    Args:
        path: Its temporary path.
        outputs: Its destination and format.
        schema: Schema of its rows.

    Raises:
        Unsupported: misuse; the format has no such columns.
        StorageFailed: permanent.
    """

    def __init__(self, path: Path, outputs: Outputs, schema: pa.Schema) -> None:
        self._outputs = outputs
        self._schema = schema
        self._most_rows, self._most_bytes = _MOST[outputs.format]
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        with _storing(outputs.path):
            self._file = path.open("xb")
        try:
            with self._writing():
                self._writer = _writer(outputs.format, self._file, schema)
        except BaseException:
            self._file.close()
            path.unlink()
            raise

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows.

        Raises:
            StorageFailed: permanent; the disk is full, for example.
        """
        if not rows.num_rows:
            return
        if self._outputs.format == "parquet":
            with self._writing():
                rows = fill_required(rows)
        self._gathered.append(rows)
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        if self._bytes >= self._most_bytes:
            self._flush(self._rows)
        elif self._rows >= self._most_rows:
            # The rest waits: how many rows come at once does not show in the file.
            self._flush(self._rows - self._rows % self._most_rows)

    def finish(self) -> int:
        """Write the rest and sync; return the bytes of the file."""
        if self._rows:
            self._flush(self._rows)
        with self._writing():
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
        return size

    def abandon(self) -> None:
        """Close an incomplete file."""
        with suppress(Exception):
            self._writer.close()
        if self._outputs.format == "parquet":
            # otherwise it writes again when garbage-collected
            self._writer.is_open = False
        with suppress(OSError):
            self._file.close()

    def _flush(self, count: int) -> None:
        """Write the first rows of those that are gathered."""
        table = pa.Table.from_batches(self._gathered, self._schema)
        if len(self._gathered) > 1:
            table = table.combine_chunks()
        rest = table.slice(count)
        self._gathered = [batch for batch in rest.to_batches() if batch.num_rows]
        self._rows, self._bytes = rest.num_rows, rest.nbytes
        with self._writing():
            self._writer.write_table(table.slice(0, count), self._most_rows)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with _storing(self._outputs.path):
            try:
                yield
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                reason = first_line(error)
                msg = (
                    f"format {self._outputs.format} does not support these "
                    f"columns: {reason}"
                )
                raise Unsupported(msg, remedy="export as arrow") from error


def _writer(format: str, file: Any, schema: pa.Schema) -> Any:
    if format == "arrow":
        return pa.ipc.new_file(file, schema)
    if format == "arrows":
        return pa.ipc.new_stream(file, schema)
    from pyarrow import parquet

    return parquet.ParquetWriter(file, schema)


@contextmanager
def _storing(path: Path, left: str = "nothing of it is left") -> Iterator[None]:
    """Translate errors of the file system, with the user's path."""
    try:
        yield
    except StorageFailed:
        raise
    except OSError as error:
        msg = f"{path} cannot be written: {error.strerror or error}"
        raise StorageFailed(msg, remedy=left) from error
