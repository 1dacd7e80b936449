"""What may be said of a log on disk."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Settings:
    """How segments are written and read."""

    segment_size: int = 64 << 20
    """A segment is full with so many bytes, as its rows are in memory."""
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
