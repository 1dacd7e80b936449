"""The executor's half of reading: ranges by readers that stay from task to task."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark.definition import configured_again
from streamfactory.wiring.microbatch import Range, read_range
from streamfactory.wiring.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from streamfactory.spi import StreamConfig
    from streamfactory.wiring.reader import Reader

_IDLE: Final = 300.0
"""Seconds that an unused reader is kept; as Spark-Kafka keeps consumers."""
_MOST: Final = 64
"""Readers of one stream that are kept."""
_PATIENCE: Final = 120.0
"""Seconds that a task waits for messages that are planned."""

_Key = tuple[str, tuple[str, ...] | None]


@dataclass(slots=True)
class _Pooled:
    """One stream in this process, with the readers that nobody uses."""

    source: Source
    idle: dict[tuple[Any, ...], list[tuple[float, Reader]]] = field(
        default_factory=dict
    )
    used: float = 0.0


class ReaderPool:
    """The readers of one worker process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._streams: dict[_Key, _Pooled] = {}

    def take(self, key: _Key, config: StreamConfig, wanted: Range) -> Reader:
        """A reader: the one of the last task of this partition, or another."""
        with self._lock:
            if self._process != os.getpid():
                # Forked: what the parent holds is the parent's, to use and to close.
                self._process, self._inherited = os.getpid(), self._streams
                self._streams = {}
            self._evict()
            pooled = self._streams.get(key)
            if pooled is None:
                source = Source(configured_again(config), fields=key[1])
                pooled = self._streams[key] = _Pooled(source)
            pooled.used = time.monotonic()
            idle = pooled.idle.get((wanted.partition, wanted.incarnation))
            if idle:
                return idle.pop()[1]
            return pooled.source.reader(
                wanted.partition, incarnation=wanted.incarnation
            )

    def clock(self, key: _Key) -> Any:
        """The clock of a stream in use."""
        return self._streams[key].source.clock

    def give(self, key: _Key, wanted: Range, reader: Reader) -> None:
        """Keep a reader for the next task of its partition."""
        with self._lock:
            pooled = self._streams.get(key)
            if pooled is not None and sum(map(len, pooled.idle.values())) < _MOST:
                where = (wanted.partition, wanted.incarnation)
                pooled.idle.setdefault(where, []).append((time.monotonic(), reader))
                return
        reader.close()

    def close(self) -> None:
        """Close everything that nobody uses."""
        with self._lock:
            streams, self._streams = self._streams, {}
        for pooled in streams.values():
            _close(pooled)

    def _evict(self) -> None:
        oldest = time.monotonic() - _IDLE
        for key, pooled in list(self._streams.items()):
            for where, idle in list(pooled.idle.items()):
                for since, reader in idle:
                    if since < oldest:
                        reader.close()
                kept = [entry for entry in idle if entry[0] >= oldest]
                pooled.idle[where] = kept
                if not kept:
                    del pooled.idle[where]
            if pooled.used < oldest and not pooled.idle:
                del self._streams[key]
                _close(pooled)


def _close(pooled: _Pooled) -> None:
    for idle in pooled.idle.values():
        for _, reader in idle:
            reader.close()
    pooled.source.close()


_pool: Final = ReaderPool()


def read(
    config: StreamConfig,
    fields: Sequence[str] | None,
    wanted: Range,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in Spark's types.

    Args:
        config: Of the stream.
        fields: Columns wanted; None means all.
        wanted: Planned by the driver.
        schema: What Spark takes.
    """
    key = (config.digest(), None if fields is None else tuple(fields))
    reader = _pool.take(key, config, wanted)
    try:
        clock = _pool.clock(key)
        same = reader.schema.equals(schema)
        for batch in read_range(reader, wanted, timeout=_PATIENCE, clock=clock):
            if batch.num_rows:
                yield batch.rows if same else batch.rows.cast(schema)
    except BaseException:
        reader.close()  # after a failure nobody knows where it stands
        raise
    _pool.give(key, wanted, reader)
