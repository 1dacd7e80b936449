"""Stages: where the rows of one attempt wait for the commit of their epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, final

from streamfactory.arrowlog.checks import check_schema
from streamfactory.spi import CorruptData, SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.values import Staged
    from streamfactory.spi import BatchValidator, SoundRows


class LogStage(ABC):
    """Stages the rows of one attempt, which cannot be read before the commit."""

    @abstractmethod
    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        """Stage rows of the log's schema.

        Raises:
            TopicNotFound: permanent; the partition does not exist.
            SchemaMismatch: permanent; the rows have another schema, or an invalid
                value.
        """

    @abstractmethod
    def seal(self, *, carried: bool = False) -> Staged:
        """End the attempt: its rows are as durable as the log is.

        Args:
            carried: Whether the result may carry rows itself, which are stored by their
                commit only. The caller commits it as it is: not after another
                program had it. A second commit of it is refused, but not one after it
                was discarded.
        """

    @abstractmethod
    def discard(self) -> None:
        """Discard rows that are not sealed; may be called twice."""


class SoundStage(LogStage):
    """Stages rows in this process: what is stored was validated.

    Args:
        validator: Of the log.
    """

    def __init__(self, validator: BatchValidator) -> None:
        self._validator = validator

    @final
    def append(self, partition: int, rows: pa.RecordBatch) -> None:
        check_schema(rows, self._validator.schema)
        try:
            sound = self._validator.validated(rows)
        except CorruptData as error:
            msg = f"rows cannot be written: {error.what}"
            remedy = "correct the program that created them"
            raise SchemaMismatch(msg, remedy=remedy) from error
        self.append_sound(partition, sound)

    @abstractmethod
    def append_sound(self, partition: int, rows: SoundRows) -> None:
        """Stage rows of the log's schema: the only way into a log.

        Raises:
            TopicNotFound: permanent; the partition does not exist.
            SchemaMismatch: permanent; the rows have another schema.
        """


class FileStage(ABC):
    """Stages files of another program, which cannot be read before the commit.

    The program writes Parquet files of one partition each into a folder. The stage
    moves them into the topic, checks them and returns them as the rows of one attempt.
    """

    folder: str
    """Absolute path of the folder, which the program creates, or its URL in an object
    store."""
    batch_rows: int
    """Maximum number of rows of a row group."""
    batch_bytes: int
    """Approximate maximum bytes of a row group."""
    file_rows: int
    """Maximum number of rows of a file."""
    compression: str | None
    """``lz4`` (raw) or ``zstd``."""
    counts: Mapping[int, tuple[int, int]]
    """Rows of all sealed files by partition, and their bytes as rows are in memory."""

    @abstractmethod
    def names(self, within: str = "") -> Sequence[str]:
        """Return the names in the folder, or in a folder within it."""

    @abstractmethod
    def seal(self, files: Sequence[tuple[int, str]]) -> Staged:
        """End the attempt: its rows are as durable as the log is.

        Args:
            files: Partition and path within the folder, in the order in which rows of a
                partition get their offsets.

        Raises:
            CorruptData: data_loss; a file is not a segment of the topic: it has other
                columns or encodings than readers accept.
            MessageTooLarge: permanent; a row group expands to more than readers accept,
                mostly for lists that are null or empty.
            TopicNotFound: permanent; a partition does not exist.
            MisuseError: misuse; a file is missing, or the folder was swept. Everything
                is discarded after an error.
        """

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the rows of all sealed files, with their values validated.

        Raises:
            CorruptData: data_loss; a value is invalid.
        """

    @abstractmethod
    def discard(self) -> None:
        """Discard everything that is not sealed; may be called twice."""
