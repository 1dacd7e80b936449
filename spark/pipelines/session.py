"""Spark sessions for pipelines, local or on a cluster, with the log in a file."""

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
from streamfactory.spi.causes import first_line
from streamfactory.wiring.core.logs import LOG_FORMAT
from streamfactory.wiring.core.variables import environment_variable

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
"""
_TEXT_LAYOUT: Final = """
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n%ex
"""
_JSON_LAYOUT: Final = """
appender.console.layout.type = JsonTemplateLayout
appender.console.layout.eventTemplateUri = classpath:org/apache/spark/SparkLayout.json
"""
"""As of Spark's own structured logs."""
_JSON_SETTINGS: Final = {
    # For the log of executors, which have their own configuration.
    "spark.log.structuredLogging.enabled": "true",
    f"spark.executorEnv.{LOG_FORMAT}": "json",
}
_QUIET: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Pipelines of one session take turns.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.streaming.metricsEnabled": "false",
}


_BRIEF: Final = {
    # Compiling a query takes longer than the few rows that it sees.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_BRIEF_JAVA: Final = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PY4J: Final = (None, "py4j.clientserver", "py4j.java_gateway")
"""Loggers of Py4J; None is the root logger."""
_ACCUMULATOR_SERVERS: Final = (
    "AccumulatorServer",
    "AccumulatorTCPServer",
    "AccumulatorUnixServer",
)
"""Classes of PySpark 4.0, and of later versions."""
_EXIT_TIMEOUT: Final = 2.0
"""Seconds to wait for a killed Java process to exit, after a failed call."""


class SparkNotStarted(PermanentError):
    """Spark could not be started, for example because Java is missing."""

    code = "spark_not_started"


class SparkEnded(PermanentError):
    """Spark's Java process ended while pipelines ran: killed, or out of memory."""

    code = "spark_ended"


def check_installed() -> None:
    """Import PySpark, and suppress its warnings.

    Raises:
        NotInstalled: plugin; PySpark is missing.
    """
    warnings.filterwarnings("ignore", module=r"pyspark\b")
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        msg = f"pipelines run on Spark, and PySpark cannot be imported: {error}"
        raise NotInstalled(msg, remedy="pip install 'streamfactory[spark]'") from error


@contextmanager
def spark_session(
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    *,
    log: Path,
    json_log: bool = False,
    brief: bool = False,
) -> Iterator[SparkSession]:
    """A session of a new Spark, stopped at the end.

    A process has only one Spark: an existing session would be changed and stopped.

    Args:
        master: Spark's master URL.
        settings: ``spark.*``, as for spark-submit.
        log: File for the output of Spark and its Java process.
        json_log: Whether Spark and its Python workers log as JSON lines.
        brief: Whether its queries see few rows, and end soon: nothing is compiled for
            speed.

    Raises:
        NotInstalled: plugin; PySpark is missing.
        SparkNotStarted: permanent; Java is missing or fails, or this process has a
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
        kind = _JSON_LAYOUT if json_log else _TEXT_LAYOUT
        layout.write_text(_LOGGING + kind, encoding="utf-8")
        chosen = _QUIET | (_BRIEF if brief else {})
        chosen |= (_JSON_SETTINGS if json_log else {}) | dict(settings or {})
        java = f"-Dlog4j2.configurationFile={layout}" + (_BRIEF_JAVA if brief else "")
        chosen.setdefault("spark.driver.extraJavaOptions", java)
        if local:
            # The default is 200, each with a task and a file in the checkpoint.
            chosen.setdefault("spark.sql.shuffle.partitions", str(os.cpu_count() or 2))
        chosen |= {"spark.master": master, "spark.app.name": "streamfactory"}
        with _standard_error(log), _worker_log(json=json_log):
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
        msg = "this process already has a Spark session, which would be stopped"
        remedy = "run pipelines in a separate process, or stop that session"
        raise SparkNotStarted(msg, remedy=remedy)


@contextmanager
def _quiet_bridge() -> Iterator[None]:
    """Suppress PySpark's output for each call to an ended Java process.

    Py4J logs these calls with its own loggers and with the root logger. The accumulator
    server prints a traceback for the closed connection, unless `handle_error` is
    replaced.
    """
    from pyspark import accumulators

    def ours(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    def ignore(_server: object, _request: object, _address: object) -> None:
        pass

    loggers = [logging.getLogger(name) for name in _PY4J]
    servers: list[Any] = [
        getattr(accumulators, name)
        for name in _ACCUMULATOR_SERVERS
        if hasattr(accumulators, name)
    ]
    for logger in loggers:
        logger.addFilter(ours)
    for server in servers:
        server.handle_error = ignore
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(ours)
        for server in servers:
            del server.handle_error


def _started(settings: Mapping[str, str]) -> SparkSession:
    """A session whose Java process does not receive signals of our process group.

    Terminals, ``timeout`` and service managers signal whole groups, which would end
    Java before the batch is finished.
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
    # Explicitly: Spark searches data sources only once.
    register(session)
    return session


@contextmanager
def _worker_log(*, json: bool) -> Iterator[None]:
    """Set the log format of Python workers, which inherit Java's environment."""
    if not json:
        yield
        return
    with environment_variable(LOG_FORMAT, "json"):
        yield


@contextmanager
def _standard_error(log: Path) -> Iterator[None]:
    """Redirect the stderr of processes started in this context to a file."""
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
    msg = f"Spark could not start with {java}: {first_line(error)}"
    return SparkNotStarted(msg, remedy=f"its log is {log}")


def _ended(log: Path) -> SparkEnded | None:
    """The error for an ended Java process; None while it runs."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None  # not started by this process
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_EXIT_TIMEOUT)
    if process.returncode is None:
        return None
    status = process.returncode
    how = f"was ended by signal {-status}" if status < 0 else f"ended with {status}"
    msg = f"the Java process of Spark {how}"
    remedy = (
        "run the same command again: it continues after the last committed batch; if "
        f"the system killed Java, it mostly lacked memory; Spark's log is {log}"
    )
    return SparkEnded(msg, remedy=remedy)


def _forget_session() -> None:
    """Make the next session start a new Java process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession as Session

    SparkContext._gateway = SparkContext._jvm = None
    SparkContext._active_spark_context = None
    Session._instantiatedSession = None
