"""What a plain Flight client sees of a request that the server refuses."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.conftest import stream

import streamfactory
from streamfactory.backends.flight.server.access import Access, Right
from streamfactory.spi import NotAuthorized
from streamfactory.wiring.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.wiring.serving import ServerProcess

DEADLINE = 60.0
ROWS = pa.table({"id": [1, 2, 3], "page": ["a", "b", "c"]})


@pytest.fixture
def client(flight_server: ServerProcess) -> Iterator[fl.FlightClient]:
    with closing(fl.connect(flight_server.location)) as client:
        yield client


@pytest.fixture
def orders(clicks: dict[str, str], topic: str) -> str:
    """A topic of three rows in one partition."""
    with open_sink(clicks) as sink:
        sink.put(ROWS, writer_id="w", epoch=0)
    return topic


def options() -> fl.FlightCallOptions:
    return fl.FlightCallOptions(timeout=DEADLINE)


def message(**members: Any) -> bytes:
    return json.dumps({"v": 1, **members}).encode()


def get(client: fl.FlightClient, topic: str, **members: Any) -> pa.Table:
    ticket = message(**{"topic": topic, "partition": 0, **members})
    return client.do_get(fl.Ticket(ticket), options()).read_all()


def refusal(call: Callable[[], object]) -> dict[str, Any]:
    """The message of the error that a call fails with."""
    with pytest.raises(fl.FlightError) as caught:
        call()
    found: dict[str, Any] = json.loads(caught.value.extra_info)
    return found


@pytest.mark.parametrize(
    ("members", "offset"),
    [
        ({"start": 9}, 9),
        ({"start": 9, "end": 12}, 9),
        ({"start": 9, "follow": True}, 9),
        ({"end": 9}, 9),
        ({"start": 1, "end": 4}, 4),
    ],
)
def test_a_range_beyond_latest_is_refused_at_once(
    client: fl.FlightClient, orders: str, members: dict[str, Any], offset: int
) -> None:
    found = refusal(lambda: get(client, orders, **members))
    assert found["code"] == "offset_out_of_range"
    assert (found["topic"], found["partition"]) == (orders, 0)
    assert (found["offset"], found["earliest"], found["latest"]) == (offset, 0, 3)
    expected = "set follow" if "end" in members and offset != 9 else "latest"
    assert expected in found["remedy"]


def test_a_range_that_follows_waits_for_its_end(
    client: fl.FlightClient, orders: str, clicks: dict[str, str]
) -> None:
    ticket = message(topic=orders, partition=0, end=5, follow=True)
    reader = client.do_get(fl.Ticket(ticket), options())
    assert reader.read_chunk().data.num_rows == 3
    with open_sink(clicks) as sink:
        sink.put(ROWS, writer_id="w", epoch=1)
    assert reader.read_all()["id"].to_pylist() == [1, 2]


@pytest.mark.parametrize("members", [{"start": 3}, {"start": 3, "end": 3}])
def test_a_range_that_begins_at_latest_is_empty(
    client: fl.FlightClient, orders: str, members: dict[str, Any]
) -> None:
    assert get(client, orders, **members).num_rows == 0


def test_an_unknown_column_is_named_with_those_that_exist(
    client: fl.FlightClient, orders: str
) -> None:
    found = refusal(lambda: get(client, orders, fields=["id", "idd"]))
    assert found["what"] == (
        f"topic {orders!r} has no column 'idd'; there are: 'id', 'page'"
    )
    assert found["remedy"] == "name columns that the topic has"


@pytest.mark.parametrize("memory", [True, False])
def test_an_unknown_partition_is_answered_with_those_that_exist(
    tmp_path: Path, memory: bool
) -> None:
    place = {"memory": True} if memory else {"path": str(tmp_path)}

    def put() -> None:
        path = fl.FlightDescriptor.for_path("clicks", "7")
        writer, _ = own.do_put(path, ROWS.schema, options())
        writer.write_table(ROWS)
        writer.close()

    def act(name: str, **members: Any) -> None:
        list(own.do_action((name, message(**members)), options()))

    with (
        streamfactory.serve(**place) as server,
        closing(fl.connect(server.location)) as own,
    ):
        with open_sink(stream(server)) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        for call in (
            lambda: get(own, "clicks", partition=7),
            put,
            lambda: act("offsets-at", timestamp_ms=0, partitions={"clicks": [7]}),
        ):
            found = refusal(call)
            assert found["code"] == "topic_not_found"
            assert (found["topic"], found["partition"]) == ("clicks", 7)
            assert "has no partition 7: its partition is 0" in found["what"]
        found = refusal(lambda: get(own, "clicks", partition=-1))
        assert "has no partition -1: its partition is 0" in found["what"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"id": [1]}, "the put lacks columns ['page']"),
        ({"id": [1], "page": ["a"], "x": [1]}, "the put has unknown columns ['x']"),
        (
            {"id": [1], "x": [1]},
            "the put lacks columns ['page'] and has unknown columns ['x']",
        ),
    ],
)
def test_columns_of_a_put_that_differ_are_named(
    client: fl.FlightClient, orders: str, columns: dict[str, Any], expected: str
) -> None:
    table = pa.table(columns)

    def put() -> None:
        path = fl.FlightDescriptor.for_path(orders)
        writer, _ = client.do_put(path, table.schema, options())
        writer.write_table(table)
        writer.close()

    assert refusal(put)["what"] == f"topic {orders!r}: {expected}"


def test_a_missing_right_is_a_verb(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text("")
    with pytest.raises(NotAuthorized, match="'ann' may not administer topic 'clicks'"):
        Access(str(path)).check("ann", "clicks", Right.ADMIN)
