"""``streamfactory run`` that dies beside a table: for an environment with connectors.

    python -m tests.pipelines.connector_driver create
    python -m tests.pipelines.connector_driver run WHERE TABLE PASSES

``create`` makes the Iceberg table ``lake.db.rows``. ``run`` runs ``p.toml``, and kills
itself ``before`` or ``after`` it writes an epoch of a table, after so many epochs; or
``never``.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final

from pyspark.sql import SparkSession

from streamfactory.cli.main import run
from streamfactory.spark.pipelines import building

PACKAGES: Final = (
    "io.delta:delta-spark_2.13:4.2.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)
"""The releases for Spark 4.1."""
SETTINGS: Final = {
    "jars.packages": ",".join(PACKAGES),
    "sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
    "sql.catalog.lake.type": "hadoop",
    "sql.catalog.lake.warehouse": "warehouse",
    "databricks.delta.snapshotPartitions": "1",
}
"""Of Spark, each without ``spark.``."""


def create() -> None:
    """Create the Iceberg table: its connector creates none."""
    builder = SparkSession.builder.master("local[1]").config(
        "spark.ui.enabled", "false"
    )
    for key, value in SETTINGS.items():
        builder = builder.config(f"spark.{key}", value)
    spark = builder.getOrCreate()
    spark.sql("CREATE TABLE lake.db.rows (id BIGINT) USING iceberg").collect()
    spark.stop()


def arrange(where: str, name: str, passes: int) -> None:
    """Have the writing of a table kill this process group."""
    anyhow: Any = building
    real = anyhow.write_table
    left = passes

    def at(point: str, table: Any) -> None:
        nonlocal left
        if (point, table.name) != (where, name):
            return
        left -= 1
        if left < 0:
            os.killpg(0, signal.SIGKILL)

    def write(table: Any, *arguments: Any, **more: Any) -> None:
        at("before", table)
        real(table, *arguments, **more)
        at("after", table)

    anyhow.write_table = write


if __name__ == "__main__":
    if sys.argv[1] == "create":
        create()
    else:
        arrange(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        sys.exit(run(["run", "p.toml", "--json", "--master", "local[2]"]))
