"""Writes tables by Spark's own connectors, as sinks of pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as sql

from streamfactory.spark.failures import words_of
from streamfactory.spark.pipelines.table_guarantees import EPOCH_OPTIONS
from streamfactory.spi import Problem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamfactory.spark.pipelines.model import Table


_ICEBERG: Final = "iceberg"
_PREFIX: Final = "snapshot-property."
"""Options of an Iceberg write that begin so are recorded in the summary of the
snapshot."""


def check_table(session: SparkSession, table: Table) -> Problem | None:
    """Refuse a format without a connector, or one that cannot open its table.

    A table that does not exist is fine where the first batch creates it. Iceberg's
    connector creates none.
    """
    java: Any = session
    lookup = java._jvm.org.apache.spark.sql.execution.datasources.DataSource
    try:
        lookup.lookupDataSource(table.format, java._jsparkSession.sessionState().conf())
    except Exception as error:  # noqa: BLE001 - Spark raises several kinds
        what = f"table {table.name!r}: Spark has no connector for the format "
        what += f"{table.format!r}: {words_of(error)}"
        hint = "name its package in [spark], as jars.packages, or give --package"
        return Problem("tables", what, table.origin, hint)
    try:
        reader = session.read.format(table.format).options(**table.options)
        reader.load(table.path)
    except AnalysisException as error:
        if table.format != _ICEBERG:
            return None  # there is no table yet
        what = f"table {table.name!r}: there is no Iceberg table {table.path!r}: "
        hint = "create it by SQL: batches are appended to a table that exists"
        return Problem("tables", what + words_of(error), table.origin, hint)
    except Exception as error:  # noqa: BLE001 - any error of the connector
        what = f"table {table.name!r}: the connector cannot open {table.path!r}: "
        what += words_of(error)
        hint = "use a release of the connector for this version of Spark"
        return Problem("tables", what, table.origin, hint)
    return None


def write_table(
    table: Table, rows: DataFrame, query: str, epoch: int, *, replaces: bool
) -> None:
    """Write the rows of one epoch to a table.

    Args:
        table: The table.
        rows: All rows of the epoch.
        query: First part of the application id; the name of the table is the second.
        epoch: Number of the batch.
        replaces: Whether the rows replace all earlier ones.
    """
    writer = rows.write.format(table.format).options(**table.options)
    if table.format in EPOCH_OPTIONS:
        name = f"{query}/{table.name}"
        if table.format == _ICEBERG and _is_committed(rows, table, name, epoch):
            return
        for option, value in zip(
            EPOCH_OPTIONS[table.format], (name, epoch), strict=True
        ):
            writer = writer.option(option, str(value))
    writer.mode("overwrite" if replaces else "append").save(table.path)


def _is_committed(rows: DataFrame, table: Table, name: str, epoch: int) -> bool:
    """Whether a snapshot of an Iceberg table records this epoch, or a later one.

    Delta's connector looks itself. Snapshots are looked up in the metadata of the
    table: its files are not read.
    """
    keys = [key.removeprefix(_PREFIX) for key in EPOCH_OPTIONS[_ICEBERG]]
    # As Iceberg names its metadata tables, of a path and of a name in a catalog.
    place = (
        f"{table.path}#snapshots" if "/" in table.path else f"{table.path}.snapshots"
    )
    snapshots = rows.sparkSession.read.format(_ICEBERG).load(place)
    writer, number = (sql.col("summary").getItem(key) for key in keys)
    found = snapshots.where(writer == name).agg(sql.max(number.cast("long"))).first()
    return found is not None and found[0] is not None and found[0] >= epoch
