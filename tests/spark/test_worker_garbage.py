"""Modules of a Python worker of Spark are exempt from its garbage collections."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType
    from tests.proving.sessions import Topic

REUSED = "SPARK_REUSE_WORKER"
PROGRAM = """
import gc, json, sys, weakref
from streamfactory.spark.workers import prepare_worker

class Ring:
    def __init__(self):
        self.self = self

def collected():
    gone = weakref.ref(Ring())
    gc.collect()
    return gone() is None

found = [gc.get_freeze_count()]
prepare_worker()
prepare_worker()
assert collected()
found.append(gc.get_freeze_count())
kept = [[] for _ in range(10_000)]  # objects, but no modules
assert collected()
found.append(gc.get_freeze_count())
import wave
assert collected()
found.append(gc.get_freeze_count())
assert collected()
print(json.dumps(found))
"""


class FrozenObjects(DataSource):
    """Rows of tasks: whether their worker has our modules, and its frozen objects."""

    @classmethod
    def name(cls) -> str:
        return "frozen-objects"

    def schema(self) -> str:
        return "ours boolean, frozen bigint"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _FrozenReader()


class _FrozenReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(number) for number in range(16)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bool, int]]:
        yield "streamfactory.spark.tasks" in sys.modules, gc.get_freeze_count()


def counts(environment: Mapping[str, str]) -> Any:
    """Frozen objects at first, after a collection, one more, and an import."""
    given = {key: value for key, value in os.environ.items() if key != REUSED}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**given, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return json.loads(done.stdout)


def test_a_collection_exempts_objects_once_for_each_import() -> None:
    before, first, same, more = counts({REUSED: "1"})
    assert before == 0
    assert first > 1_000
    assert same < first + 1_000
    assert more > same + 9_000  # those that stayed since


def test_a_program_that_is_no_worker_of_spark_exempts_nothing() -> None:
    assert counts({}) == [0, 0, 0, 0]


def test_workers_that_have_read_a_stream_exempt_its_modules(
    spark: SparkSession, topic: Topic
) -> None:
    topic.write(id=[1, 2, 3])

    rows = spark.read.format("streamfactory").options(**topic.options).load()
    assert rows.count() == 3
    spark.dataSource.register(FrozenObjects)
    tasks = spark.read.format(FrozenObjects.name()).load().collect()
    found = [row.frozen for row in tasks if row.ours]
    assert found
    assert min(found) > 1_000
