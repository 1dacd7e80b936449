"""Java for the tests: whether there is one, and how it starts quickly.

Tests start some sixty Sparks. ``python -m tests.proving.java`` lets one write the
classes that it has loaded, as they are in memory, into an archive of the virtual
environment. Those that map it need two thirds of the time. Java itself looks whether it
fits, and does without if not.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Final

from tests.proving.skipping import skip_or_fail

from streamfactory.spark import prepare_environment

QUICK: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Flags for short lives on few cores: what a better compiler gains, it cost before."""
ARCHIVE: Final = Path(sys.prefix, "spark.jsa")


def missing_java() -> str | None:
    """Why Spark cannot be started here; None where it can."""
    if shutil.which("java") or os.environ.get("JAVA_HOME"):
        return None
    return "Spark needs Java 17, and there is none"


def java_or_skip() -> None:
    """Skip the test where there is no Java."""
    reason = missing_java()
    if reason is not None:
        skip_or_fail(reason)


def quick_options() -> str:
    """What a Java of Spark is started with."""
    found = list(QUICK)
    if ARCHIVE.exists():
        # One that does not fit is reported on standard output, if anything may be.
        found += [f"-XX:SharedArchiveFile={ARCHIVE}", "-Xlog:disable"]
    return " ".join(found)


def main() -> None:
    """Write the archive, where there is none."""
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
