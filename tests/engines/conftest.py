"""Streams that engines read, and what reaches the backend."""

from __future__ import annotations

import gc
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.arrowlog.reading import LogConsumer
from streamfactory.wiring.reading.rotation import Rotation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.spi import Fetched, FetchLimits

ROWS = 300


def properties(kind: str, folder: Path, **more: str) -> dict[str, str]:
    """Of a stream of three partitions without rows."""
    place = {"store": uuid.uuid4().hex} if kind == "memory" else {"path": str(folder)}
    own = {"topic.name": "clicks", "partitions": "3", **place}
    return {
        "streamType": kind,
        **{f"stream.{kind}.{key}": value for key, value in own.items()},
        **more,
    }


def fill(stream: dict[str, str], rows: int = ROWS, epochs: int = 3) -> None:
    """Write rows, ``n`` to partition ``n % 3``, in some epochs."""
    each = rows // epochs
    with streamfactory.open_sink(stream) as sink:
        for epoch in range(epochs):
            numbers = range(epoch * each, (epoch + 1) * each)
            table = pa.table(
                {
                    "id": pa.array(numbers, pa.int64()),
                    "page": [f"/{n % 7}" for n in numbers],
                    "price": [n / 2 for n in numbers],
                    "_partition": pa.array([n % 3 for n in numbers], pa.int32()),
                }
            )
            sink.put(table, writer_id="filler", epoch=epoch)


@pytest.fixture(params=["memory", "file"])
def clicks(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """A stream of 300 rows in three partitions, of 100 offsets each."""
    stream = properties(request.param, tmp_path / "streams")
    fill(stream)
    return stream


@pytest.fixture
def with_places(clicks: dict[str, str]) -> dict[str, str]:
    """The same, with its metadata columns."""
    return {**clicks, "metadata.columns": "true"}


@dataclass(frozen=True)
class Request:
    """One call of a consumer's fetch, and what it returned."""

    partition: int
    start: int
    end: int | None
    columns: tuple[str, ...]
    rows: int


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """What readers request of the consumers of `memory` and `file`."""
    seen: list[Request] = []
    fetch = LogConsumer.fetch_messages

    def spy(
        self: LogConsumer, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        fetched = fetch(self, start, end, limits)
        rows = fetched.rows
        columns = () if rows is None else tuple(rows.schema.names)
        count = 0 if rows is None else rows.num_rows
        seen.append(Request(self._partition.id, start, end, columns, count))
        return fetched

    monkeypatch.setattr(LogConsumer, "fetch_messages", spy)
    return seen


@pytest.fixture
def open_rotations(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """How many scans are not closed; waits for those that are about to be.

    Takes a call of the engine, during which it may drop what its threads left.
    """
    opened: list[Rotation] = []
    begin = Rotation.__init__

    def spy(self: Rotation, *arguments: Any, **named: Any) -> None:
        opened.append(self)
        begin(self, *arguments, **named)

    def count(nudge: Callable[[], object] = lambda: None) -> int:
        deadline = time.monotonic() + 20
        while True:
            nudge()
            gc.collect()
            left = sum(not rotation._closed.is_set() for rotation in opened)
            if not left or time.monotonic() > deadline:
                assert opened
                return left
            time.sleep(0.01)

    monkeypatch.setattr(Rotation, "__init__", spy)
    return count
