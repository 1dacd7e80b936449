"""Orders from a stream: a streaming table, and a sink for large ones."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from streamfactory.spark import stream_options

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    reader = spark.readStream.format("streamfactory")
    reader = reader.options(**stream_options("orders", spark=spark))
    return reader.option("startingOffsets", "earliest").load()


dp.create_sink("large", "streamfactory", stream_options("large", spark=spark))


@dp.append_flow(target="large")
def large_orders() -> DataFrame:
    return spark.readStream.table("orders").where("amount > 100")
