"""Segments that are Arrow IPC files: written as they are in memory, and mapped."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.arrowlog.disk.expanding import Expansion
from streamfactory.arrowlog.disk.formats import (
    BatchesIn,
    BatchesOut,
    SegmentFormat,
    plain_times,
)
from streamfactory.arrowlog.disk.names import ARROW

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog.disk.formats import Times
    from streamfactory.arrowlog.disk.settings import Settings

_APPENDED: Final = b"appended"
"""Metadata key of merged batches: [first row, milliseconds] pairs, as JSON."""


class _Out(BatchesOut):
    def __init__(self, sink: Any, schema: pa.Schema, settings: Settings) -> None:
        options = settings.ipc_options()
        self._writer = pa.ipc.new_file(sink, schema, options=options)

    def write(self, rows: pa.RecordBatch, times: Times | None) -> None:
        metadata = None
        if times is not None:
            metadata = {_APPENDED: json.dumps(times, separators=(",", ":")).encode()}
        self._writer.write_batch(rows, custom_metadata=metadata)

    def close(self) -> None:
        self._writer.close()


class _In(BatchesIn):
    def __init__(self, file: Any, size: int, committed: Callable[[], int]) -> None:
        self._reader = pa.ipc.open_file(file)
        self._expansion = Expansion(file, size, committed)

    @property
    def rows(self) -> int:
        return int(self._reader.count_rows())

    def check(self, number: int) -> None:
        self._expansion.check(number)

    def read(self, number: int) -> pa.RecordBatch:
        return self._reader.get_batch(number)

    def times(self, number: int) -> tuple[Any, int] | None:
        self._expansion.check(number)
        found = self._reader.get_batch_with_custom_metadata(number)
        times = (found.custom_metadata or {}).get(_APPENDED)
        return None if times is None else (plain_times(times), found.batch.num_rows)


@final
class ArrowSegments(SegmentFormat):
    """Arrow IPC files with a footer. A segment has batches of any partition."""

    name = ARROW
    mixed = True

    def check_schema(self, schema: pa.Schema) -> None:
        """Accept every schema."""

    def create(self, sink: Any, schema: pa.Schema, settings: Settings) -> BatchesOut:
        return _Out(sink, schema, settings)

    def open(
        self, file: Any, size: int, schema: pa.Schema, committed: Callable[[], int]
    ) -> BatchesIn:
        return _In(file, size, committed)
