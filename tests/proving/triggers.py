"""Queries that process what is available and end, on every PySpark."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pyspark
import pytest

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

needs_admission = pytest.mark.skipif(
    pyspark.__version__.startswith(("4.0.", "4.1.")),
    reason="PySpark 4.2 brought this to Python data sources",
)
PYSPARK_4_0 = pyspark.__version__.startswith("4.0.")


def start_available_now(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query that ends once it has processed what is there."""
    from pyspark.errors import StreamingQueryException

    from streamfactory.spark.versions import ADMISSION

    if ADMISSION:
        return writer.trigger(availableNow=True).start()
    query = writer.trigger(processingTime="0 seconds").start()

    def end() -> None:
        with suppress(StreamingQueryException):  # the test asks for it
            query.processAllAvailable()
            query.stop()

    threading.Thread(target=end, daemon=True).start()
    return query
