"""Spark for pipelines: on this machine or a cluster, with its own log out of sight."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark import prepare_environment
from streamfactory.spi import NotInstalled, PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
_LOGGING: Final = """
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n%ex
"""
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Pipelines of one session take turns.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.streaming.metricsEnabled": "false",
}


class SparkNotStarted(PermanentError):
    """Spark could not be started: no Java, or what its log says."""

    code = "spark_not_started"


def check_installed() -> None:
    """Import PySpark, which warns of its own.

    Raises:
        NotInstalled: plugin; it is missing.
    """
    warnings.filterwarnings("ignore", module=r"pyspark\b")
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        msg = f"pipelines run on Spark, and PySpark cannot be imported: {error}"
        raise NotInstalled(msg, remedy="pip install 'streamfactory[spark]'") from error


@contextmanager
def spark_session(
    master: str = LOCAL, settings: Mapping[str, str] | None = None, *, log: Path
) -> Iterator[SparkSession]:
    """A session of its own Spark, stopped at the end.

    Args:
        master: Where Spark runs.
        settings: ``spark.*``, as spark-submit takes them.
        log: File for all that Spark, and its Java, print.

    Raises:
        NotInstalled: plugin; PySpark is missing.
        SparkNotStarted: permanent; Java is missing, or refuses.
    """
    check_installed()
    local = master.startswith("local")
    prepare_environment(local=local)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="streamfactory-") as folder:
        logging = Path(folder, "log4j2.properties")
        logging.write_text(_LOGGING, encoding="utf-8")
        chosen = _QUIET | dict(settings or {})
        chosen.setdefault(
            "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={logging}"
        )
        if local:
            # By default 200, each a task and a file of the checkpoint.
            chosen.setdefault("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        chosen |= {"spark.master": master, "spark.app.name": "streamfactory"}
        with _standard_error(log):
            try:
                session = _started(chosen)
            except Exception as error:
                raise _not_started(error, log) from error
        try:
            yield session
        finally:
            session.stop()


def _started(settings: Mapping[str, str]) -> SparkSession:
    """A session whose Java hears no signal that is sent to our group of processes.

    A terminal, ``timeout`` and service managers signal whole groups: Java would be gone
    before the batch is finished.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession as Session

    if SparkContext._gateway is None:
        conf = SparkConf().setAll([*settings.items()])
        launch: Any = launch_gateway  # it has no types
        gateway = launch(conf, {"start_new_session": True})
        SparkContext(conf=conf, gateway=gateway)
    builder = Session.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


@contextmanager
def _standard_error(log: Path) -> Iterator[None]:
    """Have what is started here print its errors into a file, for all of its life."""
    sys.stderr.flush()
    before = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _not_started(error: Exception, log: Path) -> SparkNotStarted:
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    missing = "JAVA" in str(error).upper() and "java" in text.lower()
    if missing or not text or "JAVA_HOME is not set" in text:
        msg = "Spark could not start: it needs Java 17 or newer, and found none"
        remedy = "install one (on Debian: apt install openjdk-17-jre-headless), or "
        return SparkNotStarted(msg, remedy=f"{remedy}set JAVA_HOME to where it is")
    msg = f"Spark could not start: {str(error).splitlines()[0]}"
    return SparkNotStarted(msg, remedy=f"its log is {log}")
