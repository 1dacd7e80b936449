"""What may be said of a log on disk."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Settings:
    """How segments are written and read."""

    segment_rows: int | None = None
    """A segment is full with so many rows."""
    segment_size: int = 64 << 20
    """A segment is full with so many bytes, as its rows are in memory."""
    segment_age: float | None = None
    """Seconds after which a segment takes no more rows, full or not."""
    compression: str | None = None
    """``lz4`` or ``zstd``."""
    merge_files: int = 64
    """So many small segments of a kind are merged to one."""
    check_values: bool = True
    """Whether values are checked when segments are read."""

    def ipc_options(self) -> pa.ipc.IpcWriteOptions:
        """For Arrow's writers."""
        return pa.ipc.IpcWriteOptions(
            compression=self.compression, emit_dictionary_deltas=True
        )
