"""Arrow IPC, as file or as stream, and Parquet."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from streamfactory.arrowipc import MARKER, IpcTooLong, expanded, read_header
from streamfactory.arrowlog.disk.pages import TAIL, footer_limits
from streamfactory.spi import CorruptData, DecodeError, FormatRefused, SchemaMismatch
from streamfactory.spi.causes import first_line
from streamfactory.spi.soundness import BatchValidator
from streamfactory.transfer.inputs.base import UNREADABLE, Input
from streamfactory.transfer.inputs.raw import Bytes, reading

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.transfer.inputs.base import InputOptions

_MAGIC: Final = b"ARROW1\0\0"
_FOREVER: Final = 3600.0
_OTHER: Final = "set its format with `format=`"


class _Messages:
    """A file for Arrow that counts and hashes the returned bytes.

    It reads complete messages, so that their sizes are checked before Arrow allocates
    memory.

    Args:
        source: The bytes.
        limit: Maximum decompressed bytes of one message.
    """

    closed = False

    def __init__(self, source: Bytes, limit: int) -> None:
        self._source = source
        self._limit = limit
        self._back = b""
        """Bytes that were read ahead."""
        self._message = memoryview(b"")
        """The rest of a message."""
        self.hash = hashlib.sha256()
        self.count = 0

    def readable(self) -> bool:
        return True

    def waits(self, timeout: float) -> bool:
        """Whether no bytes are available within so many seconds."""
        if not self._back and not self._message:
            data = self._source.read(1, timeout)
            if data is None:
                return True
            self._back = data
        return False

    def read(self, most: int = -1) -> bytes:
        """So many bytes; fewer at the end only.

        Raises:
            NotIpc: They are not a message.
            IpcTooLong: A message is over the limit.
        """
        parts, left = [], most
        while left:
            if not self._message:
                self._message = memoryview(self._next())
                if not self._message:
                    break
            parts.append(self._message[:left])
            self._message = self._message[left:]
            left -= len(parts[-1])
        found = b"".join(parts)
        self.hash.update(found)
        self.count += len(found)
        return found

    def begins(self, magic: bytes) -> bool:
        """Whether it begins with a magic number, which is then skipped."""
        found = self._take(len(magic))
        if found != magic:
            self._back = found
            return False
        self.hash.update(found)
        self.count += len(found)
        return True

    def _next(self) -> bytes:
        """Return a message, or the rest of one at the end."""
        prefix = self._take(4)
        if prefix == MARKER:  # absent before Arrow 0.15
            prefix += self._take(4)
        length = int.from_bytes(prefix[-4:], "little", signed=True)
        if len(prefix) < 4 or length <= 0:
            return prefix
        if length > self._limit:
            raise IpcTooLong(length, self._limit)
        head = self._take(length)
        if len(head) < length:
            return prefix + head
        header = read_header(memoryview(head), self._limit)
        body = self._take(header.body)
        if len(body) == header.body:
            expanded(header, memoryview(body), self._limit)
        return prefix + head + body

    def _take(self, most: int) -> bytes:
        """So many bytes; fewer at the end only."""
        parts, left = [self._back[:most]], most - len(self._back[:most])
        self._back = self._back[most:]
        while left:
            data = self._source.read(left, _FOREVER)
            if data is None:
                continue
            if not data:
                break
            parts.append(data)
            left -= len(data)
        return b"".join(parts)


class ArrowInput(Input):
    """An Arrow IPC stream or file, which contains a stream; counted in bytes."""

    format = "arrow"

    def __init__(
        self, name: str, source: Bytes, size: int | None, options: InputOptions
    ) -> None:
        self.name = name
        self.size = size
        self._source = source
        self._file = _Messages(source, options.max_message)
        self._reader: Any = None
        self._validator: BatchValidator | None = None
        self._finished = False
        self._taken = self._before = (0, "")
        self._waiting: tuple[pa.RecordBatch, int, tuple[int, str]] | None = None
        """A batch of which some rows were read, and the position after it."""

    def columns(self, timeout: float) -> pa.Schema | None:
        """The schema that it begins with."""
        if self._reader is None:
            if self._file.waits(timeout):
                return None
            self._reader = self._open()
            self._validator = _validator(self.name, self._reader.schema)
            self._mark()
        return self._reader.schema.remove_metadata()

    def read(self, timeout: float, most: int) -> pa.RecordBatch | None:
        """Return rows of the next batch.

        Waits for the end of a message that has begun.
        """
        if self._waiting is None:
            rows = self._next(timeout)
            if rows is None or rows.num_rows <= most:
                return rows
            self._waiting = (rows, 0, self._taken)
            self._taken = self._before
        rows, taken, behind = self._waiting
        part = rows.slice(taken, most)
        taken += part.num_rows
        self._waiting = None if taken == rows.num_rows else (rows, taken, behind)
        if self._waiting is None:
            self._taken = behind
        return part

    def _next(self, timeout: float) -> pa.RecordBatch | None:
        if self.columns(timeout) is None or self._finished:
            return None
        self._before = self._taken
        if self._file.waits(timeout):
            return None
        assert self._validator is not None
        try:
            rows = self._reader.read_next_batch()
            self._validator.validate(rows)
        except StopIteration:
            self._finished = True
            return None
        except (*UNREADABLE, CorruptData) as error:
            reason = error.what if isinstance(error, CorruptData) else first_line(error)
            msg = f"{self.name}, byte {self._taken[0]}: {reason}"
            remedy = "it is truncated or damaged; earlier rows are published"
            raise DecodeError(msg, remedy=remedy) from error
        self._mark()
        return rows

    @property
    def finished(self) -> bool:
        """Whether everything was taken."""
        return self._finished

    @property
    def offset(self) -> int:
        """Bytes taken."""
        return self._taken[0]

    @property
    def progress(self) -> int:
        """Bytes of the file that were read."""
        position = self._source.position()
        return self._file.count if position is None else position

    def digest(self) -> str:
        """The digest of the read bytes, and the number of rows of the next batch."""
        within = "" if self._waiting is None else f"+{self._waiting[1]}"
        return f"{self.format}:{self._taken[1]}{within}"

    def skip(self, offset: int, digest: str) -> None:
        """Skip the part that was published before."""
        while not self._finished and (self._reader is None or self.offset < offset):
            self._next(_FOREVER)
        if self.offset < offset:
            self.refuse(f"it has {self.offset} bytes of rows, not {offset}")
        _, plus, rows = digest.rpartition("+")
        if plus and rows.isdecimal() and int(rows):
            self.read(_FOREVER, int(rows))
        if self.offset > offset or self.digest() != digest:
            self.refuse(f"its first {offset} bytes differ")

    def close(self) -> None:
        """Close; twice is fine."""
        self._source.close()

    def _open(self) -> Any:
        self._file.begins(_MAGIC)
        try:
            return pa.ipc.open_stream(pa.PythonFile(self._file, mode="r"))
        except UNREADABLE as error:
            msg = f"{self.name} is not Arrow IPC: {first_line(error)}"
            raise FormatRefused(msg, remedy=_OTHER) from error

    def _mark(self) -> None:
        self._taken = (self._file.count, self._file.hash.hexdigest())


class ParquetInput(Input):
    """A complete Parquet file; counted in rows."""

    format = "parquet"
    unit = "rows"

    def __init__(self, name: str, path: Path, batch_rows: int) -> None:
        from streamfactory.arrowlog.disk.foreign import open_foreign

        self.name = name
        self.size = path.stat().st_size
        self._rows = batch_rows
        try:
            limits = footer_limits(_tail(name, path), self.size)
            self._file = open_foreign(path, limits)
            self._schema = self._file.schema_arrow.remove_metadata()
            _validator(name, self._schema)
        except UNREADABLE as error:
            msg = f"{name} is not Parquet: {first_line(error)}"
            raise FormatRefused(msg, remedy=_OTHER) from error
        metadata = self._file.metadata
        self._count: int = metadata.num_rows
        groups = (metadata.row_group(at) for at in range(metadata.num_row_groups))
        if sum(group.num_rows for group in groups) != self._count:
            msg = (
                f"{name} has row groups of other sizes than the {self._count} "
                f"rows of its footer"
            )
            raise FormatRefused(msg, remedy="it is damaged: write it again")
        self._digest = f"{self.format}:{_footer_digest(name, path)}"
        self._batches = self._from(0)
        self._waiting: pa.RecordBatch | None = None
        self._taken = 0

    def columns(self, timeout: float) -> pa.Schema:  # noqa: ARG002 - a file never waits
        """The schema of the file."""
        return self._schema

    def read(self, timeout: float, most: int) -> pa.RecordBatch | None:  # noqa: ARG002 - as above
        """Of the next batch."""
        rows, self._waiting = self._waiting, None
        if rows is None:
            rows = self._next()
        if rows is not None:
            if rows.num_rows > most:
                rows, self._waiting = rows.slice(0, most), rows.slice(most)
            self._taken += rows.num_rows
        return rows

    def _next(self) -> pa.RecordBatch | None:
        try:
            rows = next(self._batches, None)
            if rows is not None:
                rows.validate(full=True)  # Arrow 26 does not check that text is UTF-8
        except UNREADABLE as error:
            raise self._damaged(first_line(error)) from error
        if rows is None and not self.finished:
            why = f"its footer has {self._count} rows"
            raise self._damaged(why)
        return rows

    def _damaged(self, why: str) -> DecodeError:
        msg = f"{self.name}, row {self._taken}: {why}"
        remedy = "it is damaged; earlier rows are published"
        return DecodeError(msg, remedy=remedy)

    @property
    def finished(self) -> bool:
        """Whether everything was taken."""
        return self._taken >= self._count

    @property
    def offset(self) -> int:
        """Rows taken."""
        return self._taken

    @property
    def progress(self) -> int:
        """The average bytes of the rows that were read."""
        assert self.size is not None
        return self.size * self._taken // max(1, self._count)

    def digest(self) -> str:
        """The digest of the footer, which determines the content."""
        return self._digest

    def skip(self, offset: int, digest: str) -> None:
        """Skip the part that was published before."""
        if self._digest != digest:
            self.refuse("its footer differs")
        self._batches, self._waiting = self._from(offset), None
        self._taken = offset

    def close(self) -> None:
        """Close; twice is fine."""
        self._file.close(force=True)

    def _from(self, offset: int) -> Iterator[pa.RecordBatch]:
        """Batches from a row on; groups of rows before it are not read."""
        groups: list[int] = []
        for index in range(self._file.num_row_groups):
            count = self._file.metadata.row_group(index).num_rows
            if not groups and offset >= count:
                offset -= count
            else:
                groups.append(index)
        for batch in self._file.iter_batches(self._rows, row_groups=groups):
            if offset < batch.num_rows:
                yield batch.slice(offset)
            offset = max(0, offset - batch.num_rows)


def _validator(name: str, schema: pa.Schema) -> BatchValidator:
    """Of a file's batches.

    Raises:
        SchemaMismatch: permanent; a type or a name is refused.
    """
    try:
        return BatchValidator(schema)
    except SchemaMismatch as error:
        msg = f"{name}: {error.what}"
        raise SchemaMismatch(msg, remedy=error.remedy) from error


def _tail(name: str, path: Path) -> bytes:
    with reading(name), path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        return file.read()


def _footer_digest(name: str, path: Path) -> str:
    with reading(name), path.open("rb") as file:
        size = file.seek(-8, os.SEEK_END) + 8
        length = int.from_bytes(file.read(4), "little")
        file.seek(-8 - length, os.SEEK_END)
        return hashlib.sha256(
            file.read(length) + size.to_bytes(8, "little")
        ).hexdigest()
