"""Writes the Hudi fixtures, by Hudi's own Spark bundle on Spark 3.5.

python -m tests.tables.writers.hudi_spark FOLDER [NAME ...]
"""

from __future__ import annotations

import datetime as dt
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from tests.tables.writers.capture import Capture

if TYPE_CHECKING:
    from collections.abc import Callable

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.0.2"
COLUMNS = (
    "id int, city string, name string, price decimal(10,2), at timestamp, ts bigint"
)
SMALL = {
    # The default bloom filter takes 430 kB of each base file.
    "hoodie.index.bloom.num_entries": "50",
    "hoodie.bloom.index.filter.type": "SIMPLE",
}
_EVOLVES = "hoodie.schema.on.read.enable"
ALONE = {
    "hoodie.metadata.enable": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.compact.inline.max.delta.commits": "1",
}


def session(work: Path) -> SparkSession:
    """A Spark session with Hudi's bundle."""
    options = {
        "spark.jars.packages": BUNDLE,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": (
            "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
        ),
        "spark.sql.catalog.spark_catalog": (
            "org.apache.spark.sql.hudi.catalog.HoodieCatalog"
        ),
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
    """One Hudi table, and the fixture that is made of it."""

    def __init__(
        self, spark: SparkSession, path: Path, kind: str, **options: str
    ) -> None:
        self.spark, self.path = spark, path
        self.capture = Capture(path)
        by_city = options.pop("partitioned", "yes") == "yes"
        self.options = {
            "hoodie.table.name": path.name.replace("-", "_"),
            "hoodie.datasource.write.table.type": kind,
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.precombine.field": "ts",
            "hoodie.datasource.write.partitionpath.field": "city" if by_city else "",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.reconcile.schema": "true",
            "hoodie.embed.timeline.server": "false",
            **{
                f"hoodie.{action}.shuffle.parallelism": "1"
                for action in ("insert", "upsert", "delete", "bulkinsert")
            },
            **{key.replace("__", "."): value for key, value in options.items()},
        }
        if not by_city:
            self.options["hoodie.datasource.write.keygenerator.class"] = (
                "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
            )

    def write(
        self, name: str, operation: str, rows: list[Any], columns: str = COLUMNS
    ) -> None:
        """Writes rows by an operation and keeps the state."""
        frame = self.spark.createDataFrame(rows, columns)
        writer = frame.write.format("hudi").options(**self.options)
        writer = writer.option("hoodie.datasource.write.operation", operation)
        writer.mode("append").save(str(self.path))
        self.keep(name)

    def call(self, name: str, procedure: str, arguments: str = "") -> None:
        """Calls a procedure of the table and keeps the state."""
        pairs = [f"{key}={value}" for key, value in self.options.items() if value]
        small = ",".join(pairs)
        arguments = arguments.replace("OPTIONS", f"options => '{small}'")
        self.spark.sql(f"CALL {procedure}(path => '{self.path}'{arguments})").collect()
        self.keep(name)

    def roll_back(self, name: str) -> None:
        """Rolls the last commit back and keeps the state."""
        files = Path(self.path, ".hoodie/timeline").glob("*_*.commit")
        instant = max(file.name for file in files).partition("_")[0]
        table = self.options["hoodie.table.name"]
        self.spark.sql(f"CREATE TABLE {table} USING hudi LOCATION '{self.path}'")
        self.spark.sql(
            f"CALL rollback_to_instant(table => '{table}', instant_time => '{instant}')"
        ).collect()
        self.keep(name)

    def alter(self, name: str, change: str) -> None:
        """Changes the columns of the table by its ids and keeps the state."""
        table = self.options["hoodie.table.name"]
        self.spark.sql(
            f"CREATE TABLE IF NOT EXISTS {table} USING hudi LOCATION '{self.path}'"
        )
        self.spark.sql(f"ALTER TABLE {table} {change}")
        self.keep(name)

    def keep(self, name: str) -> None:
        """Keeps the state, with the rows that Hudi reads."""
        self.spark.catalog.clearCache()
        reader = self.spark.read.format("hudi")
        if _EVOLVES in self.options:
            reader = reader.option(_EVOLVES, "true")
        frame = reader.load(str(self.path))
        rows = [row.asDict() for row in frame.collect()]
        # Where a row's file lies changes with clustering and says nothing to a test.
        for row in rows:
            del row["_hoodie_file_name"], row["_hoodie_commit_seqno"]
        rows.sort(key=lambda row: (row["id"], row["city"]))
        self.capture.state(name, rows)


