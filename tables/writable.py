"""What a format implements for tables that are written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.tables.datafiles import DataFile, PartitionField
    from streamfactory.tables.evolving import Step
    from streamfactory.tables.form import Form
    from streamfactory.tables.markers import Marker
    from streamfactory.tables.places import TableFiles
    from streamfactory.tables.table import Piece, Table


class Seen(Protocol):
    """A table as of one of its commits. Immutable."""

    @property
    def identity(self) -> str:
        """An id that another table at the same place would not have."""

    @property
    def schema(self) -> pa.Schema:
        """Its columns, with the metadata that data files have."""

    @property
    def columns(self) -> str:
        """The same, as the format writes them."""

    @property
    def partitions(self) -> Sequence[PartitionField]:
        """By what its rows are divided among files."""

    @property
    def form(self) -> Form:
        """How its data files are written.

        Raises:
            Unsupported: misuse; a property of it has an unknown value.
        """


class LiveFile(NamedTuple):
    """A data file of a table as of a commit."""

    piece: Piece
    entry: object
    """As the format has it."""
    key: Hashable
    """Names it, and which of its rows are marked as deleted."""
    partition: Hashable
    is_marked: bool = False
    """Whether rows of it are marked as deleted."""


def by_partition(files: Iterable[LiveFile]) -> Mapping[Hashable, list[LiveFile]]:
    """The files of each partition, in their order."""
    found: dict[Hashable, list[LiveFile]] = defaultdict(list)
    for one in files:
        found[one.partition].append(one)
    return found


class Live(NamedTuple):
    """The data files of a table as of a commit."""

    table: Table
    """Reads them."""
    files: Sequence[LiveFile]
    places: TableFiles
    """Opens them."""


class Kind(Enum):
    """What a commit is for."""

    APPEND = "append"
    MERGE = "merge"
    """Rows were inserted, updated and deleted by key."""
    REPLACE = "replace"
    """All rows were replaced, or all of some partitions."""
    COMPACT = "compact"
    """Files were replaced; rows are the same."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a commit does to a table."""

    added: Sequence[DataFile] = ()
    removed: Sequence[LiveFile] = ()
    kind: Kind = Kind.APPEND
    writer_id: str | None = None
    marker: Marker | None = None
    """Of the writer; None without a writer id."""


class WritableTable(ABC):
    """What a format implements for tables that are written. Thread-safe."""

    @property
    @abstractmethod
    def storage(self) -> Storage:
        """Of the folder of data files; of a table that exists."""

    @abstractmethod
    def look(self) -> Seen:
        """The table as of its newest commit, looked up now.

        Raises:
            TopicNotFound: permanent; there is none.
            FormatRefused: permanent; it is none that can be written.
        """

    @abstractmethod
    def create(self, schema: pa.Schema) -> None:
        """Create the table; no error if another process was first.

        With the partitions that the option ``partition.by`` names.

        Raises:
            SchemaMismatch: permanent; the format lacks the type of a column.
        """

    @abstractmethod
    def check_type(self, step: Step) -> None:
        """Refuse a field that the format lacks, by its type or its name.

        Raises:
            SchemaMismatch: permanent.
        """

    @abstractmethod
    def widens(self, seen: Seen) -> bool:
        """Whether types of the table can be widened."""

    @abstractmethod
    def evolve(self, seen: Seen, steps: Sequence[Step]) -> bool:
        """Change the columns, in a commit without rows behind the one that was seen.

        Returns:
            False if there is another one: nothing was committed.
        """

    @abstractmethod
    def parse(self, columns: str) -> pa.Schema:
        """The schema of `Seen.columns`."""

    @abstractmethod
    def marker(self, seen: Seen, writer_id: str) -> Marker | None:
        """What the table keeps of a writer; None if nothing."""

    @abstractmethod
    def live(self, seen: Seen, *, keeps_rows: bool = False) -> Live:
        """The data files of the table as of a commit, which are to be replaced.

        Args:
            seen: As of that commit.
            keeps_rows: Whether rows stay the same.

        Raises:
            Unsupported: misuse; rows may not be changed.
        """

    @abstractmethod
    def within(
        self, seen: Seen, live: Iterable[LiveFile], files: Iterable[DataFile]
    ) -> list[LiveFile]:
        """The data files of the table that are in the partitions of other files.

        Args:
            seen: As of the commit.
            live: Those of the table.
            files: That were written for it.

        Raises:
            Unsupported: misuse; files of the table have other partition fields.
        """

    @abstractmethod
    def commit(self, seen: Seen, change: Change) -> bool:
        """Make the next commit behind the one that was seen.

        Returns:
            False if there is another one: nothing was committed.
        """

    def close(self) -> None:  # noqa: B027 - a table may hold nothing
        """Release what is open."""
