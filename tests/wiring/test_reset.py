"""``auto.offset.reset`` takes Pinot's criteria, and says where a new reader starts."""

from __future__ import annotations

import time
import uuid
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from streamfactory.backends.memory import store
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.streams.stream import open_stream

HOUR = 3_600_000
RESET = "stream.memory.consumer.prop.auto.offset.reset"


@pytest.fixture
def properties() -> dict[str, str]:
    """A topic with ten rows of three days ago, and ten of an hour ago."""
    clock = [0.0]
    name = f"reset-{uuid.uuid4().hex}"
    store(name)._clock = lambda: clock[0]
    found = {
        "streamType": "memory",
        "stream.memory.topic.name": "clicks",
        "stream.memory.store": name,
    }
    rows = pa.RecordBatch.from_pydict({"n": pa.array(range(10), pa.int64())})
    sink = open_sink(found)
    for epoch, age in enumerate((72 * HOUR, HOUR)):
        clock[0] = time.time() * 1000 - age
        sink.put(rows, writer_id="w", epoch=epoch)
    sink.close()
    return found


def first_offset(properties: dict[str, str], **options: str) -> int:
    with open_stream({**properties, **options}) as stream:
        [offset] = stream.position.values()
    return offset


def iso(age: int) -> str:
    instant = datetime.fromtimestamp(time.time() - age / 1000, UTC)
    return f"{instant:%Y-%m-%dT%H:%M:%S}.{instant.microsecond // 1000:03d}Z"


@pytest.mark.parametrize(
    ("criteria", "offset"),
    [
        ("smallest", 0),
        ("earliest", 0),
        ("largest", 20),
        ("latest", 20),
        ("4d", 0),
        ("2d", 10),
        ("1d12h30m", 10),
        ("30m", 20),
        ("0s", 20),
        ("9000000000000000000ms", 0),
        ("0", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("9999-12-31T23:59:59Z", 20),
        ("9223372036854775807", 20),
    ],
)
def test_reset_by_each_of_pinots_criteria(
    properties: dict[str, str], criteria: str, offset: int
) -> None:
    assert first_offset(properties, **{RESET: criteria}) == offset


def test_reset_by_a_time(properties: dict[str, str]) -> None:
    for age, offset in ((96 * HOUR, 0), (48 * HOUR, 10), (HOUR // 2, 20)):
        assert first_offset(properties, **{RESET: iso(age)}) == offset
        millis = str(int(time.time() * 1000) - age)
        assert first_offset(properties, **{RESET: millis}) == offset


def test_a_start_option_beats_the_reset(properties: dict[str, str]) -> None:
    options = {RESET: "largest", "startingOffsets": "earliest"}
    assert first_offset(properties, **options) == 0
