"""Staging of Parquet files that another program writes, such as Spark.

The program writes into a folder of the attempt. Its files are moved to names of
segments, and checked there: from then on they are staged files like all others.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from streamfactory.arrowlog.disk.leaves import leaves_of
from streamfactory.arrowlog.disk.names import ATTEMPT, PARQUET, STAGING, new_segment
from streamfactory.arrowlog.disk.segments import SegmentReader
from streamfactory.arrowlog.disk.staging import BATCH_BYTES, BATCH_ROWS, StagedFile
from streamfactory.arrowlog.disk.thrift import ExpandsTooFar
from streamfactory.arrowlog.stages import FileStage
from streamfactory.arrowlog.values import Staged
from streamfactory.spi import BatchValidator, CorruptData, MessageTooLarge, MisuseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from streamfactory.arrowlog.disk.parquet import RowGroup
    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.storage import Storage

_MARK: Final = "begun"
"""A file beside the folder of the program. The sweep removes it before anything else:
while it exists, nothing was swept."""
_WIDEST: Final = 4 * BATCH_BYTES
"""Maximum bytes of a row group in memory, without those of text and lists."""
_CHUNKS: Final = 20_000
"""Columns of row groups in a file: a footer has about 200 bytes for each, and Arrow
takes 240 times as much to read one."""
_FILES: Final = "files"
_PATH: Final = re.compile(r"(?:[\w=-][\w.=-]*/)?[\w=-][\w.=-]*", re.ASCII)
"""Paths within the folder: at most one folder deep, and no hidden ones."""
_TRIES: Final = 8
"""Attempts to begin while sweeps run."""
_REMEDY: Final = 'write the rows with format("streamfactory")'
_AGAIN: Final = "write the epoch again"


@final
class DiskFileStage(FileStage):
    """Stages the files of one attempt."""

    def __init__(
        self,
        attempt: str,
        storage: Storage,
        schema: pa.Schema,
        settings: Settings,
        check_partition: Callable[[int], object],
    ) -> None:
        if ATTEMPT.fullmatch(attempt) is None:
            msg = f"the attempt {attempt!r} is not a uuid"
            raise MisuseError(msg)
        self._attempt = attempt
        self._storage = storage
        self._schema = schema
        self._settings = settings
        self._check_partition = check_partition
        self._place = f"{STAGING}/{attempt}"
        self._sealed: list[StagedFile] = []
        self._moved: list[str] = []
        self.counts: dict[int, tuple[int, int]] = {}
        leaves = leaves_of(schema)
        width = sum(leaf.width for leaf in leaves)
        self.batch_rows = max(1, min(BATCH_ROWS, _WIDEST // width))
        # The program counts compressed bytes, readers need those that they expand to.
        self.batch_bytes = BATCH_BYTES // (4 if settings.compression else 1)
        # Of rows that are short, whose row groups are full.
        self.file_rows = self.batch_rows * max(1, _CHUNKS // len(leaves))
        self.compression = settings.compression
        self._begin()
        self.folder = f"{storage.location}/{self._place}/{_FILES}"

    def _begin(self) -> None:
        for left in reversed(range(_TRIES)):
            try:
                self._storage.create(f"{self._place}/{_MARK}").finish()
            except FileNotFoundError:  # a sweep found the folder without the mark
                if not left:
                    raise
            else:
                return

    def names(self, within: str = "") -> Sequence[str]:
        folder = f"{self._place}/{_FILES}"
        if within:
            folder = f"{folder}/{_checked(within)}"
        return sorted(self._storage.names(folder))

    def seal(self, files: Sequence[tuple[int, str]]) -> Staged:
        try:
            self._storage.prepare("data")
            for partition, path in files:
                self._check_partition(partition)
                self._add(partition, path)
            # Last: what was moved before the sweep began is complete.
            self._storage.size(f"{self._place}/{_MARK}")
        except FileNotFoundError as error:
            self.discard()
            msg = f"the staged files of attempt {self._attempt} no longer exist"
            raise MisuseError(msg, remedy=_AGAIN) from error
        except BaseException:
            self.discard()
            raise
        self._moved = []
        self._remove_folder()
        plain = tuple(file.to_plain() for file in self._sealed)
        return Staged(self._attempt, plain)

    def batches(self) -> Iterator[pa.RecordBatch]:
        sizes = {file.name: file.size for file in self._sealed}
        storage = self._storage
        reader = SegmentReader(
            storage.location,
            storage.open,
            self._schema,
            BatchValidator(self._schema),
            sizes.__getitem__,
        )
        try:
            for file in self._sealed:
                for _, first, counts, _ in file.runs:
                    for number, rows in enumerate(counts, first):
                        yield reader.batch(file.name, number, rows)
        finally:
            reader.close()

    def discard(self) -> None:
        self._storage.remove(self._moved)
        self._moved = []
        self._remove_folder()

    def _add(self, partition: int, path: str) -> None:
        """Move a file into the topic and check it."""
        name = new_segment(PARQUET)
        self._moved.append(name)
        stored = self._storage.adopt(f"{self._place}/{_FILES}/{_checked(path)}", name)
        groups = self._checked_groups(name, path)
        if not groups:  # Spark writes such a file where there are no rows
            self._storage.remove([self._moved.pop()])
            return
        counts, memory = [g.rows for g in groups], sum(g.size for g in groups)
        full = memory >= self._settings.segment_size
        run = (partition, 0, counts, memory)
        self._sealed.append(StagedFile(self._attempt, name, stored, full, [run]))
        rows, size = self.counts.get(partition, (0, 0))
        self.counts[partition] = rows + sum(counts), size + memory

    def _checked_groups(self, name: str, path: str) -> Sequence[RowGroup]:
        # Loads Arrow's Parquet library, which other topics do not need.
        from streamfactory.arrowlog.disk.parquet import check_file

        file, _ = self._storage.open(name)
        try:
            return check_file(file, file.size(), self._schema)
        except ExpandsTooFar as error:
            msg = f"{self.folder}/{path}: {error}, mostly for lists that are null or "
            raise MessageTooLarge(msg + "empty", remedy=_REMEDY) from error
        except (pa.ArrowException, OSError, ValueError) as error:
            msg = f"{self.folder}/{path} cannot be a segment of the topic: {error}"
            raise CorruptData(msg, remedy=_REMEDY) from error
        finally:
            file.close()

    def _remove_folder(self) -> None:
        self._storage.remove([f"{self._place}/{_MARK}"])
        self._storage.remove_folder(self._place)


def _checked(path: str) -> str:
    """Refuse a path that leads out of the folder, or to a hidden file."""
    if _PATH.fullmatch(path) is None:
        msg = f"a staged file has the name {path!r}"
        raise CorruptData(msg, remedy=_AGAIN)
    return path


def sweep_attempts(storage: Storage, seconds: float) -> None:
    """Remove the folders of attempts that ended neither way.

    A folder without its mark is a rest: of a sweep, or of a task that wrote after it.

    Args:
        storage: Of the topic.
        seconds: Age from which on an attempt is abandoned.
    """
    if not storage.adopts:
        return
    for attempt in storage.names(STAGING):
        place = f"{STAGING}/{attempt}"
        if ATTEMPT.fullmatch(attempt) is None:
            continue
        if storage.ages(place).get(_MARK, seconds) >= seconds:
            storage.remove([f"{place}/{_MARK}"])
            storage.remove_folder(place)
