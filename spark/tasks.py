"""Reading in tasks, with readers that are pooled between tasks."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from streamfactory.conversion.conform import Conformer
from streamfactory.spi import SchemaMismatch
from streamfactory.wiring.config.settled import load_plugins
from streamfactory.wiring.microbatch import Range, read_range
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from streamfactory.spi import Partition, StreamConfig
    from streamfactory.wiring.reading.reader import Reader

_IDLE: Final = 300.0
"""Seconds for which an idle reader is kept, as in Spark's Kafka source."""
_MOST: Final = 64
"""Maximum idle readers of one stream."""
_PATIENCE: Final = 120.0
"""Seconds for which a task waits for planned messages."""
_REMEDY: Final = "exclude the column: name the others in .schema(...)"

_Key = tuple[str, tuple[str, ...] | None, bytes | None]
_Place = tuple["Partition", str | None]


@dataclass(slots=True)
class _Stream:
    """One stream in this process, with its idle readers, oldest first."""

    source: Source
    idle: list[tuple[float, _Place, Reader]] = field(default_factory=list)
    users: int = 0
    used: float = 0.0
    failed: bool = False

    def take(self, place: _Place) -> Reader | None:
        """The last used reader of this partition."""
        for index in reversed(range(len(self.idle))):
            if self.idle[index][1] == place:
                return self.idle.pop(index)[2]
        return None

    def trim(self, oldest: float, most: int) -> None:
        """Close readers that are idle for too long, or above the limit."""
        while self.idle and (len(self.idle) > most or self.idle[0][0] < oldest):
            self.idle.pop(0)[2].close()

    def close(self) -> None:
        self.trim(0.0, 0)
        self.source.close()


class ReaderPool:
    """The readers of one worker process. Thread-safe.

    Args:
        monotonic: Clock in seconds; replaced in tests.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._inherited: list[dict[_Key, _Stream]] = []
        self._streams: dict[_Key, _Stream] = {}

    @contextmanager
    def acquire(
        self,
        config: StreamConfig,
        fields: Sequence[str] | None,
        wanted: Range,
        opening: bytes | None = None,
    ) -> Iterator[tuple[Source, Reader]]:
        """A reader for one range: that of the partition's last task, or a new one.

        If a task fails, its reader is closed, and its stream with all readers once they
        are unused, so that the next task starts with new ones.
        """
        columns = None if fields is None else tuple(fields)
        key = (config.digest(), columns, opening)
        place = (wanted.partition, wanted.incarnation)
        stream, reader = self._take(key, place, config)
        try:
            yield stream.source, reader
        except GeneratorExit:
            raise  # Spark needs no more rows: not a failure
        except BaseException:
            stream.failed = True
            raise
        finally:
            self._release(key, place, stream, reader)

    def close(self) -> None:
        """Close all unused readers and streams."""
        with self._lock:
            self._evict(float("inf"))

    def _take(
        self, key: _Key, place: _Place, config: StreamConfig
    ) -> tuple[_Stream, Reader]:
        with self._lock:
            if self._process != os.getpid():
                # After a fork the readers belong to the parent. They are kept
                # referenced, so that no finaliser closes them here.
                self._process = os.getpid()
                self._inherited.append(self._streams)
                self._streams = {}
            self._evict(self._monotonic() - _IDLE)
            stream = self._streams.get(key)
            if stream is None:
                _, fields, opening = key
                source = Source(
                    load_plugins(config), fields=fields, aside=False, opening=opening
                )
                source.throttle = None  # the driver limits batches
                stream = self._streams[key] = _Stream(source)
            stream.used = self._monotonic()
            try:
                reader = stream.take(place) or stream.source.reader(
                    place[0], incarnation=place[1]
                )
            except BaseException:
                self._drop(key, stream)
                raise
            stream.users += 1
            return stream, reader

    def _release(
        self, key: _Key, place: _Place, stream: _Stream, reader: Reader
    ) -> None:
        with self._lock:
            stream.users -= 1
            if not stream.failed:
                stream.used = self._monotonic()
                stream.idle.append((stream.used, place, reader))
                stream.trim(0.0, _MOST)
                return
            reader.close()
            self._drop(key, stream)

    def _drop(self, key: _Key, stream: _Stream) -> None:
        """Remove a stream; it is closed when its last user is done."""
        stream.failed = True
        if self._streams.get(key) is stream:
            del self._streams[key]
        if not stream.users:
            stream.close()

    def _evict(self, oldest: float) -> None:
        for key, stream in list(self._streams.items()):
            stream.trim(oldest, _MOST)
            if stream.used < oldest and not stream.users:
                del self._streams[key]
                stream.close()


pool: Final = ReaderPool()
"""The pool of this process."""


def read(
    config: StreamConfig,
    wanted: Range,
    schema: pa.Schema,
    opening: bytes | None = None,
    *,
    added: frozenset[str] = frozenset(),
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in Spark's types.

    Args:
        config: The stream's configuration.
        wanted: The range, planned by the driver.
        schema: Schema for Spark; other columns are not read.
        opening: Of the driver's source, which planned the range.
        added: `Source.added_columns` of it.
    """
    # Without columns the number of rows is still needed.
    fields = [name for name in schema.names if name not in added] or None
    with pool.acquire(config, fields, wanted, opening) as (source, reader):
        reader.begin_range()  # a pooled reader: error budgets are per range
        names = schema.names if schema.names != reader.schema.names else None
        fitting = Conformer(schema)
        for batch in read_range(reader, wanted, timeout=_PATIENCE, clock=source.clock):
            if batch.num_rows:
                rows = batch.rows if names is None else batch.rows.select(names)
                try:
                    rows = fitting.conform(rows)
                except SchemaMismatch as error:
                    error.remedy = error.remedy or _REMEDY
                    raise error.at(
                        stream=config.name,
                        partition=wanted.partition,
                        offset=batch.first_offset,
                    ) from None
                yield rows
