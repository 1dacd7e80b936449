"""Pushed rows that are kept, for a table that can be read repeatedly."""

from __future__ import annotations

import asyncio
import threading
import uuid
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog import MemoryLogStore
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.push.channel import producer_failed
from streamfactory.push.store import PushStatistics, PushStore
from streamfactory.spi import ClosedError, StreamTimeout, Summary

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

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
        MisuseError: misuse; the folder holds a table already.
    """

    def __init__(self, schema: pa.Schema, keep: str | os.PathLike[str]) -> None:
        store: MemoryLogStore | DiskLogStore = MemoryLogStore()
        self._release: Callable[[], object] = int
        if keep != "memory":
            folder = Path(keep)
            folder.mkdir(parents=True, exist_ok=True)
            store = DiskLogStore(LocalStorage(folder), Settings())
            # Called once: when both halves are closed, or nothing refers to them.
            self._release = weakref.finalize(self, store.close)
        self._log: Log = store.create(_TOPIC, schema)
        self._lock = threading.Lock()
        self._closed = self._table_closed = False
        self._failure: BaseException | None = None
        self._pushed = self._read = 0

    def put(
        self, lane: int, batches: Sequence[pa.RecordBatch], timeout: float | None
    ) -> None:
        """Append batches, in one step. Never waits for a reader."""
        stage = self._log.stage(uuid.uuid4().hex)
        for rows in batches:
            stage.append(lane, rows)
        staged = stage.seal()
        with self._lock:
            if self._closed:
                self._log.discard(staged)
                how = "closed" if self._failure is None else "failed"
                msg = f"the sink has {how}"
                raise ClosedError(msg)
            count = sum(rows.num_rows for rows in batches)
            self._log.commit(None, 0, [staged], summary=Summary(count))
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
                how = "closed" if self._failure is None else "failed"
                msg = f"the sink has {how} before"
                raise ClosedError(msg)
            self._closed, self._failure = True, cause
        self._after_end()

    def abandon_sink(self) -> None:
        """End the table: what was pushed stays readable."""
        # No lock: garbage collection may run this in a thread that holds it.
        self._failure = self._failure or (
            None
            if self._closed
            else ClosedError("the sink was garbage-collected before close()")
        )
        self._closed = True

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def end(self) -> End | None:
        """None: readers come and go."""
        return None

    def scan(self, timeout: float | None) -> Iterator[pa.RecordBatch]:
        """All rows from the first one, and those that are pushed meanwhile."""
        at, waited = 0, 0.0
        while True:
            if self._table_closed:
                msg = "the table is closed"
                raise ClosedError(msg)
            is_over = self._closed  # before the look: nothing is pushed after it
            found = self._log.read(0, at, max_rows=_MOST_ROWS, max_bytes=_MOST_BYTES)
            if found.rows is not None:
                at, waited = at + found.rows.num_rows, 0.0
                with self._lock:
                    self._read += found.rows.num_rows
                yield found.rows
            elif is_over:
                if self._failure is not None:
                    raise producer_failed(self._failure)
                return
            else:
                if timeout is not None and waited >= timeout:
                    msg = f"no batch was pushed within {timeout:g} s"
                    raise StreamTimeout(msg)
                self._log.wait(0, at, _LONGEST_WAIT)
                waited += _LONGEST_WAIT

    async def scan_async(self, timeout: float | None) -> AsyncGenerator[pa.RecordBatch]:
        """As `scan`; batches are read in threads of the event loop's pool."""
        scan = self.scan(timeout)
        while (rows := await asyncio.to_thread(next, scan, None)) is not None:
            yield rows

    def finish(self, failure: BaseException | None = None) -> None:
        """Close the table: nobody reads it any more. The sink may go on."""
        with self._lock:
            self._table_closed = True
        self._after_end()

    def abandon_table(self) -> None:
        """Nothing: rows are kept for as long as the sink is there."""

    def statistics(self) -> PushStatistics:
        with self._lock:
            return PushStatistics(self._pushed, self._read, 0, 0, 0.0, 0.0)

    def _after_end(self) -> None:
        """Have readers look, and close the files when both halves have ended."""
        self._log.wake()
        if self._closed and self._table_closed:
            self._release()
