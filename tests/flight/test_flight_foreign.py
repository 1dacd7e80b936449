"""Plain Flight servers, which know nothing of us, as sources."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.flight.foreign_server import BATCHES, EACH

import streamfactory
from streamfactory.spi import ConfigError, Failed, OffsetOutOfRange, StreamError
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = BATCHES * EACH


@pytest.fixture(scope="module", params=["1 known", "3"])
def foreign(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    program = Path(__file__).with_name("foreign_server.py")
    with subprocess.Popen(
        [sys.executable, str(program), *request.param.split()],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        yield {
            "streamType": "flight",
            "stream.flight.location": f"grpc://127.0.0.1:{port}",
            "stream.flight.topic.name": "numbers",
            "stream.flight.protocol": "plain",
            "endpoints": request.param.split()[0],
        }
        process.kill()


def properties(foreign: dict[str, str], **more: str) -> dict[str, str]:
    given = {f"stream.flight.{k.replace('_', '.')}": v for k, v in more.items()}
    return {k: v for k, v in {**foreign, **given}.items() if k != "endpoints"}


def expected(foreign: dict[str, str]) -> list[int]:
    numbers = range(int(foreign["endpoints"]))
    return [n * 1000 + row for n in numbers for row in range(ROWS)]


def start_at(offset: int, foreign: dict[str, str]) -> dict[str, str]:
    offsets = {str(n): offset for n in range(int(foreign["endpoints"]))}
    return {"startingOffsets": json.dumps({"numbers": offsets})}


def test_endpoints_are_partitions_and_row_numbers_offsets(
    foreign: dict[str, str],
) -> None:
    found: dict[tuple[int, int], list[int]] = {}
    with streamfactory.open(properties(foreign)) as stream:
        for batch in stream:
            assert batch.first_offset is not None
            place = batch.partition.id, batch.first_offset
            found[place] = batch.rows["id"].to_pylist()
    rows = {
        (number, offset + i): row
        for (number, offset), some in found.items()
        for i, row in enumerate(some)
    }
    assert [rows[place] for place in sorted(rows)] == expected(foreign)


def test_the_schema_is_known_without_reading(foreign: dict[str, str]) -> None:
    with streamfactory.open(properties(foreign)) as stream:
        assert stream.schema.names == ["id"]


def test_a_deterministic_server_is_read_again_from_any_offset(
    foreign: dict[str, str],
) -> None:
    repeated = properties(foreign, plain_deterministic="true")
    with streamfactory.open(repeated) as stream:
        assert sorted(stream.to_reader().read_all()["id"].to_pylist()) == expected(
            foreign
        )
    with streamfactory.open({**repeated, **start_at(25, foreign)}) as stream:
        rows = stream.to_reader().read_all()["id"].to_pylist()
    assert sorted(rows) == [row for row in expected(foreign) if row % 1000 >= 25]


def test_any_other_server_is_read_from_its_first_row_only(
    foreign: dict[str, str],
) -> None:
    given = {**properties(foreign), **start_at(25, foreign)}
    with (
        pytest.raises(OffsetOutOfRange, match="refused by the source"),
        streamfactory.open(given) as stream,
    ):
        next(iter(stream))


def test_a_server_that_fails_is_reported_from_one_that_ends(
    foreign: dict[str, str],
) -> None:
    broken = properties(foreign, topic_name="breaks")
    rows = 0
    with streamfactory.open(broken) as stream:
        with suppress(StreamError):
            for batch in stream:
                rows += batch.num_rows
        causes = [end.cause for end in stream.ends.values() if isinstance(end, Failed)]
    assert causes
    assert all("the source of the server failed" in cause for cause in causes)
    assert rows <= 2 * EACH * int(foreign["endpoints"])


def test_closing_ends_the_call_of_a_server_that_waits(foreign: dict[str, str]) -> None:
    waiting = properties(foreign, topic_name="waits")
    with streamfactory.open(waiting, follow=True, start="earliest") as stream:
        assert next(iter(stream)).num_rows
        started = time.monotonic()
    assert time.monotonic() - started < 30


def test_nothing_is_written_to_a_plain_server(foreign: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="read-only"):
        open_sink(properties(foreign))
