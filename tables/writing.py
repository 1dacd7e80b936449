"""Appends epochs to tables: the producer factory and the committer of every format.

A task stages data files beside the table. The committer makes one commit of all of
them, with a `Marker`: writer, epoch and source position, which the format keeps in the
table itself. A format implements `WritableTable`.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, final

from streamfactory.arrowlog.decoding import (
    InvalidValue,
    list_of,
    mapping_of,
    members_of,
    optional,
    text,
    whole,
)
from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.arrowlog.disk.places import object_storage
from streamfactory.arrowlog.disk.rules import scheme_of
from streamfactory.spi import (
    Claims,
    ClosedError,
    CorruptData,
    EpochVisibility,
    IncarnationChanged,
    LastCommit,
    Position,
    ProducerFactory,
    SchemaMismatch,
    StreamCommitter,
    StreamTimeout,
    Summary,
    TopicNotFound,
    Unsupported,
    WriterFenced,
)
from streamfactory.spi.backoff import Backoff
from streamfactory.tables.columns import NAMES
from streamfactory.tables.matching import bare
from streamfactory.tables.staging import Staged, TableWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.spi import (
        CommitMessage,
        StreamConfig,
        StreamWriter,
        WriteContext,
    )
    from streamfactory.tables.staging import DataFile

_PATIENCE: Final = 60.0
"""Seconds in which a commit is tried again while others commit first."""
_BACKOFF: Final = Backoff(0.01, 1.0)


@dataclass(frozen=True, slots=True)
class Marker:
    """What a table keeps of a writer."""

    instance: str
    """The instance that has claimed the writer."""
    epoch: int | None = None
    """Its last epoch; None before the first one."""
    position: str | None = None
    rows: int = 0
    sums: dict[str, int] | None = None
    attempts: tuple[str, ...] = ()
    """Those whose rows the last epoch has."""

    def last(self) -> LastCommit | None:
        """The last commit; None before the first one."""
        if self.epoch is None:
            return None
        position = None if self.position is None else Position.from_json(self.position)
        return LastCommit(self.epoch, position, Summary(self.rows, self.sums or {}))

    def to_json(self) -> str:
        """As text of one line."""
        found = {
            "version": _VERSION,
            "instance": self.instance,
            "epoch": self.epoch,
            "position": self.position,
            "rows": self.rows,
            "sums": {name: str(value) for name, value in (self.sums or {}).items()},
            "attempts": list(self.attempts),
        }
        return json.dumps(found, separators=(",", ":"))

    @classmethod
    def from_json(cls, content: str | bytes) -> Marker:
        """Parse a marker.

        Raises:
            CorruptData: data_loss; it is none.
        """
        try:
            found = _MARKER(json.loads(content))
            found["sums"] = {k: int(v) for k, v in found["sums"].items()}
        except (InvalidValue, ValueError, RecursionError) as error:
            what = f"what the table keeps of a writer is damaged: {error}"
            raise CorruptData(what) from None
        del found["version"]
        return cls(**{**found, "attempts": tuple(found["attempts"])})


_VERSION: Final = 1
_MARKER: Final = members_of(
    {
        "version": whole(_VERSION, _VERSION),
        "instance": text,
        "epoch": optional(whole()),
        "position": optional(text),
        "rows": whole(),
        "sums": mapping_of(text, text),
        "attempts": list_of(text),
    }
)


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
    def partitioned(self) -> Sequence[str]:
        """Names of the columns by whose values files are divided."""


class WritableTable(ABC):
    """What a format implements for tables that are appended to. Thread-safe."""

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

        Raises:
            SchemaMismatch: permanent; the format lacks the type of a column.
        """

    @abstractmethod
    def parse(self, columns: str) -> pa.Schema:
        """The schema of `Seen.columns`."""

    @abstractmethod
    def marker(self, seen: Seen, writer_id: str) -> Marker | None:
        """What the table keeps of a writer; None if nothing."""

    @abstractmethod
    def append(
        self,
        seen: Seen,
        files: Sequence[DataFile],
        writer_id: str | None,
        marker: Marker | None,
    ) -> bool:
        """Make the next commit behind the one that was seen.

        Returns:
            False if there is another one: nothing was committed.
        """

    def close(self) -> None:  # noqa: B027 - a table may hold nothing
        """Release what is open."""


