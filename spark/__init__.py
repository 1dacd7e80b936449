"""``format("streamfactory")``: any shared stream as a Spark data source.

It registers itself if installed next to PySpark; `register` does it explicitly::

    spark.read.format("streamfactory").option("stream", "clicks").load()

The modules below import PySpark; importing this package does not.
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
    """Register ``format("streamfactory")`` in a session."""
    from streamfactory.spark.source import StreamFactorySource

    spark.dataSource.register(StreamFactorySource)


def prepare_environment(*, local: bool = False) -> None:
    """Configure Spark to use this interpreter for its Python workers, and find Java.

    Call it before the session is created. Otherwise Spark starts the first ``python3``
    of the path, which lacks the packages of a virtual environment. If ``JAVA_HOME`` has
    no Java, the one of the path is used, else the one in the folder ``java`` of the
    virtual environment.

    Args:
        local: Whether Spark runs on this machine only. Its Python processes then import
            the installed PySpark, which makes them start faster.
    """
    python = python_of_workers() if local else sys.executable
    os.environ.setdefault("PYSPARK_PYTHON", python)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if find_java() is None:
        # An invalid `JAVA_HOME` would hide the Java of the path.
        os.environ.pop("JAVA_HOME", None)
        inside = Path(sys.prefix, "java")
        if find_java() is None and inside.is_dir():
            os.environ["JAVA_HOME"] = str(inside)


def find_java() -> str | None:
    """The Java that Spark starts: of ``JAVA_HOME``, else of the path; or None."""
    home = os.environ.get("JAVA_HOME")
    if home:
        inside = Path(home, "bin", "java")
        return str(inside) if os.access(inside, os.X_OK) else None
    return shutil.which("java")
