"""Writes the Delta fixtures, by Delta's own Spark connector on Spark 4.1.

python -m tests.tables.writers.delta_spark FOLDER [NAME ...]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from tests.tables.writers.capture import Capture

if TYPE_CHECKING:
    from collections.abc import Callable

DELTA = "io.delta:delta-spark_2.13:4.2.0"
COLUMNS = """
    id INT, city STRING, name STRING, price DECIMAL(10,2), at TIMESTAMP, ts BIGINT
"""


def session(work: Path) -> SparkSession:
    """A Spark session with Delta."""
    options = {
        "spark.jars.packages": DELTA,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": (
            "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        ),
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.vacuum.parallelDelete.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master("local[1]").appName("fixtures")
    for key, value in options.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Table:
    """One Delta table, and the fixture that is made of it."""

    def __init__(self, spark: SparkSession, path: Path, **properties: str) -> None:
        self.spark, self.path = spark, path
        self.capture = Capture(path)
        self._properties = {f"delta.{key}": value for key, value in properties.items()}

    def create(self, more: str = "") -> None:
        """Creates the empty table and keeps the state."""
        pairs = ", ".join(
            f"'{key}' = '{value}'" for key, value in self._properties.items()
        )
        self.run(
            "create",
            f"CREATE TABLE @ ({COLUMNS}) USING delta {more} TBLPROPERTIES ({pairs})",
        )

    def run(self, name: str, statement: str) -> None:
        """Runs a statement, ``@`` standing for the table, and keeps the state."""
        self.spark.sql(statement.replace("@", f"delta.`{self.path}`"))
        self.keep(name)

    def keep(self, name: str) -> None:
        """Keeps the state: version, rows, and the changes by the change data feed."""
        version = self.spark.sql(f"DESCRIBE HISTORY delta.`{self.path}`").first()
        assert version is not None
        frame = self.spark.read.format("delta").load(str(self.path))
        rows = [row.asDict() for row in frame.collect()]
        rows.sort(key=lambda row: row["id"])
        facts: dict[str, object] = {"version": version["version"]}
        if self._properties.get("delta.enableChangeDataFeed") == "true":
            facts["changes"] = self._changes(version["version"])
        self.capture.state(name, rows, **facts)

    def _changes(self, version: int) -> list[list[object]]:
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        reader = reader.option("startingVersion", version)
        frame = reader.option("endingVersion", version).load(str(self.path))
        found = [[row["_change_type"], row["id"], row["ts"]] for row in frame.collect()]
        return sorted(found, key=str)


def values(*rows: tuple[int, str, str, int], more: str = "") -> str:
    """Rows of the tables as SQL."""
    return "VALUES " + ", ".join(
        f"({number}, '{city}', '{name}', {number}.{ts:02}, "
        f"TIMESTAMP '2026-01-02 03:04:05.{number:06}', {ts}{more})"
        for number, city, name, ts in rows
    )


def feed(spark: SparkSession, path: Path) -> Table:
    """Every kind of commit of a table with deletion vectors and a change data feed."""
    table = Table(
        spark, path, enableChangeDataFeed="true", enableDeletionVectors="true"
    )
    every_commit(table)
    return table


def no_feed(spark: SparkSession, path: Path) -> Table:
    """The same without deletion vectors and without a change data feed."""
    table = Table(spark, path, enableDeletionVectors="false")
    every_commit(table)
    return table


def every_commit(table: Table) -> None:
    """Inserts, updates, deletes, a merge, compaction and vacuum."""
    table.create("PARTITIONED BY (city)")
    first = [(1, "rome", "a", 1), (2, "rome", "b", 1), (3, "oslo", "c", 1)]
    table.run("insert", f"INSERT INTO @ {values(*first, (4, 'oslo', 'd', 1))}")
    table.run("insert more", f"INSERT INTO @ {values((5, 'rome', 'e', 2))}")
    table.run("update", "UPDATE @ SET name = 'a3', ts = 3 WHERE id = 1")
    table.run("delete", "DELETE FROM @ WHERE id = 3")
    source = values((2, "rome", "b5", 5), (4, "oslo", "d", 5), (6, "oslo", "f", 5))
    table.run(
        "merge",
        f"MERGE INTO @ t USING ({source} s(id, city, name, price, at, ts)) s "
        "ON t.id = s.id WHEN MATCHED AND s.id = 4 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )
    table.run("optimize", "OPTIMIZE @")
    table.run("new column", "ALTER TABLE @ ADD COLUMN note STRING")
    row = values((7, "rome", "g", 8), more=", 'new'")
    table.run("insert with the new column", f"INSERT INTO @ {row}")
    row = values((8, "oslo", "h", 9), more=", 'over'")
    table.run(
        "overwrite a partition",
        f"INSERT INTO @ REPLACE WHERE city = 'oslo' {row}",
    )
    table.run("vacuum", "VACUUM @ RETAIN 0 HOURS")
    row = values((9, "rome", "i", 10), more=", NULL")
    table.run("insert after vacuum", f"INSERT INTO @ {row}")


def renamed(spark: SparkSession, path: Path) -> Table:
    """Column mapping by name, with a column renamed and one dropped."""
    table = Table(
        spark, path, **{"columnMapping.mode": "name", "enableChangeDataFeed": "true"}
    )
    table.create()
    table.run("insert", f"INSERT INTO @ {values((1, 'rome', 'a', 1))}")
    table.run("rename", "ALTER TABLE @ RENAME COLUMN name TO title")
    table.run("update", "UPDATE @ SET title = 'b' WHERE id = 1")
    table.run("drop", "ALTER TABLE @ DROP COLUMN price")
    table.run("insert", "INSERT INTO @ VALUES (2, 'oslo', 'c', NULL, 5)")
    return table


TABLES: dict[str, Callable[[SparkSession, Path], Table]] = {
    "delta-feed": feed,
    "delta-no-feed": no_feed,
    "delta-mapped": renamed,
}


def main() -> None:
    """Writes the fixtures that the command line names, or all."""
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(TABLES)
    with tempfile.TemporaryDirectory() as work:
        spark = session(Path(work))
        for name in names:
            made = TABLES[name](spark, Path(work, name))
            made.capture.save(folder, f"{DELTA}, Spark {spark.version}")
        spark.stop()


if __name__ == "__main__":
    main()
