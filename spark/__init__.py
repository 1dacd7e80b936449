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
    the path, which has none of a virtual environment's packages. Where
    ``JAVA_HOME`` leads to no Java, one of the path is taken, else the one in the folder
    ``java`` of the virtual environment.

    Args:
        local: Whether Spark runs on this machine alone. Its Python processes then take
            PySpark from where it is installed, which they start faster with.
    """
    python = python_of_workers() if local else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if find_java() is None:
        # `JAVA_HOME` may lead nowhere: it would keep Spark from the others.
        os.environ.pop("JAVA_HOME", None)
        inside = Path(sys.prefix, "java")
        if find_java() is None and inside.is_dir():
            os.environ["JAVA_HOME"] = str(inside)


def find_java() -> str | None:
    """The Java that Spark starts: of ``JAVA_HOME``, else of the path; None: none."""
    home = os.environ.get("JAVA_HOME")
    if home:
        inside = Path(home, "bin", "java")
        return str(inside) if os.access(inside, os.X_OK) else None
    return shutil.which("java")
