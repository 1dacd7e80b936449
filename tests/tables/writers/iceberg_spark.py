"""Writes the Iceberg fixtures, by Iceberg's own Spark runtime on Spark 4.0.

    python -m tests.tables.writers.iceberg_spark FOLDER [NAME ...]

Iceberg's metadata names absolute paths. They are kept with a folder of fixed length
(`capture.ROOT`), and Avro files without compression, so that a test replaces the
folder in the bytes.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
from pyspark.sql import SparkSession
from tests.tables.writers.capture import ROOT, Capture

if TYPE_CHECKING:
    from collections.abc import Callable

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0"
COLUMNS = """
    id INT, city STRING, name STRING, price DECIMAL(10,2), at TIMESTAMP, ts BIGINT
"""


def session(warehouse: Path) -> SparkSession:
    """A Spark session with an Iceberg catalog ``lake`` of the kind ``hadoop``."""
    extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    options = {
        "spark.jars.packages": RUNTIME,
        "spark.sql.extensions": extensions,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.session.timeZone": "UTC",
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
    """One Iceberg table, and the fixture that is made of it."""

    def __init__(
        self, spark: SparkSession, warehouse: Path, name: str, **properties: str
    ) -> None:
        self.spark, self._name = spark, name.replace("-", "_")
        path = warehouse / "db" / name
        assert len(str(path)) == len(ROOT), f"{len(str(path))} is not {len(ROOT)}"
        self.capture = Capture(path, change=self._relocate)
        pairs = {
            "write.parquet.compression-codec": "uncompressed",
            "write.delete.parquet.compression-codec": "uncompressed",
            **{key.replace("__", "."): value for key, value in properties.items()},
        }
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in pairs.items())
        self.run(
            "create",
            f"CREATE TABLE @ ({COLUMNS}) USING iceberg PARTITIONED BY (city) "
            f"TBLPROPERTIES ({listed})",
        )

    def run(self, name: str, statement: str) -> None:
        """Runs a statement, ``@`` standing for the table, and keeps the state."""
        here = f"lake.db.`{self.capture.table.name}`"
        self.spark.sql(statement.replace("@", here)).collect()
        self.keep(name)

    def call(self, name: str, procedure: str, arguments: str) -> None:
        """Calls a procedure of the table and keeps the state."""
        here = f"table => 'db.`{self.capture.table.name}`'"
        call = f"CALL lake.system.{procedure}({here}{arguments})"
        self.spark.sql(call).collect()
        self.keep(name)

    def keep(self, name: str) -> None:
        """Keeps the state: rows, snapshot and its operation, and the metadata file."""
        here = f"lake.db.`{self.capture.table.name}`"
        rows = [row.asDict() for row in self.spark.table(here).collect()]
        rows.sort(key=lambda row: row["id"])
        found = self.spark.sql(
            f"SELECT s.snapshot_id, s.operation FROM {here}.snapshots s "
            f"JOIN {here}.refs r ON s.snapshot_id = r.snapshot_id"
        ).first()
        hint = self.capture.table / "metadata" / "version-hint.text"
        self.capture.state(
            name,
            rows,
            snapshot=found["snapshot_id"] if found else None,
            operation=found["operation"] if found else None,
            metadata=f"metadata/v{hint.read_text().strip()}.metadata.json",
        )

    def _relocate(self, path: str, data: bytes) -> bytes:
        if path.endswith(".avro"):
            data = _uncompressed(data)
        return data.replace(str(self.capture.table).encode(), ROOT.encode())


def _uncompressed(data: bytes) -> bytes:
    reader = fastavro.reader(io.BytesIO(data))
    schema, metadata = reader.writer_schema, reader.metadata
    kept = {key: text for key, text in metadata.items() if not key.startswith("avro.")}
    written = io.BytesIO()
    fastavro.writer(written, schema, reader, codec="null", metadata=kept)
    return written.getvalue()


def values(*rows: tuple[int, str, str, int], more: str = "") -> str:
    """Rows of the tables as SQL."""
    return "VALUES " + ", ".join(
        f"({number}, '{city}', '{name}', {number}.{ts:02}, "
        f"TIMESTAMP '2026-01-02 03:04:05.{number:06}', {ts}{more})"
        for number, city, name, ts in rows
    )


def merge_on_read(spark: SparkSession, warehouse: Path) -> Table:
    """Deletes and updates as delete files."""
    modes = {
        f"write__{action}__mode": "merge-on-read"
        for action in ("delete", "update", "merge")
    }
    table = Table(spark, warehouse, "iceberg-mor", **modes)
    every_commit(table)
    return table


def copy_on_write(spark: SparkSession, warehouse: Path) -> Table:
    """Deletes and updates as rewritten files."""
    table = Table(spark, warehouse, "iceberg-cow")
    every_commit(table)
    return table


def every_commit(table: Table) -> None:
    """Inserts, updates, deletes, a merge, an overwrite, compaction and expiry."""
    first = [(1, "rome", "a", 1), (2, "rome", "b", 1), (3, "oslo", "c", 1)]
    table.run("insert", f"INSERT INTO @ {values(*first, (4, 'oslo', 'd', 1))}")
    table.run("insert more", f"INSERT INTO @ {values((5, 'rome', 'e', 2))}")
    table.run("update", "UPDATE @ SET name = 'a3', ts = 3 WHERE id = 1")
    table.run("delete", "DELETE FROM @ WHERE id = 3")
    source = values((2, "rome", "b5", 5), (4, "oslo", "d", 5), (6, "oslo", "f", 5))
    table.run(
        "merge",
        f"MERGE INTO @ t USING (SELECT * FROM {source} "
        "AS s(id, city, name, price, at, ts)) s "
        "ON t.id = s.id WHEN MATCHED AND s.id = 4 THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )
    whole = ", options => map('rewrite-all', 'true')"
    table.call("compaction", "rewrite_data_files", whole)
    table.run("new column", "ALTER TABLE @ ADD COLUMN note STRING")
    row = values((7, "rome", "g", 8), more=", 'new'")
    table.run("insert with the new column", f"INSERT INTO @ {row}")
    row = values((8, "oslo", "h", 9), more=", 'over'")
    table.run("overwrite a partition", f"INSERT OVERWRITE @ {row}")
    last = ", older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
    table.call("expire snapshots", "expire_snapshots", last)
    row = values((9, "rome", "i", 10), more=", NULL")
    table.run("insert after expiry", f"INSERT INTO @ {row}")


TABLES: dict[str, Callable[[SparkSession, Path], Table]] = {
    "iceberg-mor": merge_on_read,
    "iceberg-cow": copy_on_write,
}


def main() -> None:
    """Writes the fixtures that the command line names, or all."""
    folder, names = Path(sys.argv[1]).resolve(), sys.argv[2:] or list(TABLES)
    with tempfile.TemporaryDirectory() as work:
        # As long as `ROOT` with the table's own folder.
        padding = len(ROOT) - len(f"{work}//db/iceberg-mor")
        warehouse = Path(work, "w" * padding)
        spark = session(warehouse)
        spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
        for name in names:
            made = TABLES[name](spark, warehouse)
            made.capture.save(folder, f"{RUNTIME}, Spark {spark.version}")
        spark.stop()


if __name__ == "__main__":
    main()