@final
class TableCommitter(StreamCommitter):
    """Appends whole epochs to a table. See `StreamCommitter`."""

    def __init__(self, factory: TableProducerFactory, writer_id: str | None) -> None:
        self._factory = factory
        self._writer_id = writer_id
        self._instance = uuid.uuid4().hex
        self._claimed = False
        self._tried: set[str] = set()
        """Attempts whose commit was tried: their files may belong to the table."""

    def commit(
        self,
        epoch: int,
        messages: Sequence[CommitMessage],
        source_position: Position | None = None,
    ) -> LastCommit | None:
        staged = list({one.attempt: one for one in map(Staged.of, messages)}.values())
        summary = sum((message.summary for message in messages), Summary())
        marker = Marker(
            self._instance,
            epoch,
            None if source_position is None else source_position.to_json(),
            summary.rows,
            dict(summary.sums),
            tuple(one.attempt for one in staged),
        )
        table = self._factory.table()
        files = [file for one in staged for file in one.files]
        for _ in _tries(f"epoch {epoch}"):
            seen = self._factory.look()
            held = self._held(seen, epoch)
            if held is not None and held.epoch is not None and held.epoch >= epoch:
                self.last()  # claims
                self._remove(staged, held)
                return held.last()
            for one in staged:
                check_staged(one, seen, table)
            self._tried.update(marker.attempts)
            if table.append(seen, files, self._writer_id, marker):
                self._claimed = True
                break
        return None

    def abort(self, epoch: int, messages: Sequence[CommitMessage]) -> None:
        held = None
        if self._writer_id is not None:
            try:
                seen = self._factory.look()
            except TopicNotFound:
                return  # and what was staged in it went with it
            held = self._factory.table().marker(seen, self._writer_id)
        self._remove(list(map(Staged.of, messages)), held or Marker("", epoch))

    def last(self) -> LastCommit | None:
        if self._writer_id is None:
            return None
        table, held = self._factory.table(), None
        for _ in _tries(f"the claim of writer {self._writer_id!r}"):
            try:
                seen = self._factory.look()
            except TopicNotFound:
                return None
            held = table.marker(seen, self._writer_id)
            if self._claimed:  # once: an instance that was fenced stays fenced
                break
            claim = replace(held or Marker(""), instance=self._instance)
            if table.append(seen, (), self._writer_id, claim):
                self._claimed = True
                break
        return None if held is None else held.last()

    def _held(self, seen: Seen, epoch: int) -> Marker | None:
        """What the table keeps of this writer.

        Raises:
            WriterFenced: permanent; another instance has claimed it.
        """
        if self._writer_id is None:
            return None
        held = self._factory.table().marker(seen, self._writer_id)
        lost = held is None or held.instance != self._instance
        if self._claimed and lost:
            what = f"epoch {epoch}: another instance has claimed writer "
            raise WriterFenced(what + repr(self._writer_id))
        return held

    def _remove(self, staged: Sequence[Staged], held: Marker) -> None:
        """Remove files that belong to no commit; others are left."""
        for one in staged:
            if one.attempt not in {*held.attempts, *self._tried}:
                paths = [file.path for file in one.files]
                self._factory.table().storage.remove(paths)


def _tries(what: str) -> Iterator[None]:
    """One turn after the other, while others commit first.

    Raises:
        StreamTimeout: transient; it was tried for a minute.
    """
    until, failures = time.monotonic() + _PATIENCE, 0
    while time.monotonic() < until:
        time.sleep(_BACKOFF.pause(failures))
        yield
        failures += 1
    msg = f"{what}: other commits to the table came first for {_PATIENCE:g} s"
    raise StreamTimeout(msg, remedy="commit again")


