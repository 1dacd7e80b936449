"""Spark for pipelines: on this machine or a cluster, with its own log out of sight."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark import find_java, prepare_environment, register
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


_PY4J: Final = (None, "py4j.clientserver", "py4j.java_gateway")
"""Loggers that Py4J uses; None is the root."""
_LAST_BREATH: Final = 2.0
"""Seconds that a killed Java may take to be gone, once a call to it has failed."""


class SparkNotStarted(PermanentError):
    """Spark could not be started: no Java, or what its log says."""

    code = "spark_not_started"


class SparkEnded(PermanentError):
    """Spark's Java process ended while pipelines ran: killed, or out of memory."""

    code = "spark_ended"


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

    There is one Spark in a process: a session that somebody else made there would be
    changed, and stopped.

    Args:
        master: Where Spark runs.
        settings: ``spark.*``, as spark-submit takes them.
        log: File for all that Spark, and its Java, print.

    Raises:
        NotInstalled: plugin; PySpark is missing.
        SparkNotStarted: permanent; Java is missing, or refuses; or this process has a
            session already.
        SparkEnded: permanent; Java was killed while the session was used.
    """
    check_installed()
    _check_unused()
    local = master.startswith("local")
    prepare_environment(local=local)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="streamfactory-") as folder:
        layout = Path(folder, "log4j2.properties")
        layout.write_text(_LOGGING, encoding="utf-8")
        chosen = _QUIET | dict(settings or {})
        chosen.setdefault(
            "spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={layout}"
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
        with _quiet_bridge():
            try:
                yield session
            except Exception as error:
                ended = _ended(log)
                if ended is None:
                    session.stop()
                    raise
                _forget_session()
                raise ended from error
            except BaseException:
                session.stop()
                raise
            session.stop()


def _check_unused() -> None:
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        msg = "this process has a Spark session already, which would be stopped"
        remedy = "run pipelines in a process of their own, or stop that session"
        raise SparkNotStarted(msg, remedy=remedy)


@contextmanager
def _quiet_bridge() -> Iterator[None]:
    """Keep PySpark from telling of each call to a Java that is gone: once is enough.

    Py4J logs them, by loggers of its own and by the root logger. The server that takes
    sums from Java prints the end of its connection, unless it overrides what
    ``socketserver`` does then.
    """
    from pyspark import accumulators

    def ours(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    def forget(_server: object, _request: object, _address: object) -> None:
        pass

    loggers = [logging.getLogger(name) for name in _PY4J]
    servers: list[Any] = [
        accumulators.AccumulatorTCPServer,
        accumulators.AccumulatorUnixServer,
    ]
    for logger in loggers:
        logger.addFilter(ours)
    for server in servers:
        server.handle_error = forget
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(ours)
        for server in servers:
            del server.handle_error


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
    session = builder.getOrCreate()
    # By hand: what Spark's search did not find, it never looks for again.
    register(session)
    return session


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
    java = find_java()
    if java is None:
        msg = "Spark could not start: it needs Java 17 or newer, and found none"
        remedy = "install one (on Debian: apt install openjdk-17-jre-headless), or "
        return SparkNotStarted(msg, remedy=f"{remedy}set JAVA_HOME to where it is")
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if "UnsupportedClassVersionError" in text:
        msg = f"Spark could not start: {java} is older than the Java 17 that it needs"
        return SparkNotStarted(msg, remedy="set JAVA_HOME to a newer one")
    msg = f"Spark could not start with {java}: {str(error).splitlines()[0]}"
    return SparkNotStarted(msg, remedy=f"its log is {log}")


def _ended(log: Path) -> SparkEnded | None:
    """That Java is gone, where it is; None while it runs."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None  # somebody else has started it
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_LAST_BREATH)
    if process.returncode is None:
        return None
    status = process.returncode
    how = f"was ended by signal {-status}" if status < 0 else f"ended with {status}"
    msg = f"the Java process of Spark {how}"
    remedy = (
        "the same command goes on behind the last batch that was committed; a kill by "
        f"the system is mostly a lack of memory; the log of Spark is {log}"
    )
    return SparkEnded(msg, remedy=remedy)


def _forget_session() -> None:
    """Have the next session start a Java of its own."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session

    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    Session._instantiatedSession = None