def row(number: int, city: str, name: str, ts: int, *more: object) -> Any:
    """A row of the tables."""
    at = dt.datetime(2026, 1, 2, 3, 4, 5, number, dt.UTC)
    return (number, city, name, Decimal(f"{number}.{ts:02}"), at, ts, *more)


def copy_on_write(spark: SparkSession, path: Path) -> Table:
    """Every kind of commit of a copy-on-write table, and a rollback."""
    table = Table(spark, path, "COPY_ON_WRITE", **ALONE, **SMALL)
    first = [row(1, "rome", "a", 1), row(2, "rome", "b", 1)]
    first += [row(3, "oslo", "c", 1), row(4, "oslo", "d", 1)]
    table.write("insert", "insert", first)
    table.write("upsert", "upsert", [row(1, "rome", "a2", 2), row(5, "rome", "e", 2)])
    table.write("delete", "delete", [row(3, "oslo", "c", 3)])
    scheduled = ", op => 'scheduleAndExecute', OPTIONS"
    table.call("clustering", "run_clustering", scheduled)
    wide = f"{COLUMNS}, note string"
    late = [row(2, "rome", "b5", 5, "new"), row(6, "oslo", "f", 5, None)]
    table.write("new column", "upsert", late, wide)
    replaced = [row(1, "rome", "a6", 6, "w"), row(7, "rome", "g", 6, "w")]
    table.write("insert overwrite", "insert_overwrite", replaced, wide)
    # A write cleans as well; the procedure takes no path in this release.
    table.options["hoodie.clean.automatic"] = "true"
    table.options["hoodie.clean.commits.retained"] = "1"
    table.write("upsert and clean", "upsert", [row(4, "oslo", "d7", 7, "x")], wide)
    table.options["hoodie.clean.automatic"] = "false"
    gone = [row(0, "rome", "", 8, "")]
    table.write("delete partition", "delete_partition", gone, wide)
    table.write("upsert again", "upsert", [row(8, "rome", "h", 9, "y")], wide)
    table.options.update(
        {
            "hoodie.clean.automatic": "true",
            "hoodie.archive.automatic": "true",
            "hoodie.keep.min.commits": "2",
            "hoodie.keep.max.commits": "3",
        }
    )
    table.write("upsert and archive", "upsert", [row(4, "oslo", "d10", 10, "z")], wide)
    table.options["hoodie.clean.automatic"] = "false"
    table.options["hoodie.archive.automatic"] = "false"
    table.write("to roll back", "upsert", [row(9, "oslo", "i", 11, "z")], wide)
    table.roll_back("rollback")
    table.write("after rollback", "upsert", [row(10, "oslo", "j", 12, "z")], wide)
    return table


def merge_on_read(spark: SparkSession, path: Path, **options: str) -> Table:
    """Log files with updates and deletes, compaction, clustering and cleaning."""
    table = Table(spark, path, "MERGE_ON_READ", **ALONE, **SMALL, **options)
    first = [row(1, "rome", "a", 1), row(2, "rome", "b", 1)]
    first += [row(3, "oslo", "c", 1), row(4, "oslo", "d", 1)]
    table.write("insert", "insert", first)
    table.write("update in logs", "upsert", [row(1, "rome", "a2", 2)])
    table.write("delete in logs", "delete", [row(3, "oslo", "c", 3)])
    mixed = [row(1, "rome", "a4", 4), row(5, "rome", "e", 4), row(4, "oslo", "d4", 4)]
    table.write("update and insert", "upsert", mixed)
    scheduled = ", op => 'scheduleAndExecute', OPTIONS"
    table.call("compaction", "run_compaction", scheduled)
    table.write("update after compaction", "upsert", [row(2, "rome", "b6", 6)])
    if "hoodie__write__table__version" not in options:
        table.call("clustering", "run_clustering", scheduled)
    table.write("delete after", "delete", [row(5, "rome", "e", 7)])
    table.options["hoodie.clean.automatic"] = "true"
    table.options["hoodie.clean.commits.retained"] = "1"
    table.write("upsert and clean", "upsert", [row(6, "oslo", "f", 8)])
    return table


