"""Pushed rows that are kept, for a table that can be read repeatedly."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog import Epoch, MemoryLogStore
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.push.store import (
    AsyncScan,
    PushStatistics,
    PushStore,
    closed_error,
    producer_failed,
)
from streamfactory.spi import ClosedError, MisuseError, StreamTimeout, Summary

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog import Log
    from streamfactory.spi import End

_TOPIC: Final = "rows"
_MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 8 << 20
"""Of a batch that is read."""
_LONGEST_WAIT: Final = 0.25
"""Seconds between two looks for the end of the table."""


@final
class KeptRows(PushStore):
    """An Arrow log with one partition, of which every write is one commit. Thread-safe.

    Args:
        schema: Of all rows.
        keep: ``memory``, or a folder. There it is topic ``rows`` of a `file` stream.

    Raises:
        MisuseError: misuse; the folder contains a table already.
    """

    def __init__(self, schema: pa.Schema, keep: str | os.PathLike[str]) -> None:
        store: MemoryLogStore | DiskLogStore = MemoryLogStore()
        self._release: Callable[[], object] = int
        if keep != "memory":
            folder = Path(keep)
            folder.mkdir(parents=True, exist_ok=True)
            store = DiskLogStore(LocalStorage(folder), Settings())
            # Called once: when both halves are closed or garbage-collected.
            self._release = weakref.finalize(self, store.close)
        try:
            self._log: Log = store.create(_TOPIC, schema)
        except MisuseError as error:
            msg = f"the folder {str(keep)!r} contains a push table already"
            remedy = "read it as a stream of type file, or use another folder"
            raise MisuseError(msg, remedy=remedy) from error
        self._lock = threading.Lock()
        self._closed = self._table_closed = False
        self._failure: BaseException | None = None
        self._pushed = self._read = 0

    def put(
        self, lane: int, batches: Sequence[pa.RecordBatch], timeout: float | None
    ) -> None:
        """Append batches, in one step. Never waits for a reader."""
        stage = self._log.stage(uuid.uuid4().hex)
        try:
            for rows in batches:
                stage.append(lane, rows)
            staged = stage.seal(carried=True)
        except BaseException:
            stage.discard()
            raise
        with self._lock:
            if self._closed:
                self._log.discard(staged)
                raise closed_error(self._failure)
            count = sum(rows.num_rows for rows in batches)
            self._log.commit(Epoch(None, 0, [staged], Summary(count)))
            self._pushed += count

    async def put_async(
        self, lane: int, batches: Sequence[pa.RecordBatch], timeout: float | None
    ) -> None:
        """As `put`, in a thread of the event loop's pool."""
        await asyncio.to_thread(self.put, lane, batches, timeout)

    def try_put(self, lane: int, batches: Sequence[pa.RecordBatch]) -> bool:
        """As `put`: there is always room."""
        self.put(lane, batches, None)
        return True

    def close(self, lane: int | None = None) -> None:
        with self._lock:
            self._closed = True
        self._after_end()

    def fail(self, cause: BaseException) -> None:
        """End the table with an error, which each reader gets after the rows."""
        with self._lock:
            if self._closed:
                raise closed_error(self._failure)
            self._closed, self._failure = True, cause
        self._after_end()

    def abandon_sink(self) -> None:
        """End the table: what was pushed stays readable."""
        # No lock: garbage collection may run this in a thread that holds it.
        if not self._closed:
            self._failure = ClosedError("the sink was garbage-collected before close()")
            self._closed = True

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def end(self) -> End | None:
        """None: readers come and go."""
        return None

    def scan(self, timeout: float | None) -> Iterator[pa.RecordBatch]:
        """Return all rows from the first one, also those that are pushed meanwhile."""
        at = 0
        while (rows := self.read(at, timeout)) is not None:
            at += rows.num_rows
            yield rows

    def scan_async(self, timeout: float | None) -> AsyncScan:
        return _KeptScan(self, timeout)

    def read(self, at: int, timeout: float | None) -> pa.RecordBatch | None:
        """The rows from an offset on; None at the end.

        Raises:
            ClosedError: misuse; the table is closed.
            ProducerFailed: permanent.
            StreamTimeout: transient; nothing was pushed in time.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._table_closed:
                msg = "the table is closed"
                raise ClosedError(msg)
            is_over = self._closed  # read first: nothing is pushed after the end
            found = self._log.read(0, at, max_rows=_MOST_ROWS, max_bytes=_MOST_BYTES)
            if found.rows is not None:
                with self._lock:
                    self._read += found.rows.num_rows
                return found.rows
            if is_over:
                if self._failure is not None:
                    raise producer_failed(self._failure)
                return None
            if deadline is not None and time.monotonic() >= deadline:
                msg = f"no batch was pushed into the table within {timeout:g} s"
                raise StreamTimeout(msg)
            self._log.wait(0, at, _LONGEST_WAIT)

    def hold(self) -> None:
        """Nothing: scans end nothing."""

    def finish(self, failure: BaseException | None = None) -> None:
        """Close the table: it cannot be read any more. Writes stay allowed."""
        with self._lock:
            self._table_closed = True
        self._after_end()

    def abandon_table(self) -> None:
        """Nothing: rows are kept until sink and table are collected."""

    def statistics(self) -> PushStatistics:
        with self._lock:
            return PushStatistics(self._pushed, self._read, 0, 0, 0.0, 0.0)

    def _after_end(self) -> None:
        """Wake readers, and close the files when both halves have ended."""
        self._log.wake()
        if self._closed and self._table_closed:
            self._release()


@final
class _KeptScan(AsyncScan):
    """Reads in threads of the event loop's pool; a cancelled wait moves nothing."""

    def __init__(self, kept: KeptRows, timeout: float | None) -> None:
        self._kept: KeptRows | None = kept
        self._timeout = timeout
        self._at = 0

    async def __anext__(self) -> pa.RecordBatch:
        kept = self._kept
        if kept is None:
            raise StopAsyncIteration
        rows = await asyncio.to_thread(kept.read, self._at, self._timeout)
        if rows is None:
            raise StopAsyncIteration
        self._at += rows.num_rows
        return rows

    async def aclose(self) -> None:
        self._kept = None
