"""What a table format implements: commits, pieces and rows of one table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from streamfactory.spi import Unsupported

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.tables.layout import Layout
    from streamfactory.tables.matching import StreamColumns

INSERT = "insert"
UPDATE_BEFORE = "update_before"
UPDATE_AFTER = "update_after"
DELETE = "delete"
"""Kinds of change: the values of the column ``_change``."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table."""

    ordinal: int
    """Its place among the commits: rises from commit to commit, gaps are allowed. The
    same for every reader, whatever was cleaned meanwhile."""
    id: str
    """What users of the format call it: the column ``_commit``."""
    time_ms: int | None
    """When it was committed, milliseconds since the epoch, UTC."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that are read together: mostly a data file. Pickles.

    Equal for every reader: its place in the list of pieces, and its span, number the
    rows behind it.
    """

    path: str
    """Names it in errors."""
    span: int
    """Offsets that it takes: at least one for each of its rows."""
    size: int | None = None
    """Bytes on the medium, where known."""
    change: str = INSERT
    """Kind of its rows, where its chunks do not state one."""
    detail: Mapping[str, object] | None = None
    """What the format needs to read it."""


class Chunk(NamedTuple):
    """Some rows of a piece, in order."""

    rows: pa.RecordBatch
    """Columns of the table, as they were at the commit."""
    first: int
    """Number of the first row within the piece."""
    numbers: pa.Int64Array | None = None
    """Number of each row within the piece, where they are not consecutive."""
    changes: pa.StringArray | None = None
    """Kind of each row, where the piece has several."""


class Stored(NamedTuple):
    """A data file as other programs read it, by names and types of the table."""

    path: str
    """Absolute, in a folder of this machine."""
    rows: int
    """Rows of the file."""
    constants: Mapping[str, pa.Scalar]
    """Values of columns that the file does not have."""


class Oldest(NamedTuple):
    """The first commit that can still be listed."""

    ordinal: int
    changes: bool
    """Whether its changes can be read too, beside the snapshot as of it."""
    created: bool = False
    """Whether it created the table: no reader has a position before it. It is passed
    over where it wrote no rows."""


class PieceGone(Exception):
    """A data file of a commit no longer exists."""


class Table(ABC):
    """One table of one format. Thread-safe; nothing is cached beyond what is immutable.

    Commits are immutable: of one commit every call answers the same pieces, and every
    read of a piece the same rows in the same order. Commits that change no rows
    (compaction, clustering, cleaning) have no pieces of changes.
    """

    layout: Layout
    """How offsets are made of commits and rows."""
    columns: StreamColumns
    """The columns of its stream, known once `schema` was called."""

    @abstractmethod
    def identity(self) -> str:
        """An id that another table at the same place would not have.

        Raises:
            TopicNotFound: permanent; there is no table.
            FormatRefused: permanent; what is there is no table of this format, or
                one that cannot be read.
        """

    @abstractmethod
    def newest(self) -> Commit:
        """The last commit, looked up now.

        Raises:
            TopicNotFound: permanent; the table was removed.
        """

    @abstractmethod
    def oldest(self) -> Oldest:
        """The first commit as of which the table can still be listed.

        All later commits can be listed too, with their changes.
        """

    @abstractmethod
    def at_or_after(self, ordinal: int) -> Commit | None:
        """The first commit with this ordinal or a later one, looked up now.

        None where there is none yet. Called again and again by a reader that waits at
        the end of the table.

        Raises:
            DataLossError: data_loss; a commit in between is no longer listed.
        """

    @abstractmethod
    def count_commits(self, start: int, end: int) -> int:
        """Commits whose ordinals are between two, ``end`` exclusive.

        Answered from the list of commits: none of them is opened.
        """

    @abstractmethod
    def at_time(self, timestamp_ms: int) -> Commit | None:
        """The first commit at or after a time; every earlier one is earlier.

        None where there is none.
        """

    @abstractmethod
    def ordinal_of(self, commit: str) -> int:
        """The ordinal of a commit that a user names, by `Commit.id`.

        Raises:
            ConfigError: config; the text names no commit of this table.
        """

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Columns of the table as of its last commit, in the order of the table."""

    @abstractmethod
    def snapshot(self, commit: Commit) -> Sequence[Piece]:
        """The pieces of the table as of a commit, in the order that offsets count.

        Raises:
            DataLossError: data_loss; the commit is no longer listed.
        """

    @abstractmethod
    def changes(self, commit: Commit) -> Sequence[Piece]:
        """The pieces with the rows that a commit changed, in the order of offsets.

        Raises:
            DataLossError: data_loss; the commit is no longer listed.
            Unsupported: misuse; the table does not record which rows changed. The
                remedy says how it is turned on.
        """

    def has_changes(self, commit: Commit) -> bool:
        """Whether a commit changed rows; override it where that is cheaper to find."""
        return bool(self.changes(commit))

    @abstractmethod
    def read(
        self, piece: Piece, skip: int, fields: Sequence[str] | None, rows: int
    ) -> Generator[Chunk]:
        """The rows of a piece, chunk by chunk, holding one chunk at a time.

        Args:
            piece: From `snapshot` or `changes`.
            skip: Rows whose number is below this are left out.
            fields: Columns wanted; None means all. Others may be left out.
            rows: Rows that a chunk has at the most.

        Raises:
            PieceGone: The file was removed.
        """

    def stored(self, piece: Piece) -> Stored:
        """How other programs read the rows of a piece.

        Raises:
            PieceGone: The file was removed.
            Unsupported: misuse; they would read other rows, or other values.
        """
        what = "tables of this format cannot be scanned"
        raise Unsupported(what)

    def close(self) -> None:  # noqa: B027 - a table may hold nothing
        """Release what is open."""
