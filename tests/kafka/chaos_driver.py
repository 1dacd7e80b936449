"""Spark streams topic b into c, with executors of their own, until it is killed.

``python -m tests.kafka.chaos_driver ROOT BOOTSTRAP MODE``; MODE is ``follow``, or
``available`` (until all is read that was there). Tasks and commits are held where that
was ordered.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any

from tests.kafka.chaos_roles import Place
from tests.kafka.proving import STEPS
from tests.proving.java import quick_options

from streamfactory.spark import prepare_environment
from streamfactory.spark.sink import MicroBatchWriter
from streamfactory.spark.source import StreamFactorySource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType
    from tests.proving.holding import Holds

BATCHES = {"follow": 400, "available": 10_000}
"""Offsets of a batch, at most, by mode."""
EXECUTORS = 2


class HeldWriter(MicroBatchWriter):
    """Ours, but it may be held in a task and in the commit."""

    holds: Holds

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        message = super().write(iterator)
        self.holds.at("staged")
        return message

    def commit(
        self,
        messages: Sequence[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark's name
    ) -> None:
        self.holds.before(STEPS)
        super().commit(messages, batchId)
        self.holds.at("committed")


class HeldSource(StreamFactorySource):
    """Ours, whose writers may be held."""

    holds: Holds

    @classmethod
    def name(cls) -> str:
        return "held"

    def streamWriter(self, schema: StructType, overwrite: bool) -> MicroBatchWriter:
        super().streamWriter(schema, overwrite)
        writer = HeldWriter(self._config, schema, overwrite=overwrite)
        writer.holds = self.holds
        return writer


def main() -> None:
    root, bootstrap, mode = sys.argv[1:]
    place = Place(root, bootstrap, None)
    prepare_environment(local=True)
    spark = session()
    # The registration travels by value: so do attributes of the class.
    HeldSource.holds = place.holds("spark")
    spark.dataSource.register(HeldSource)
    try:
        source = place.stream("b") | {
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(BATCHES[mode]),
        }
        frame = spark.readStream.format("streamfactory").options(**source).load()
        rows = frame.selectExpr("value", "key as _key")
        writer = rows.writeStream.format("held").options(**place.stream("c"))
        writer = writer.option("checkpointLocation", str(place.file("checkpoint")))
        if mode == "available":
            writer = writer.trigger(availableNow=True)
        writer.start().awaitTermination()
    finally:
        spark.stop()


def session() -> SparkSession:
    """With executors that are processes of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's, of pandas 3
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder.master(f"local-cluster[{EXECUTORS},1,512]")
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": quick_options(),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            # Executors are killed as often as asked.
            "spark.deploy.maxExecutorRetries": "-1",
        }.items():
            builder = builder.config(key, value)
        made: SparkSession = builder.getOrCreate()
        from streamfactory.spark import register

        register(made)
    return made


if __name__ == "__main__":
    main()
