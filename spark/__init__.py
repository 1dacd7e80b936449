"""``format("streamfactory")``: any stream that can be shared, on Spark.

Installed next to PySpark it registers itself; `register` does it by hand::

    spark.read.format("streamfactory").option("stream", "clicks").load()

PySpark is imported with the modules below, never before.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamfactory.spark.interpreter import python_of_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["prepare_environment", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("streamfactory")`` known to a session."""
    from streamfactory.spark.source import StreamFactorySource

    spark.dataSource.register(StreamFactorySource)


def prepare_environment(*, local: bool = False) -> None:
    """Have Spark start its Python workers with this interpreter, and find a Java.

    Call it before the session is made: by itself Spark takes the first ``python3`` of
    the path, which has none of a virtual environment's packages. A Java in the folder
    ``java`` of the virtual environment is taken where the machine has none.

    Args:
        local: Whether Spark runs on this machine alone. Its Python processes then take
            PySpark from where it is installed, which they start faster with.
    """
    python = python_of_workers() if local else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    inside = Path(sys.prefix, "java")
    if "JAVA_HOME" not in os.environ and not shutil.which("java") and inside.is_dir():
        os.environ["JAVA_HOME"] = str(inside)
