"""Stages: rows of attempts that wait for their commit, in memory or in a file.

Rows that their own process commits stay where they are until the commit copies them
into the rings. Those of a message that is pickled, for a commit by another process, are
stored in a file.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.arrowlog.carried import CarriedRows
from streamfactory.arrowlog.checks import check_schema
from streamfactory.arrowlog.disk.folders import Folders, Modes
from streamfactory.arrowlog.stages import SoundStage
from streamfactory.arrowlog.values import Staged
from streamfactory.backends.shm.layout import STAGING, STREAM
from streamfactory.backends.shm.messages import check_messages
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    MessageTooLarge,
    MisuseError,
    StorageFailed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from streamfactory.spi import SoundRows

_ABANDONED: Final = 24 * 3600.0
"""Seconds after which a staged file is removed: longer than any epoch takes."""
_NAME: Final = re.compile(r"[0-9a-f]{32}\.arrow")
_PARTITION: Final = b"partition"

Parts = list[tuple[int, "SoundRows"]]


@final
class ShmStage(SoundStage):
    """The rows of one attempt.

    Args:
        attempt: Its id.
        validator: Of the topic.
        folder: Of the topic.
        incarnation: Of the topic.
        capacity: Bytes of each ring.
        check_partition: Refuses a partition that does not exist.
    """

    def __init__(
        self,
        attempt: str,
        validator: BatchValidator,
        folder: Path,
        incarnation: str,
        capacity: int,
        check_partition: Callable[[int], None],
    ) -> None:
        super().__init__(validator)
        self._attempt = attempt
        self._folder = folder
        self._incarnation = incarnation
        self._capacity = capacity
        self._check_partition = check_partition
        self._rows: Parts = []
        self._sizes: Counter[int] = Counter()
        """Bytes of the rows by partition."""

    def append_sound(self, partition: int, rows: SoundRows) -> None:
        """As of `SoundStage`.

        Raises:
            MessageTooLarge: permanent; the rows have no room in a ring.
        """
        check_schema(rows.batch, self._validator.schema)
        self._check_partition(partition)
        if not rows.num_rows:
            return
        size = self._sizes[partition] + pa.ipc.get_record_batch_size(rows.batch)
        # The commit knows the bytes of the records; this bounds what is kept until it.
        if size > 2 * self._capacity:
            raise too_large(partition, size, self._capacity)
        self._sizes[partition] = size
        self._rows.append((partition, rows))  # which may be kept: see `Outgoing`

    def seal(self, *, carried: bool = False) -> Staged:
        rows, self._rows = self._rows, []
        if not rows:
            return Staged(self._attempt)
        file = {"name": f"{uuid.uuid4().hex}.arrow"}

        def store() -> Mapping[str, str]:
            self._write(file["name"], rows)
            return file

        if not carried:
            return Staged(self._attempt, (store(),))
        size, schema = self._sizes.total(), self._validator.schema
        kept = CarriedRows(self._incarnation, schema, rows, size, store)
        return Staged(self._attempt, rows=kept)

    def _write(self, name: str, rows: Parts) -> None:
        """Write a file.

        Raises:
            StorageFailed: permanent; there is no memory left.
        """
        path = self._folder / STAGING / name
        try:
            _write(path, self._validator.schema, rows)
        except OSError as error:
            msg = f"rows cannot be staged in {path}: {error.strerror or error}"
            remedy = "free memory below the folder, or write smaller epochs"
            raise StorageFailed(msg, remedy=remedy) from error

    def discard(self) -> None:
        self._rows = []


def _write(
    path: Path, schema: pa.Schema, rows: Sequence[tuple[int, SoundRows]]
) -> None:
    """Write rows to a file, whole or not at all."""
    temporary = path.with_suffix(".tmp")
    try:
        with (
            pa.OSFile(str(temporary), "wb") as sink,
            pa.ipc.new_stream(sink, schema) as writer,
        ):
            for partition, one in rows:
                metadata = {_PARTITION: str(partition)}
                writer.write_batch(one.batch, custom_metadata=metadata)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class StagedRows:
    """The rows of the attempts of one epoch, until they are in the rings.

    Args:
        attempts: As they were sealed.
        folder: Of the topic.
        validator: Of the topic.
        incarnation: Of the topic.
        most: Bytes that a file may have.

    Raises:
        CorruptData: data_loss; a name or a file is not that of a stage.
    """

    def __init__(
        self,
        attempts: Sequence[Staged],
        folder: Path,
        validator: BatchValidator,
        incarnation: str,
        most: int,
    ) -> None:
        self._validator = validator
        self._most = most
        self._incarnation = incarnation
        self._attempts = attempts
        self._files = {
            attempt.attempt: [folder / STAGING / _name(file) for file in attempt.files]
            for attempt in attempts
        }

    def carried(self) -> list[str]:
        """The attempts that carry their rows."""
        return [one.attempt for one in self._attempts if one.rows is not None]

    def read(self, recent: Sequence[str]) -> Mapping[int, list[pa.RecordBatch]]:
        """The rows by partition.

        Args:
            recent: Attempts whose carried rows were appended already.

        Raises:
            MisuseError: misuse; what an attempt staged no longer exists.
            CorruptData: data_loss; a file is damaged.
        """
        found: dict[int, list[pa.RecordBatch]] = {}
        for attempt in self._attempts:
            for partition, batch in self._of(attempt, recent):
                found.setdefault(partition, []).append(batch)
        return found

    def _of(
        self, attempt: Staged, recent: Sequence[str]
    ) -> list[tuple[int, pa.RecordBatch]]:
        parts: list[tuple[int, pa.RecordBatch]] = []
        if attempt.rows is not None:
            of_another = attempt.rows.incarnation != self._incarnation
            if of_another or attempt.attempt in recent:
                raise _missing(attempt.attempt)
            for partition, rows in attempt.rows.parts:
                check_schema(rows.batch, self._validator.schema)
                parts.append((partition, rows.batch))
        for path in self._files[attempt.attempt]:
            try:
                parts += self._read(path)
            except FileNotFoundError:
                raise _missing(attempt.attempt) from None
        return parts

    def _read(self, path: Path) -> list[tuple[int, pa.RecordBatch]]:
        data = pa.py_buffer(self._bytes(path))
        parts: list[tuple[int, pa.RecordBatch]] = []
        try:
            check_messages(data, STREAM)
            with pa.ipc.open_stream(data) as reader:
                check_schema(
                    pa.RecordBatch.from_pylist([], reader.schema),
                    self._validator.schema,
                )
                for batch, metadata in reader.iter_batches_with_custom_metadata():
                    rows = self._validator.validated(batch)
                    partition = int((metadata or {})[_PARTITION])
                    parts.append((partition, rows.batch))
        except (pa.ArrowException, KeyError, ValueError, OSError) as error:
            raise _damaged(path, str(error)) from error
        return parts

    def _bytes(self, path: Path) -> bytes:
        path = path.absolute()
        try:
            fd, status = Folders(path.parent, Modes()).read(str(path))
        except CorruptData as error:
            raise _damaged(path, error.what) from error
        with os.fdopen(fd, "rb") as file:
            if status.st_size > self._most:
                what = f"it has {status.st_size} bytes, and rings have no room for them"
                raise _damaged(path, what)
            return file.read(self._most)

    def discard(self) -> None:
        """Remove the files."""
        for path in (path for paths in self._files.values() for path in paths):
            path.unlink(missing_ok=True)


def too_large(partition: int, size: int, capacity: int) -> MessageTooLarge:
    """The error of rows that have no room in a ring."""
    msg = f"the rows of an epoch for partition {partition} take {size} bytes of its "
    msg += f"ring, which has {capacity}"
    remedy = "write smaller epochs, or create the topic with a larger capacity"
    return MessageTooLarge(msg, remedy=remedy)


def sweep(folder: Path) -> int:
    """Remove staged files that were neither committed nor aborted for a day."""
    oldest, found = time.time() - _ABANDONED, 0
    for path in (folder / STAGING).iterdir():
        with suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                path.unlink()
                found += 1
    return found


def staged_bytes(folder: Path) -> int:
    """Bytes of all staged files."""
    found = 0
    for entry in os.scandir(folder / STAGING):
        with suppress(FileNotFoundError):
            found += entry.stat().st_size
    return found


def _name(file: Mapping[str, Any]) -> str:
    name = file.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        msg = f"a staged file has the name {name!r}"
        raise CorruptData(msg, remedy="abort the epoch, and write it again")
    return name


def _damaged(path: Path, why: str) -> CorruptData:
    msg = f"{path} is not a file of staged rows: {why}"
    return CorruptData(msg, remedy="abort the epoch, and write it again")


def _missing(attempt: str) -> MisuseError:
    msg = f"what attempt {attempt} staged no longer exists"
    return MisuseError(msg, remedy="abort the epoch and write it again")
