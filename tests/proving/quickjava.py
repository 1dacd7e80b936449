"""Java that starts quickly: the tests start some sixty of them.

``python -m tests.proving.quickjava`` lets a Spark write the classes that it has loaded,
as they are in memory, into an archive of the virtual environment. Those that map it
need half the time to start. Java itself looks whether it fits, and does without if not.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Final

from streamfactory.spark import prepare_environment

QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Flags for short lives on few cores: what a better compiler gains, it cost before."""
ARCHIVE: Final = Path(sys.prefix, "spark.jsa")


def options() -> str:
    """What a Java of Spark is started with."""
    found = list(QUICK)
    if ARCHIVE.exists():
        # One that does not fit is told on standard output, if anything may be.
        found += [f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:disable"]
    return " ".join(found)


def main() -> None:
    """Write the archive, where there is none."""
    from tests.proving.sessions import missing_java

    if ARCHIVE.exists() or missing_java() is not None:
        return
    with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
        made = Path(folder, ARCHIVE.name)
        flags = (*QUICK, f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable")
        os.environ["SPARK_SUBMIT_OPTS"] = " ".join(flags)
        _use_spark(Path(folder))
        made.rename(ARCHIVE)


def _use_spark(folder: Path) -> None:
    """Do what tests do, and wait for the end of Java."""
    from tests.spark.scenario import everything, session

    prepare_environment(local=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spark = session("local[2]", 1)
    everything(spark, folder)
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(120)


if __name__ == "__main__":
    main()
