"""In a child: engines over a stream that is far larger than what they may hold.

Prints, as JSON, the most megabytes that each query held above what the process had
before it.
"""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionContext

from streamfactory import engines
from streamfactory.spi import (
    Backend,
    Claims,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    hookimpl,
)
from streamfactory.wiring.plugins.manager import PluginManager

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

BATCH: Final = 65_536
BATCHES: Final = 250
COLUMNS: Final = ("id", "a", "b", "c")
ROWS: Final = BATCH * BATCHES
"""Of four columns of 8 bytes: 524 MB."""
SCHEMA: Final = pa.schema([pa.field(name, pa.int64()) for name in COLUMNS])
PARTITION_0: Final = Partition("generated", 0)


class Consumer(PartitionLevelConsumer):
    """Each batch has memory of its own."""

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        count = min(limits.max_rows, BATCH, ROWS - start)
        columns = [pa.array(np.arange(start, start + count)) for _ in COLUMNS]
        rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        return Fetched(rows, start + count, latest=ROWS, held_from=0)


class Metadata(MetadataProvider):
    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        return [PartitionInfo(PARTITION_0, 0, ROWS)]

    def fetch_schema(self, topic: str) -> pa.Schema:
        return SCHEMA


class Factory(ConsumerFactory):
    CLAIMS: ClassVar = Claims(replayable=True)

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        return Consumer()

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        return Metadata()


class Plugin:
    @hookimpl
    def streamfactory_backend(self) -> Backend:
        return Backend(
            name="generated", doc="Rows.", spi_level=1, consumer_factory=Factory
        )


STREAM: Final = {
    "streamType": "generated",
    "stream.generated.topic.name": PARTITION_0.topic,
}


def queries() -> dict[str, Callable[[], int]]:
    """By engine: each uses all columns and answers the sum of one."""
    manager = PluginManager()
    manager.register(Plugin())
    how: Any = {"plugins": manager}
    dataset = engines.arrow.dataset(STREAM, **how)
    connection = duckdb.connect()
    engines.duckdb.register(connection, STREAM, name="rows", **how)
    context = SessionContext()
    engines.datafusion.register(context, STREAM, name="rows", **how)
    frame = engines.polars.scan(STREAM, **how)
    sums = ", ".join(f"sum({name})" for name in COLUMNS)

    def of_batches() -> int:
        return sum(total(batch["id"]) for batch in dataset.to_batches())

    def of_duckdb() -> int:
        return int(connection.sql(f"select {sums} from rows").fetchall()[0][0])

    def of_datafusion() -> int:
        batches = context.sql(f"select {sums} from rows").collect()
        return int(batches[0].column(0)[0].as_py())

    def of_datafusion_stream() -> int:
        async def add() -> int:
            found = 0
            async for batch in context.sql("select * from rows").execute_stream():
                found += total(batch.to_pyarrow()["id"])
            return found

        return asyncio.run(add())

    def of_polars() -> int:
        found = frame.select(pl.all().sum()).collect(engine="streaming")
        return int(found["id"][0])

    def of_pandas() -> int:
        chunks = engines.pandas.chunks(STREAM, rows=100_000, **how)
        return sum(int(chunk["id"].sum()) for chunk in chunks)

    def of_table() -> int:
        return total(dataset.to_table()["id"])

    return {
        "batches": of_batches,
        "duckdb": of_duckdb,
        "datafusion": of_datafusion,
        "datafusion stream": of_datafusion_stream,
        "polars": of_polars,
        "pandas": of_pandas,
        "collected": of_table,
    }


def total(column: pa.Array | pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py())


def megabytes(what: str) -> float:
    """``VmRSS``, now, or ``VmHWM``, the most since it was reset."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    line = next(line for line in lines if line.startswith(f"{what}:"))
    return int(line.split()[1]) / 1024


def main() -> None:
    most = {}
    for name, query in queries().items():
        gc.collect()
        before = megabytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        assert query() == ROWS * (ROWS - 1) // 2, name
        most[name] = megabytes("VmHWM") - before
    print(json.dumps(most))  # noqa: T201 - its answer


if __name__ == "__main__":
    main()
