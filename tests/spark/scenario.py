"""A driver of its own: ``python -m tests.spark.scenario MASTER FOLDER NAME``.

It prints what it found as JSON, as its last line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.proving.java import quick_options
from tests.proving.triggers import start_available_now
from tests.spark.killing import Faults, register_dying

import streamfactory
from streamfactory.spark import prepare_environment, register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1000
TASKS = 8
QUERY_TIMEOUT = 300
"""Seconds; a query that ends earlier than its rows would look like a loss."""


def options(folder: Path, topic: str) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.path": str(folder / "topics"),
        "stream.file.topic.name": topic,
        "stream.file.partitions": "3",
        "stream.file.fsync": "never",
    }


def found(folder: Path, topic: str) -> dict[str, Any]:
    """Rows and different rows of a topic, read without Spark."""
    with streamfactory.open(options(folder, topic)) as stream:
        ids = [n for batch in stream for n in batch.rows.column("id").to_pylist()]
    return {"rows": len(ids), "distinct": len(set(ids))}


def save(frame: DataFrame, folder: Path, topic: str) -> None:
    writer = frame.write.format("streamfactory").mode("append")
    writer.options(**options(folder, topic)).save()


def copy(
    spark: SparkSession, folder: Path, form: str = "streamfactory", **more: str
) -> None:
    """Stream the topic ``in`` into ``out``."""
    frame = spark.readStream.format("streamfactory").options(**options(folder, "in"))
    frame = frame.options(startingOffsets="earliest", **more)
    writer = frame.load().writeStream.format(form).options(**options(folder, "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = start_available_now(writer)
    if not query.awaitTermination(QUERY_TIMEOUT):
        msg = f"the query did not read everything in {QUERY_TIMEOUT} s"
        raise TimeoutError(msg)


def slowly(frame: DataFrame, folder: Path) -> DataFrame:
    """The same rows; each task says that it has begun, and takes a while."""
    begun = str(folder / "begun")

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time
        import uuid
        from pathlib import Path

        Path(begun).mkdir(exist_ok=True)
        yield from batches
        Path(begun, uuid.uuid4().hex).touch()
        time.sleep(0.7)

    return frame.mapInArrow(tasks, frame.schema)


def everything(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Write, read, stream, and read what was streamed."""
    save(spark.range(0, ROWS, 1, TASKS), folder, "in")
    save(spark.range(ROWS, 2 * ROWS, 1, TASKS), folder, "in")
    frame = spark.read.format("streamfactory").options(**options(folder, "in")).load()
    total = frame.selectExpr("sum(id) as total").collect()[0].total
    copy(spark, folder, maxOffsetsPerTrigger=str(ROWS))
    return {"sum": total, **found(folder, "out")}


def killed_workers(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Python workers of tasks are killed; Spark runs the tasks again."""
    (folder / "faults").mkdir()
    faults = Faults(folder / "faults")
    register_dying(spark, faults)
    save(spark.range(0, ROWS, 1, TASKS), folder, "in")
    faults.order("after-stage", passes=1)
    faults.order("before-write", passes=2)
    copy(spark, folder, "dying", maxOffsetsPerTrigger="500")
    return {"left": faults.left, **found(folder, "out")}


def dying_copy(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Stream, and be killed where that was ordered."""
    register_dying(spark, Faults(folder / "faults"))
    copy(spark, folder, "dying", maxOffsetsPerTrigger="100")
    return {}


def slow_task(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """The first attempt of a task stands still; Spark begins a second one."""
    begun = str(folder / "begun")

    def tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import time
        from pathlib import Path

        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 0:
            Path(begun, str(context.attemptNumber())).touch()
            if context.attemptNumber() == 0:
                time.sleep(60)

    Path(begun).mkdir()
    frame = spark.range(0, ROWS, 1, TASKS)
    save(frame.mapInArrow(tasks, frame.schema), folder, "out")
    return {"attempts": len(os.listdir(begun)), **found(folder, "out")}  # noqa: PTH208


def executors(spark: SparkSession) -> list[int]:
    """The processes of the executors, asked of their tasks."""

    def tell(_: Any) -> Iterator[int]:
        daemon = os.getppid()
        yield int(Path(f"/proc/{daemon}/stat").read_text().rsplit(")", 1)[1].split()[1])

    numbers = spark.sparkContext.parallelize(range(TASKS), TASKS).mapPartitions(tell)
    return sorted(set(numbers.collect()))


def killed_executor(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """An executor is killed while its tasks run and others of its have committed."""
    victim = executors(spark)[0]

    killed = threading.Event()

    def kill() -> None:
        await_tasks(folder, 3)
        os.kill(victim, signal.SIGKILL)
        killed.set()

    killer = threading.Thread(target=kill)
    killer.start()
    save(slowly(spark.range(0, ROWS, 1, TASKS), folder), folder, "out")
    killer.join()
    return {"killed": killed.is_set(), **found(folder, "out")}


def lost_worker(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Whoever started us kills a worker with its executors, on request."""

    def tell() -> None:
        await_tasks(folder, 3)
        say("kill a worker")

    teller = threading.Thread(target=tell)
    teller.start()
    save(slowly(spark.range(0, ROWS, 1, TASKS), folder), folder, "out")
    teller.join()
    return found(folder, "out")


def without_package(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """What the user reads where executors lack the package."""
    try:
        save(spark.range(1), folder, "out")
    except Exception as error:
        return {"message": str(error)}
    return {}


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def await_tasks(folder: Path, count: int) -> None:
    begun, deadline = folder / "begun", time.monotonic() + 90
    while not begun.exists() or len([*begun.iterdir()]) < count:
        if time.monotonic() > deadline:
            msg = f"{count} tasks did not begin"
            raise TimeoutError(msg)
        time.sleep(0.02)


def session(
    master: str, attempts: int, more: Mapping[str, str] | None = None
) -> SparkSession:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark's, of pandas 3
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        builder = builder.remote("local[2]") if master == "connect" else builder
        if master != "connect":
            builder = builder.master(master)
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": quick_options(),
            "spark.task.maxFailures": str(attempts),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "2s",
            **(more or {}),
        }.items():
            builder = builder.config(key, value)
        made: SparkSession = builder.getOrCreate()
        register(made)  # without PySpark's search, which is made only once
    return made


def main(master: str, folder: str, name: str) -> None:
    prepare_environment(local=True)  # the cluster is on this machine, too
    spark = session(master, attempts=1 if name == "without_package" else 4)
    run: Callable[[SparkSession, Path], dict[str, Any]] = globals()[name]
    result = run(spark, Path(folder))
    say(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
