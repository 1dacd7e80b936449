"""`push_table`, and the reader's half of a push table."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, Final, Self, final

import pyarrow as pa

from streamfactory.push import named
from streamfactory.push.channel import Channel
from streamfactory.push.kept import KeptRows
from streamfactory.push.merging import Arrival, Ordered, RoundRobin
from streamfactory.push.rows import RowFitter
from streamfactory.push.sink import PushSink
from streamfactory.spi import ConfigError
from streamfactory.spi.arguments import FLAG, TEXT, takes
from streamfactory.spi.ddl import columns_text
from streamfactory.spi.topics import topic_name_problem

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from streamfactory.push.merging import Merge
    from streamfactory.push.store import PushStatistics, PushStore

CAPACITY_BYTES: Final = 64 << 20
CAPACITY_BATCHES: Final = 1024
"""Default capacity of a lane."""
WRITE_TIMEOUT: Final = 300.0
"""Seconds."""


@takes(merge=TEXT, cast=FLAG, name=TEXT)
def push_table(
    schema: pa.Schema,
    *,
    capacity_bytes: int | None = None,
    capacity_batches: int | None = None,
    lanes: int = 1,
    merge: str = "arrival",
    cast: bool = False,
    keep: str | os.PathLike[str] | None = None,
    name: str | None = None,
    write_timeout: float = WRITE_TIMEOUT,
    read_timeout: float | None = None,
) -> tuple[PushSink, PushTable]:
    """Create a table that a program pushes into while a query reads it.

    Args:
        schema: Schema of all rows. Dictionaries and schemas without columns are
            allowed.
        capacity_bytes: Maximum queued bytes of a lane; 64 MiB by default. A larger
            batch is queued alone, when the lane is empty.
        capacity_batches: Maximum queued batches of a lane; 1,024 by default.
        lanes: Number of queues with their own capacity, for several producers.
        merge: The order in which lanes are read: ``arrival``, ``round-robin``, or
            ``ordered:`` and the name of a column by which each lane is sorted.
        cast: Whether columns are matched by name, and values of other types are
            converted, as those of every writer are: what would lose something is
            refused.
        keep: Keeps the rows, so that the table can be read repeatedly from its first
            row: ``memory``, or a folder for a permanent Arrow log. The table then has
            one lane without a capacity.
        name: Makes the table a topic of the stream type ``push``, while the sink or the
            table is referenced, or until another table gets the name.
        write_timeout: Default seconds that a write waits for room.
        read_timeout: Seconds that a reader waits for a batch; without it until the sink
            is closed, fails, or is garbage-collected.

    Returns:
        The sink for the producers, and the table for one reader.

    Raises:
        ConfigError: config; an argument is out of its range.
    """
    if not isinstance(schema, pa.Schema):
        msg = f"schema is of type {type(schema).__name__!r}"
        raise ConfigError(msg, remedy="use pyarrow.schema([...])")
    _check_seconds("write_timeout", write_timeout)
    if read_timeout is not None:
        _check_seconds("read_timeout", read_timeout)
    if name is not None and (problem := topic_name_problem(name)):
        msg = f"name {name!r} {problem}"
        raise ConfigError(msg)
    fitter = RowFitter(schema, cast=cast)
    if keep is not None:
        _refuse_with_keep(keep, capacity_bytes, capacity_batches, lanes, merge, name)
        kept = KeptRows(schema, keep)
        sink = PushSink(kept, fitter, 1, write_timeout)
        return sink, PushTable(kept, schema, read_timeout)
    size = CAPACITY_BYTES if capacity_bytes is None else capacity_bytes
    count = CAPACITY_BATCHES if capacity_batches is None else capacity_batches
    _check_count("capacity_bytes", size)
    _check_count("capacity_batches", count)
    _check_count("lanes", lanes)
    channel = Channel(_policy(merge, schema, lanes), lanes, size, count)
    sink = PushSink(channel, fitter, lanes, write_timeout)
    table = PushTable(channel, schema, read_timeout, is_named=name is not None)
    if name is not None:
        named.register(name, named.NamedTable(channel, schema, fitter), sink, table)
    return sink, table


@final
class PushTable:
    """The rows of a sink, for one reader.

    It has Arrow's C stream interface: pass it to DuckDB, Polars, DataFusion or pyarrow,
    or iterate over its batches with ``for`` or ``async for``. The first request for a
    batch starts the only scan. Stopping before the end, closing the table or deleting
    all references to it ends the scan: producers get `StopPushing`. As a context
    manager the table is closed at the end of the block, and an exception in the block
    is the cause of a `ReaderFailed` for the producers.

    Args:
        store: Source of the batches.
        schema: Schema of all batches.
        timeout: Seconds to wait for a batch; None for no limit.
        is_named: Whether a stream may read it after the table was garbage-collected.
    """

    def __init__(
        self,
        store: PushStore,
        schema: pa.Schema,
        timeout: float | None,
        *,
        is_named: bool = False,
    ) -> None:
        self.schema = schema
        """Schema of every batch, known before the first one."""
        self._store = store
        self._timeout = timeout
        if not is_named:
            weakref.finalize(self, store.abandon_table).atexit = False

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the batches as an Arrow reader.

        Raises:
            MisuseError: misuse; from the reader, where the table was read before.
            ProducerFailed: permanent; from the reader, after the last batch.
        """
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def close(self) -> None:
        """End reading: producers get `StopPushing`. May be called twice."""
        self._store.finish()

    @property
    def statistics(self) -> PushStatistics:
        """What passed so far."""
        return self._store.statistics()

    # Both reference the table, which would be garbage-collected before its reader
    # otherwise.

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._store.scan(self._timeout)

    def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        scan = self._store.scan_async(self._timeout)
        scan.table = self
        return scan

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()

    def __repr__(self) -> str:
        return f"<PushTable of {columns_text(self.schema)}>"

    def __enter__(self) -> Self:
        self._store.hold()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self._store.finish(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        self.__exit__(kind, error, None)


def _policy(merge: str, schema: pa.Schema, lanes: int) -> Merge:
    if merge == "arrival":
        return Arrival()
    if merge == "round-robin":
        return RoundRobin()
    kind, _, column = merge.partition(":")
    if kind == "ordered" and column:
        return Ordered(column, schema, lanes)
    msg = f"merge is {merge!r}"
    remedy = "use arrival, round-robin, or ordered: and the name of a column"
    raise ConfigError(msg, remedy=remedy)


def _check_count(option: str, value: Any) -> None:
    if not isinstance(value, int) or value < 1:
        msg = f"{option} is {value!r}"
        raise ConfigError(msg, remedy="use a whole number, 1 or more")


def _check_seconds(option: str, value: Any) -> None:
    if not isinstance(value, int | float) or value < 0:
        msg = f"{option} is {value!r}"
        raise ConfigError(msg, remedy="use seconds, 0 or more")


def _refuse_with_keep(
    keep: object,
    capacity_bytes: int | None,
    capacity_batches: int | None,
    lanes: int,
    merge: str,
    name: str | None,
) -> None:
    given = {
        "capacity_bytes": capacity_bytes is not None,
        "capacity_batches": capacity_batches is not None,
        "lanes": lanes != 1,
        "merge": merge != "arrival",
        "name": name is not None,
    }
    is_place = isinstance(keep, str) and (keep == "memory" or os.sep in keep)
    if not is_place and not isinstance(keep, os.PathLike):
        msg = f"keep is {keep!r}"
        raise ConfigError(msg, remedy="use memory, or a folder such as ./rows")
    for option, is_given in given.items():
        if is_given:
            msg = f"{option} has no effect on a table with keep="
            raise ConfigError(msg, remedy=f"leave {option} or keep out")
