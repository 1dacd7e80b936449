"""Opens Parquet files of other programs in Arrow's reader.

For tables, the stream type `file`, and `publish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyarrow import parquet as pq

if TYPE_CHECKING:
    from collections.abc import Mapping


def open_foreign(
    source: Any, limits: Mapping[str, int], **settings: Any
) -> pq.ParquetFile:
    """Open a file.

    96-bit timestamps are read in microseconds. In nanoseconds, Arrow's default, years
    before 1678 and after 2261 become others.

    Args:
        source: As `pyarrow.parquet.ParquetFile` takes it.
        limits: See `footer_limits`.
        settings: Other arguments of `pyarrow.parquet.ParquetFile`.

    Raises:
        pa.ArrowException: The footer is invalid.
        OSError: As the system raises.
    """
    return pq.ParquetFile(
        source, coerce_int96_timestamp_unit="us", **limits, **settings
    )
