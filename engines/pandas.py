"""Streams in pandas: consecutive data frames of a limited number of rows.

Needs ``pip install 'streamfactory[pandas]'``.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from streamfactory.engines.installing import load
from streamfactory.engines.scans import StreamScan
from streamfactory.spi import MisuseError
from streamfactory.spi.arguments import COUNT, FLAG, takes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    import pyarrow.dataset as ds

    from streamfactory.engines.scans import ScanArguments
    from streamfactory.wiring.config.loading import StreamLike


@takes(rows=COUNT, arrow_types=FLAG)
def chunks(
    stream: StreamLike,
    *,
    rows: int = 65_536,
    filter: ds.Expression | None = None,
    arrow_types: bool = False,
    **how: Unpack[ScanArguments],
) -> Iterator[pd.DataFrame]:
    """The rows of a stream as data frames; holds one of them at a time.

    Args:
        stream: The name of a stream in the catalogue, or its properties.
        rows: That every frame but the last one has.
        filter: Arrow expression that matches the rows wanted.
        arrow_types: Whether columns keep Arrow's types, ``pandas.ArrowDtype``: exact,
            nulls included. Otherwise they have NumPy's, where whole numbers with
            nulls become floating-point ones.
        how: `ScanArguments`: start, columns, options, unbounded.

    Raises:
        MisuseError: misuse; ``rows`` is below 1, or a partition's end is unknown.
        NotInstalled: plugin; names the command that installs pandas.
        ConfigError: config; every problem at once.
        StreamError: The source's.
    """
    pandas = load("pandas")
    if rows < 1:
        msg = f"rows is {rows}"
        raise MisuseError(msg, remedy="use 1 or more")
    types: Any = pandas.ArrowDtype if arrow_types else None
    return _chunks(StreamScan(stream, how), rows, filter, types)


def _chunks(
    scan: StreamScan, rows: int, filter: ds.Expression | None, types: Any
) -> Iterator[pd.DataFrame]:
    held: list[pa.RecordBatch] = []
    count = 0
    with closing(scan.batches(filter=filter)) as batches:
        for batch in batches:
            rest = batch
            while count + rest.num_rows >= rows:
                missing = rows - count
                yield _frame([*held, rest.slice(0, missing)], types)
                held, count, rest = [], 0, rest.slice(missing)
            if rest.num_rows:
                held.append(rest)
                count += rest.num_rows
    if held:
        yield _frame(held, types)


def _frame(batches: list[pa.RecordBatch], types: Any) -> pd.DataFrame:
    frame: pd.DataFrame = pa.Table.from_batches(batches).to_pandas(types_mapper=types)
    return frame
