"""Reads tables by other engines, in an environment that has them.

    python -m tests.tables.judging duckdb|spark REQUEST ANSWER

A request is a JSON file: a list of objects with ``kind`` (``delta`` or ``iceberg``),
``path`` (of the table; of Iceberg its metadata file) and ``version`` (of Iceberg the id
of a snapshot). The answer has for each the rows that `SELECT` returns.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

SELECT: Final = (
    "SELECT id, p, CAST(price AS STRING) AS price, "
    "CAST(seen AS STRING) AS seen, o.x AS x, o.l AS l FROM {} ORDER BY id"
)
"""Of a table that has all columns."""
FIRST: Final = (
    "SELECT id, p, CAST(price AS STRING) AS price, "
    "CAST(seen AS STRING) AS seen FROM {} ORDER BY id"
)
"""Of one before it has the column ``o``."""
_EXTENSIONS: Final = ("avro", "httpfs", "delta", "iceberg")
PACKAGES: Final = (
    "io.delta:delta-spark_2.13:4.2.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)


def by_duckdb(request: list[dict[str, Any]]) -> list[Any]:
    """The rows that DuckDB returns; its extensions come from the package registry."""
    import duckdb

    settings: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "allow_unsigned_extensions": "true",
    }
    with duckdb.connect(config=settings) as connection:
        for name in _EXTENSIONS:
            spec = find_spec(f"duckdb_extension_{name}")
            assert spec is not None
            assert spec.origin is not None
            found = Path(spec.origin).parent.glob("extensions/*/*.duckdb_extension")
            connection.execute(f"LOAD '{next(found)}'")
        answer = []
        for one in request:
            scan = f"delta_scan('{one['path']}', version := {one['version']})"
            if one["kind"] == "iceberg":
                snapshot = f"{one['version']}::UBIGINT"
                scan = f"iceberg_scan('{one['path']}', snapshot_from_id = {snapshot})"
            query = (SELECT if one["whole"] else FIRST).format(scan)
            answer.append(connection.execute(query).fetchall())
        return answer


def by_spark(request: list[dict[str, Any]]) -> list[Any]:
    """The rows that Spark's connectors return; the jars come from the registry."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog."
        "DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        answer = []
        for one in request:
            reader = spark.read.format(one["kind"])
            reader = reader.option("versionAsOf", one["version"])
            reader.load(one["path"]).createOrReplaceTempView("t")
            query = (SELECT if one["whole"] else FIRST).format("t")
            answer.append([list(row) for row in spark.sql(query).collect()])
        return answer
    finally:
        spark.stop()


if __name__ == "__main__":
    engine, source, target = sys.argv[1:]
    asked = json.loads(Path(source).read_text())
    rows = {"duckdb": by_duckdb, "spark": by_spark}[engine](asked)
    Path(target).write_text(json.dumps(rows))
