"""MQTT sensors, kept in a spool, and averaged in windows by Spark.

Three sensors publish JSON to an MQTT broker while no receiver runs: the broker keeps
the messages for the session that was opened before. Then a receiver stores them in a
spool, and acknowledges each after that. Spark reads the spool by offset, and computes
the average of each sensor in windows of ten minutes, as in `sensors.py`.

    MQTT=localhost:1883 python examples/mqtt_sensors.py

Needs: pip install streamfactory-mqtt 'streamfactory[json,spark]', Java 17, and a broker
(Debian: mosquitto). Writes into a temporary folder.
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

from sensors import SENSORS, START, average  # type: ignore[import-not-found]

import streamfactory
from streamfactory.spark import prepare_environment, register

BROKER = os.environ.get("MQTT", "localhost:1883")
SCHEMA = "sensor string, at timestamp, celsius double"
READINGS = 30
"""Of each sensor."""


def reading(plant: str) -> dict[str, str]:
    """Return the stream of a plant's temperatures, one session of the broker."""
    return {
        "streamType": "mqtt",
        "stream.mqtt.topic.name": "readings",
        "stream.mqtt.address": BROKER,
        "stream.mqtt.filters": f"{plant}/+/temperature",
        "stream.mqtt.client.id": plant,
        "stream.mqtt.acknowledge": "stored",
        "stream.mqtt.session.expiry.millis": "5m",
        "stream.mqtt.decoder.class.name": "json",
        "stream.mqtt.decoder.prop.schema": SCHEMA,
    }


def subscribe(stream: dict[str, str]) -> None:
    """Open the session: from here on the broker keeps messages for it."""
    with streamfactory.open(stream, follow=True) as opened:
        assert opened.next_batch(timeout=1) is None


def send(plant: str, sensor: str) -> None:
    """Publish a reading for each of thirty minutes with QoS 1, as a device does."""
    import paho.mqtt.client as paho
    from paho.mqtt.enums import CallbackAPIVersion

    host, _, port = BROKER.rpartition(":")
    device = paho.Client(CallbackAPIVersion.VERSION2)
    device.connect(host, int(port))
    device.loop_start()
    for minute in range(READINGS):
        measured = {
            "sensor": sensor,
            "at": (START + timedelta(minutes=minute)).isoformat(),
            "celsius": 10.0 * SENSORS.index(sensor) + minute / 10,
        }
        topic = f"{plant}/{sensor}/temperature"
        device.publish(topic, json.dumps(measured), qos=1).wait_for_publish(30)
    device.disconnect()
    device.loop_stop()


def receive(stream: dict[str, str], rows: int) -> None:
    """Receive so many rows into the spool; each is acknowledged when it is there."""
    embedded = {**stream, "spool.receiver": "embedded"}
    with streamfactory.open(embedded, start="earliest", follow=True) as opened:
        while rows > 0:
            batch = opened.next_batch(timeout=60)
            assert batch is not None
            rows -= batch.rows.num_rows


def main(spark: Any) -> None:
    plant = f"plant-{uuid.uuid4().hex[:8]}"
    with tempfile.TemporaryDirectory() as folder:
        subscribe(reading(plant))
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(send, plant), SENSORS))
        print(f"{len(SENSORS) * READINGS} readings were sent while no receiver ran")
        stream = {**reading(plant), "spool.path": f"{folder}/spool"}
        stream["startingOffsets"] = "earliest"
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