def buckets(spark: SparkSession, path: Path) -> Table:
    """Inserts go to log files, without a base file until the compaction."""
    table = Table(
        spark,
        path,
        "MERGE_ON_READ",
        partitioned="no",
        hoodie__index__type="BUCKET",
        hoodie__bucket__index__num__buckets="2",
        **ALONE,
    )
    first = [row(number, "rome", f"a{number}", 1) for number in range(1, 9)]
    table.write("insert", "upsert", first)
    table.write("upsert", "upsert", [row(2, "oslo", "b", 2), row(9, "oslo", "c", 2)])
    table.write("delete", "delete", [row(3, "rome", "a3", 3)])
    # An older row than the table has: it changes nothing.
    table.write("late", "upsert", [row(2, "oslo", "late", 1)])
    table.call("compaction", "run_compaction", ", op => 'scheduleAndExecute', OPTIONS")
    table.write("upsert again", "upsert", [row(4, "oslo", "d", 5)])
    return table


def archived(spark: SparkSession, path: Path, **options: str) -> Table:
    """Appends whose commits are archived, while all their files are left."""
    table = Table(
        spark,
        path,
        "COPY_ON_WRITE",
        partitioned="no",
        # Each insert is a file group of its own.
        hoodie__parquet__small__file__limit="0",
        **{**ALONE, "hoodie.clean.automatic": "true"},
        **SMALL,
        **options,
    )
    table.options.update(
        {
            "hoodie.clean.commits.retained": "1",
            "hoodie.archive.automatic": "true",
            "hoodie.keep.min.commits": "2",
            "hoodie.keep.max.commits": "3",
            # Of table version 8: a merge of the archive's files.
            "hoodie.timeline.compaction.batch.size": "2",
        }
    )
    for number in range(1, 9):
        name = f"insert {number}"
        table.write(name, "insert", [row(number, "rome", f"a{number}", number)])
    return table


def defaults(spark: SparkSession, path: Path) -> Table:
    """A table without partitions, with the metadata table, as made by default."""
    table = Table(spark, path, "COPY_ON_WRITE", partitioned="no", **SMALL)
    table.write("insert", "insert", [row(1, "rome", "a", 1), row(2, "oslo", "b", 1)])
    table.write("upsert", "upsert", [row(2, "oslo", "b2", 2), row(3, "rome", "c", 2)])
    table.write("delete", "delete", [row(1, "rome", "a", 3)])
    return table


def evolved(spark: SparkSession, path: Path) -> Table:
    """A column that is renamed, and one that is dropped and added again."""
    spark.sql(f"SET {_EVOLVES}=true")
    table = Table(
        spark,
        path,
        "COPY_ON_WRITE",
        partitioned="no",
        hoodie__schema__on__read__enable="true",
        # Each insert is a file group of its own.
        hoodie__parquet__small__file__limit="0",
        **ALONE,
        **SMALL,
    )
    del table.options["hoodie.datasource.write.reconcile.schema"]
    columns = f"{COLUMNS}, note string"
    first = [row(1, "rome", "a", 1, "old"), row(2, "oslo", "b", 1, "old")]
    table.write("insert", "insert", first, columns)
    table.alter("rename", "RENAME COLUMN name TO title")
    columns = columns.replace("name", "title")
    table.write("renamed", "insert", [row(3, "rome", "c", 2, "old")], columns)
    table.alter("drop", "DROP COLUMN note")
    lacks = columns.replace(", note string", "")
    table.write("dropped", "insert", [row(4, "rome", "d", 3)], lacks)
    table.alter("add", "ADD COLUMNS (note string)")
    table.write("added again", "insert", [row(5, "oslo", "e", 4, "new")], columns)
    again = [row(n, "rome", "z", 5, "new") for n in range(1, 6)]
    table.write("rewritten", "insert_overwrite_table", again, columns)
    return table


TABLES: dict[str, Callable[[SparkSession, Path], Table]] = {
    "hudi-cow": copy_on_write,
    "hudi-mor": merge_on_read,
    "hudi-mor-6": lambda spark, path: merge_on_read(
        spark, path, hoodie__write__table__version="6"
    ),
    "hudi-buckets": buckets,
    "hudi-defaults": defaults,
    "hudi-archived": archived,
    "hudi-evolved": evolved,
    "hudi-archived-6": lambda spark, path: archived(
        spark, path, hoodie__write__table__version="6"
    ),
}


def main() -> None:
    """Writes the fixtures that the command line names, or all."""
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(TABLES)
    with tempfile.TemporaryDirectory() as work:
        spark = session(Path(work))
        for name in names:
            made = TABLES[name](spark, Path(work, name))
            made.capture.save(folder, f"{BUNDLE}, Spark {spark.version}")
        spark.stop()


if __name__ == "__main__":
    main()
