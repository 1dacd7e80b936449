"""Settings of a log on disk."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from streamfactory.arrowlog.disk.names import ARROW


@dataclass(frozen=True, slots=True)
class Settings:
    """How segments are written and read."""

    segment_size: int = 64 << 20
    """Size of a full segment, as its rows are in memory."""
    compression: str | None = None
    """``lz4`` or ``zstd``."""
    merge_files: int = 64
    """Number of small segments of one level that are merged."""
    check_values: bool = True
    """Whether values are checked when segments are read."""
    segment_format: str = "arrow"
    """``arrow`` or ``parquet``: of new topics, for as long as they exist."""

    inline_size: int = 32 << 10
    """Maximum bytes of the rows of an epoch that are stored within its record."""

    def carried_size(self, segment_format: str) -> int:
        """Return ``inline_size`` for a topic.

        Segments of Parquet are always files, because other programs read them.
        """
        return self.inline_size if segment_format == ARROW else 0

    def ipc_options(self) -> pa.ipc.IpcWriteOptions:
        """Return the options of Arrow's writers."""
        return pa.ipc.IpcWriteOptions(
            compression=self.compression, emit_dictionary_deltas=True
        )
