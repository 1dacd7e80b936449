"""MQTT sensors, kept in a spool, and averaged in windows by Spark.

Three sensors publish JSON to an MQTT broker while no receiver runs: the broker keeps
the messages for the session that was opened before. Then a receiver stores them in a
spool, and acknowledges each after that. Spark reads the spool by offset, and computes
the average of each sensor in windows of ten minutes, as in `sensors.py`.

    MQTT=localhost:1883 python examples/mqtt_sensors.py

Needs: a broker (Debian: mosquitto), pip install streamfactory-mqtt
'streamfactory[json,spark]', and Java 17. Writes into a temporary folder.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

from sensors import SENSORS, START, average

import streamfactory
from streamfactory.spark import prepare_environment, register

BROKER = os.environ.get("MQTT", "localhost:1883")
SCHEMA = "sensor string, at timestamp, celsius double"
READINGS = 30
"""Of each sensor."""


def receiving(folder: str, plant: str) -> dict[str, str]:
    """Return the stream on the side of the receiver, and of Spark."""
    return {
        "streamType": "mqtt",
        "stream.mqtt.topic.name": "readings",
        "stream.mqtt.address": BROKER,
        "stream.mqtt.filters": f"{plant}/+/temperature",
        "stream.mqtt.client.id": plant,
        "stream.mqtt.acknowledge": "stored",  # after the spool has it
        "stream.mqtt.session.expiry.millis": "1m",
        "stream.mqtt.decoder.class.name": "json",
        "stream.mqtt.decoder.prop.schema": SCHEMA,
        "spool.path": f"{folder}/spool",
        "startingOffsets": "earliest",
    }


def send(plant: str, sensor: str) -> None:
    """Publish a reading for each of thirty minutes, as a device does."""
    import paho.mqtt.publish as paho

    host, _, port = BROKER.rpartition(":")
    messages: list[Any] = []
    for minute in range(READINGS):
        reading = {
            "sensor": sensor,
            "at": (START + timedelta(minutes=minute)).isoformat(),
            "celsius": 10.0 * SENSORS.index(sensor) + minute / 10,
        }
        topic = f"{plant}/{sensor}/temperature"
        messages.append((topic, json.dumps(reading).encode(), 1, False))  # QoS 1
    paho.multiple(messages, hostname=host, port=int(port))


def receive(stream: dict[str, str], rows: int) -> None:
    """Receive so many rows into the spool."""
    embedded = {**stream, "spool.receiver": "embedded"}
    with streamfactory.open(embedded, follow=True) as opened:
        opened.next_batch(0)  # from here on the broker keeps messages for us
        while rows > 0:
            batch = opened.next_batch(timeout=30)
            assert batch is not None
            rows -= batch.rows.num_rows


def main(spark: Any) -> None:
    plant = f"plant-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder:
        stream = receiving(folder, plant)
        receive(stream, 0)
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(send, plant), SENSORS))
        print(f"{len(SENSORS) * READINGS} readings were sent while no receiver ran")
        receive(stream, len(SENSORS) * READINGS)
        print("they are in the spool, and acknowledged")
        for row in average(spark, stream, f"{folder}/checkpoint"):
            print(f"{row.sensor} {row.start} {row.celsius:.2f} degrees")


if __name__ == "__main__":
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        sys.exit("this example needs Spark: pip install 'streamfactory[json,spark]'")
    prepare_environment(local=True)
    builder = SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC")
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    register(session)
    main(session)
    session.stop()
