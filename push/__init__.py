"""Push tables: a program pushes batches, a query engine reads them while they arrive.

`push_table` returns a sink for the producers and a table for one reader. Both live in
one process. The table has Arrow's C stream interface, which DuckDB, Polars, DataFusion
and pyarrow read from without collecting the input first.
"""

from __future__ import annotations

from streamfactory.push.sink import PushLane, PushSink
from streamfactory.push.store import PushStatistics, StopPushing
from streamfactory.push.table import PushTable, push_table

__all__ = [
    "PushLane",
    "PushSink",
    "PushStatistics",
    "PushTable",
    "StopPushing",
    "push_table",
]
