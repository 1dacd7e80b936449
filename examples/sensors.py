"""ZeroMQ sensors, kept in a spool, and averaged in windows by Spark.

Three sensors send their readings by ZeroMQ, which stores nothing. The command
`streamfactory spool` receives them and keeps them in a folder; a sensor's `put` returns
when its rows are there. Spark then reads the spool by offset, as often as it likes, and
computes the average of each sensor in windows of ten minutes.

    python examples/sensors.py

Needs: pip install 'streamfactory[zeromq,spark]', and Java 17. Writes into a temporary
folder.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import streamfactory
from streamfactory.spark import prepare_environment, register

SENSORS = ["attic", "cellar", "garden"]
START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def receiving(folder: str) -> dict[str, str]:
    """Return the stream on the side of the receiver, and of Spark."""
    return {
        "streamType": "zeromq",
        "stream.zeromq.topic.name": "readings",
        "stream.zeromq.pattern": "dealer-router",  # senders wait until rows are stored
        "stream.zeromq.bind": f"ipc://{folder}/s{{0-2}}",  # three partitions
        "schema": "sensor string, at timestamp, celsius double",
        "spool.path": f"{folder}/spool",
        "startingOffsets": "earliest",
    }


def send(folder: str, sensor: str) -> None:
    """Send a reading for each of thirty minutes."""
    stream = {
        "streamType": "zeromq",
        "stream.zeromq.topic.name": "readings",
        "stream.zeromq.pattern": "dealer-router",
        "stream.zeromq.connect": f"ipc://{folder}/s{SENSORS.index(sensor)}",
    }
    at = [START + timedelta(minutes=n) for n in range(30)]
    celsius = [10.0 * SENSORS.index(sensor) + n / 10 for n in range(30)]
    readings = pa.table({"sensor": [sensor] * 30, "at": at, "celsius": celsius})
    with streamfactory.open_sink(stream) as sink:
        sink.put(readings)


def average(spark: Any, stream: dict[str, str], checkpoint: str) -> list[Any]:
    """Return the average of each sensor and window, from all that is in the spool."""
    from pyspark.sql.functions import avg, date_format, window

    readings = spark.readStream.format("streamfactory").options(**stream).load()
    windows = (
        readings.withWatermark("at", "10 minutes")
        .groupBy("sensor", window("at", "10 minutes").alias("window"))
        .agg(avg("celsius").alias("celsius"))
        .select(
            "sensor", date_format("window.start", "HH:mm").alias("start"), "celsius"
        )
    )
    writer = windows.writeStream.outputMode("complete").format("memory")
    writer = writer.queryName("windows").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    found: list[Any] = spark.table("windows").orderBy("sensor", "start").collect()
    return found


def main(spark: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = receiving(folder)
        file = Path(folder, "readings.json")
        file.write_text(json.dumps({"name": "readings", "properties": stream}))
        command = [sys.executable, "-m", "streamfactory", "spool", str(file)]
        with subprocess.Popen(command) as receiver:
            try:
                with ThreadPoolExecutor() as pool:
                    list(pool.map(partial(send, folder), SENSORS))
            finally:
                receiver.terminate()  # it commits what it has received, and ends
        print(f"the receiver ended with status {receiver.returncode}")
        for row in average(spark, stream, f"{folder}/checkpoint"):
            print(f"{row.sensor} {row.start} {row.celsius:.2f} degrees")


if __name__ == "__main__":
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        sys.exit("this example needs Spark: pip install 'streamfactory[zeromq,spark]'")
    prepare_environment(local=True)
    builder = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(session)
    main(session)
    session.stop()
