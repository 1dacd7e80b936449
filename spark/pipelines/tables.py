"""Writes tables by Spark's own connectors, as sinks of pipelines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from streamfactory.spark.failures import words_of
from streamfactory.spark.pipelines.table_guarantees import EPOCH_OPTIONS
from streamfactory.spi import Problem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from streamfactory.spark.pipelines.model import Table


def check_table(session: SparkSession, table: Table) -> Problem | None:
    """Refuse a format without a connector, or one that cannot open its table.

    A table that does not exist is fine: the first batch creates it.
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
    except AnalysisException:
        return None  # there is no table yet
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
        application, version = EPOCH_OPTIONS[table.format]
        writer = writer.option(application, f"{query}/{table.name}")
        writer = writer.option(version, str(epoch))
    writer.mode("overwrite" if replaces else "append").save(table.path)
