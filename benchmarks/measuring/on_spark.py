"""A session on two cores, and the six columns that benchmarks of Spark move."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark import prepare_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS: Final = (
    "id",
    "cast(id % 1000 as int) as user",
    "id * 0.5D as price",
    "concat('item ', id % 5000) as item",
    "timestamp_micros(1700000000000000 + id) as at",
    "id % 7 = 0 as bought",
)


def session(settings: Mapping[str, str] | None = None) -> SparkSession:
    """A silent one, with more settings."""
    prepare_environment()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's, of pandas 3
        from pyspark.sql import SparkSession

        builder: Any = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.driver.memory", "2g")
        )
        made: SparkSession = builder.config(map=dict(settings or {})).getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def topic(folder: Path, name: str, **options: str) -> dict[str, str]:
    """The options of a topic of ``file``, unsynced as files of Parquet are."""
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "topics"),
        "stream.file.topic.name": name,
        "stream.file.fsync": "never",
        **options,
    }
