"""A program: two runs of a streaming query between topics of others. Prints JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from tests.distributions.journeys import ROWS

from streamfactory.spark import prepare_environment, register


def main() -> None:
    """Write numbers, copy them by Spark, twice, and print what arrived."""
    kind = sys.argv[1]
    harness_type = getattr(
        importlib.import_module(f"streamfactory_{kind}.harness"),
        f"{kind.capitalize()}Harness",
    )
    harness = harness_type(Path(tempfile.mkdtemp(dir=".")))
    harness.create(2)
    source = dict(harness.properties())
    target = harness_type(Path(tempfile.mkdtemp(dir=".")))
    target.create(2)
    sink = dict(target.properties())
    for properties in (source, sink):
        # Spark refuses secrets in the clear.
        secret = properties.pop(f"stream.{kind}.password", None)
        if secret is not None:
            os.environ["HARNESS_PASSWORD"] = secret
            properties[f"stream.{kind}.password"] = "${env:HARNESS_PASSWORD}"
    prepare_environment(local=True)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    register(spark)
    for run in range(2):
        first = run * ROWS
        harness.write(0, range(first, first + ROWS, 2))
        harness.write(1, range(first + 1, first + ROWS, 2))
        rows = (
            spark.readStream.format("streamfactory")
            .options(**source, startingOffsets="earliest")
            .load()
        )
        query = (
            rows.select("value")
            .writeStream.format("streamfactory")
            .options(**sink)
            .option("checkpointLocation", str(Path("checkpoint").absolute()))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    found = sorted(n for partition in target.visible().values() for n in partition)
    spark.stop()
    harness.close()
    target.close()
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
