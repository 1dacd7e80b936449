"""Streams that are proposed for Flight servers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from streamfactory.transfer.discovering import Place, discover
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from streamfactory.wiring.serving.process import ServerProcess


def test_a_topic_of_a_server_becomes_a_stream(
    flight_server: ServerProcess, clicks: dict[str, str], topic: str
) -> None:
    with open_sink(clicks) as sink:
        sink.put(pa.table({"id": [1]}))
    found = discover(Place("x", flight_server.location, topic=topic)).definition
    assert {one.key: one.text for one in found.properties} == clicks


def test_a_server_of_others_is_read_as_a_plain_one() -> None:
    program = Path(__file__).parent / "foreign_server.py"
    with subprocess.Popen(
        [sys.executable, program, "1"], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        location = f"grpc://127.0.0.1:{server.stdout.readline().strip()}"
        try:
            found = [discover(Place("x", location, topic=one)) for one in ("", "y")]
        finally:
            server.terminate()
    for one, topic in zip(found, "xy", strict=True):
        assert {prop.key: prop.text for prop in one.definition.properties} == {
            "streamType": "flight",
            "stream.flight.location": location,
            "stream.flight.protocol": "plain",
            "stream.flight.topic.name": topic,
        }
        assert "not of streamfactory" in one.notes[0]
