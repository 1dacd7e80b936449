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
from streamfactory.backends.flight.protocol.failures import from_status, to_status
from streamfactory.backends.flight.server.access import Access, Right
from streamfactory.spi import IncarnationChanged, NotAuthorized, OffsetOutOfRange
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.wiring.serving.process import ServerProcess

DEADLINE = 60.0
NO_NAME = (
    "'a\\nb' (3 characters) is not a valid name: a name has 1 to 249 printable "
    "characters"
)
TICKET = (
    "its members are v, topic, partition, start?, end?, follow?, fields?, incarnation?"
)
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
        f"topic {orders!r} has no column 'idd'; it has: 'id', 'page'"
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


def test_remedies_concern_any_client(client: fl.FlightClient, orders: str) -> None:
    wanted = fl.FlightDescriptor.for_command(message(topic=orders, partition=0))

    def fetch() -> None:
        writer, reader = client.do_exchange(wanted, options())
        with closing(writer):
            writer.write_metadata(
                message(id=1, start=9, max_rows=10, max_bytes=1 << 20)
            )
            reader.read_chunk()

    def save() -> None:
        body = message(group=orders, instance="i", owner="o", generation=0, position="")
        list(client.do_action(("checkpoints-save", body), options()))

    for call, code, remedy in (
        (
            fetch,
            "offset_out_of_range",
            "read from an offset between earliest and latest",
        ),
        (
            lambda: get(client, orders, incarnation="another"),
            "incarnation_changed",
            "describe the topic again: offsets of the one before are void",
        ),
        (
            save,
            "position_refused",
            "send a position as the Flight protocol describes it",
        ),
    ):
        found = refusal(call)
        assert (found["code"], found["remedy"]) == (code, remedy)


def test_our_own_client_names_its_own_options_in_remedies() -> None:
    for kind in (OffsetOutOfRange, IncarnationChanged):
        status = to_status(kind("gone"))
        assert "out.of.range" not in str(status)
        again = from_status(status)
        assert again is not None
        assert again.remedy == kind.default_remedy
    own = from_status(to_status(OffsetOutOfRange("gone", remedy="set follow")))
    assert own is not None
    assert own.remedy == "set follow"


@pytest.mark.parametrize(
    ("ticket", "what", "remedy"),
    [
        (
            b"{}",
            "expected a Ticket message: a JSON object with its version in 'v'",
            TICKET,
        ),
        (
            message(topic="t", partition="0"),
            "a Ticket message is malformed: partition: expected int, found str",
            TICKET,
        ),
        (
            message(topic="a\nb", partition=0),
            NO_NAME,
            "choose another name",
        ),
    ],
)
def test_a_malformed_ticket_is_answered_with_what_is_wrong(
    client: fl.FlightClient, ticket: bytes, what: str, remedy: str
) -> None:
    found = refusal(lambda: client.do_get(fl.Ticket(ticket), options()).read_all())
    assert (found["code"], found["what"]) == ("format_refused", what)
    assert found["remedy"] == remedy


def test_a_malformed_path_is_answered_with_what_is_wrong(
    client: fl.FlightClient,
) -> None:
    path = fl.FlightDescriptor.for_path("a", "first")
    found = refusal(lambda: client.get_flight_info(path, options()))
    assert found["remedy"] == "write the partition as a decimal number in UTF-8"


@pytest.mark.parametrize("action", ["topics", "health", "statistics"])
def test_a_request_without_members_may_be_empty(
    client: fl.FlightClient, action: str
) -> None:
    for body in (b"", b'{"v":1}'):
        (answer,) = client.do_action((action, body), options())
        assert json.loads(answer.body.to_pybytes())["v"] == 1
    found = refusal(lambda: list(client.do_action(("describe", b""), options())))
    assert found["code"] == "format_refused"


def test_a_token_that_is_refused_is_answered_with_a_message(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text("")
    with (
        streamfactory.serve(memory=True, access_file=str(path)) as server,
        closing(fl.connect(server.location)) as own,
    ):
        for headers, what in (
            ([], "the call has no bearer token"),
            ([(b"authorization", b"Bearer x")], "the bearer token is unknown"),
        ):
            given = fl.FlightCallOptions(timeout=DEADLINE, headers=headers)
            with pytest.raises(fl.FlightUnauthenticatedError) as caught:
                list(own.do_action(("topics", b""), given))
            found = json.loads(caught.value.extra_info)
            assert (found["code"], found["what"]) == ("not_authorized", what)
            assert found["remedy"].startswith("send the header")


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
