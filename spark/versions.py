"""Features that older versions of PySpark lack, and their replacements.

Everything else is in PySpark 4.0. `FEATURES` is the table of docs/spark.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.pandas import functions
from pyspark.sql.pandas.types import to_arrow_schema

__all__ = [
    "ADMISSION",
    "ARROW_FUNCTIONS",
    "FEATURES",
    "IN_UTC",
    "AvailableNowMixin",
    "Feature",
    "StreamArrowWriter",
    "without_admission",
]


@dataclass(frozen=True, slots=True)
class Feature:
    """What a version of PySpark added to Python data sources."""

    since: str
    """The version."""
    what: str
    without: str
    """What holds in an earlier version."""


FEATURES: Final = (
    Feature(
        "4.1",
        "writers of streams that take Arrow batches",
        "no difference: tasks of 4.0 pass Arrow batches too",
    ),
    Feature(
        "4.1",
        "columns of type TIME",
        "refused: leave them out in `.schema(...)`",
    ),
    Feature(
        "4.1",
        "whether elements of arrays and values of maps may be null",
        "they may in every schema",
    ),
    Feature(
        "4.1",
        "functions of Arrow arrays",
        "`save` refuses rows with keys where the topic has several partitions, and "
        'pipelines write them by `format("streamfactory")`',
    ),
    Feature(
        "4.2",
        "admission control: the source is given the start and the limit of a batch",
        "limits of batches and the guarantee hold, by the offsets that Spark reads "
        "from its checkpoint",
    ),
    Feature(
        "4.2",
        "`Trigger.AvailableNow`",
        "a run is one batch, which ends at a limit of batches if there is one (leave "
        "`spark.sql.streaming.triggerAvailableNowWrapper.enabled` unset); with the "
        "trigger `available-now`, `streamfactory run` reads all",
    ),
    Feature(
        "4.2",
        "the latest offset in progress reports",
        "it is missing there, and the lag in what `streamfactory run` prints; "
        "`streamfactory lag` shows it",
    ),
)

try:
    from pyspark.sql.streaming.datasource import (
        SupportsTriggerAvailableNow as AvailableNowMixin,
    )

    _found = True
except ImportError:  # before 4.2

    class AvailableNowMixin:  # type: ignore[no-redef]
        """Stands for the missing interface."""

    _found = False

ARROW_FUNCTIONS: Final = hasattr(functions, "arrow_udf")
"""Whether functions of Arrow arrays can be used as columns."""

ADMISSION: Final = _found
"""Whether Spark passes the start and the limit of a batch to the source."""

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
else:
    try:
        from pyspark.sql.datasource import (
            DataSourceStreamArrowWriter as StreamArrowWriter,
        )
    except ImportError:  # before 4.1, whose tasks pass Arrow batches to such a class

        class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):
            """Stands for the missing interface."""


IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
)
"""Arguments of `to_arrow_schema` for times in UTC, which 4.0 and 4.1 always use."""


def without_admission() -> str:
    """The warning for a query on a PySpark without admission control."""
    return (
        f"PySpark {pyspark.__version__} has no admission control for Python sources: "
        "a run with Trigger.AvailableNow is one batch, and progress reports lack the "
        "latest offset; limits of batches and the guarantee hold"
    )
