"""Tables whose columns are renamed between opening on the driver and reading."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer
from tests.tables.mapped import Table, rename
from tests.tables.streams import table_properties

from streamfactory.spark.source import StreamFactorySource
from streamfactory.spark.versions import ADMISSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition

PAIR = (1, 2)
"""The values of the columns ``a`` and ``b`` of the first row."""


class Delta:
    def __init__(self, folder: Path) -> None:
        self._table = Table(folder / "t", "name")
        self.path = folder / "t"

    def append(self, a: int, b: int) -> None:
        rest = dict.fromkeys(("f", "s", "l", "m"))
        self._table.append({"a": a, "b": b, **rest, "p": "x"})

    def swap(self) -> None:
        """Give each of two columns the name of the other."""
        self._table.change(lambda columns: rename(columns, a="b", b="a"), "")

    def close(self) -> None:
        """Nothing is open."""


class Iceberg:
    def __init__(self, folder: Path) -> None:
        from pyiceberg.catalog.memory import InMemoryCatalog

        self._catalog = InMemoryCatalog("t", warehouse=f"file://{folder}")
        self._catalog.create_namespace("n")
        schema = pa.schema([("a", pa.int32()), ("b", pa.int32())])
        self._table = self._catalog.create_table("n.t", schema)
        self.path = folder / "n" / "t"

    def append(self, a: int, b: int) -> None:
        kind = pa.schema([("a", pa.int32()), ("b", pa.int32())])
        self._table.append(pa.Table.from_pylist([{"a": a, "b": b}], kind))

    def swap(self) -> None:
        for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
            with self._table.update_schema() as update:
                update.rename_column(old, new)

    def close(self) -> None:
        self._catalog.close()


TABLES: Final[dict[str, type[Delta | Iceberg]]] = {"delta": Delta, "iceberg": Iceberg}


@pytest.fixture(params=TABLES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(kind: str, tmp_path: Path) -> Iterator[Delta | Iceberg]:
    with closing(TABLES[kind](tmp_path)) as made:
        made.append(*PAIR)
        yield made


@pytest.fixture
def options(kind: str, table: Delta | Iceberg) -> dict[str, str]:
    return table_properties(kind, table.path)


def shipped(thing: Any) -> Any:
    """As Spark sends it to another process."""
    pickler = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    return pickler.loads(pickler.dumps(thing))  # type: ignore[no-untyped-call]


def pairs(reader: Any, partitions: Iterable[InputPartition]) -> list[tuple[int, int]]:
    """Columns ``a`` and ``b``, as tasks read them."""
    rows = [
        row
        for one in partitions
        for batch in shipped(reader).read(shipped(one))
        for row in batch.select(["a", "b"]).to_pylist()
    ]
    return [(row["a"], row["b"]) for row in rows]


def test_a_task_reads_the_columns_of_the_plan(
    options: dict[str, str], table: Delta | Iceberg
) -> None:
    schema = StreamFactorySource(options).schema()
    reader = StreamFactorySource(options).reader(schema)
    partitions = reader.partitions()
    table.swap()
    assert pairs(reader, partitions) == [PAIR]


def test_a_plan_has_the_columns_that_its_query_was_loaded_with(
    options: dict[str, str], table: Delta | Iceberg
) -> None:
    source = StreamFactorySource(options)
    schema = source.schema()
    table.swap()
    reader = shipped(source).reader(schema)
    assert pairs(reader, reader.partitions()) == [PAIR]
    # Another query has the columns as of its own opening.
    reader = StreamFactorySource(options).reader(schema)
    assert pairs(reader, reader.partitions()) == [PAIR[::-1]]


@pytest.mark.skipif(not ADMISSION, reason="PySpark 4.2 brought read limits")
def test_a_micro_batch_is_read_with_the_columns_of_its_driver(
    options: dict[str, str], table: Delta | Iceberg
) -> None:
    source = StreamFactorySource(options)
    schema = source.schema()
    # Spark pickles one reader for tasks, and plans with another one.
    reads, plans = (shipped(source).streamReader(schema) for _ in range(2))
    try:
        start = plans.initialOffset()
        table.swap()
        table.append(3, 4)
        end = plans.latestOffset(start, plans.getDefaultReadLimit())
        swapped = (4, 3)  # written to the columns that were called so by then
        assert pairs(reads, plans.partitions(start, end))[-1] == swapped
    finally:
        plans.stop()


def test_a_query_on_spark_reads_the_columns_of_its_load(
    spark: SparkSession, options: dict[str, str], table: Delta | Iceberg
) -> None:
    def load() -> DataFrame:
        return spark.read.format("streamfactory").options(**options).load()

    def found(frame: DataFrame) -> list[tuple[int, int]]:
        return [(row.a, row.b) for row in frame.collect()]

    planned, loaded = load().select("a", "b"), load()
    planned._jdf.queryExecution().executedPlan()
    table.swap()
    assert found(planned) == found(loaded) == [PAIR]
    assert found(load()) == [PAIR[::-1]]