def check_staged(staged: Staged, seen: Seen, table: WritableTable) -> None:
    """Refuse files that were written for another table, or for other columns.

    Columns that were added since, and may be null, are no obstacle.

    Raises:
        IncarnationChanged: data_loss; the table was made again.
        SchemaMismatch: permanent; a column was changed.
    """
    if staged.table != seen.identity:
        what = "the table was made again while it was written to"
        raise IncarnationChanged(what, expected=staged.table, found=seen.identity)
    if staged.columns == seen.columns:
        return
    before = {field.name: field for field in table.parse(staged.columns)}
    now = {field.name: field for field in seen.schema}
    for name in {**before, **now}:
        is_added = name not in before and now[name].nullable
        is_same = (
            name in before
            and name in now
            and before[name].equals(now[name], check_metadata=True)
        )
        if not is_added and not is_same:
            what = f"column {name!r} of the table was changed while rows were written"
            remedy = "write the epoch again: its rows are converted to the new columns"
            raise SchemaMismatch(what, remedy=remedy)


class TableProducerFactory(ProducerFactory):
    """Appends to one table, which its first writer creates. A format opens it."""

    CLAIMS: ClassVar = Claims(
        replayable=True,
        durable=True,
        shared=True,
        idempotent=True,
        epoch_visibility=EpochVisibility.WHOLE,
    )

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config)
        self._lock = threading.Lock()
        self._table: WritableTable | None = None
        self._identity: str | None = None
        self._closed = False

    @abstractmethod
    def open_table(self) -> WritableTable:
        """Open what the configuration names; there need not be a table yet."""

    def table(self) -> WritableTable:
        """The table, opened by the first call."""
        with self._lock:
            if self._closed:
                what = "the factory is closed"
                raise ClosedError(what)
            if self._table is None:
                self._table = self.open_table()
            return self._table

    def look(self) -> Seen:
        """The table as of now.

        Raises:
            TopicNotFound: permanent; there is none.
            IncarnationChanged: data_loss; it is another one than at the first look.
        """
        seen = self.table().look()
        with self._lock:
            expected = self._identity = self._identity or seen.identity
        if seen.identity != expected:
            what = "the table was made again while it was written to"
            raise IncarnationChanged(
                what,
                expected=expected,
                found=seen.identity,
                stream=self.config.name,
                remedy="to continue in the new one, open the sink again and name the "
                "epoch once with `epoch.adopt`",
            )
        return seen

    def create_writer(self, context: WriteContext) -> StreamWriter:
        try:
            seen = self.look()
        except TopicNotFound:
            if context.schema is None:
                raise
            check_names(context.schema)
            self.table().create(context.schema)
            seen = self.look()
        return TableWriter(
            self.table().storage,
            context,
            seen.schema,
            seen.partitioned,
            seen.identity,
            seen.columns,
        )

    def create_committer(self, writer_id: str | None) -> StreamCommitter:
        return TableCommitter(self, writer_id)

    def fetch_last_commit(self, writer_id: str) -> LastCommit | None:
        try:
            held = self.table().marker(self.look(), writer_id)
        except TopicNotFound:
            return None
        return None if held is None else held.last()

    def fetch_partition_count(self, topic: str) -> int:
        return 1

    def fetch_schema(self, topic: str) -> pa.Schema | None:
        try:
            return bare(self.look().schema)
        except TopicNotFound:
            return None

    def close(self) -> None:
        with self._lock:
            table, self._table, self._closed = self._table, None, True
        if table is not None:
            table.close()


def check_names(schema: pa.Schema) -> None:
    """Refuse columns that a stream of the table has beside the table's own.

    Raises:
        Unsupported: misuse.
    """
    taken = [name for name in NAMES if name in schema.names]
    if taken:
        what = f"a table cannot be created with the column {taken[0]!r}: rows are "
        what += "appended, updates and deletes are not applied"
        remedy = "read the source with change.columns=false, or select other columns"
        raise Unsupported(what, remedy=remedy)


def table_storage(config: StreamConfig, location: str) -> Storage:
    """The storage of the folder, or the URL, of a table that is written.

    Raises:
        NotInstalled: plugin; what object stores need is missing.
    """
    if scheme_of(location):
        return object_storage(config, location)
    return LocalStorage(Path(location))
