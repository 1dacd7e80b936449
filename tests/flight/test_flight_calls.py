"""Readers and uploads cannot starve others: calls are counted by client, some kept."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.hostile import HostileClient, connected, failure, message

import streamfactory
from streamfactory.backends.flight.server.limits import Kind, Limits, ServerBusy
from streamfactory.spi import ConnectionFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = pa.record_batch({"id": pa.array([1, 2, 3])})


READ, WRITE, SHORT = Kind.READ, Kind.WRITE, Kind.SHORT


def take(stack: ExitStack, limits: Limits, client: str, kind: Kind) -> None:
    stack.enter_context(limits.call(client, kind, changes=False))


def test_readers_leave_the_reserve_and_uploads_half_of_it() -> None:
    limits = Limits(calls=20, calls_per_client=100, reserved=8)
    with ExitStack() as stack:
        for number in range(12):
            take(stack, limits, f"reader{number}", READ)
        with pytest.raises(ServerBusy, match="another read call reached their limit"):
            take(stack, limits, "another", READ)
        for number in range(4):
            take(stack, limits, f"writer{number}", WRITE)
        with pytest.raises(ServerBusy, match="another write call reached their limit"):
            take(stack, limits, "another", WRITE)
        for _ in range(2):
            take(stack, limits, "committer", SHORT)
        assert limits.open_calls == 18
        assert limits.clients == 17
        with pytest.raises(ServerBusy, match="another short call"):
            take(stack, limits, "committer", SHORT)  # the rest is for others
        for number in range(2):
            take(stack, limits, f"other{number}", SHORT)
        with pytest.raises(ServerBusy, match="limit of 20"):
            take(stack, limits, "one more", SHORT)
        assert limits.refused == 4
    assert limits.open_calls == limits.clients == 0


def test_client_that_has_the_server_for_itself_makes_many_short_calls() -> None:
    limits = Limits(calls=16, calls_per_client=1, reserved=8)
    with ExitStack() as stack:
        for _ in range(14):
            take(stack, limits, "c", SHORT)
        with pytest.raises(ServerBusy):
            take(stack, limits, "c", SHORT)
        take(stack, limits, "other", SHORT)


def test_readers_and_uploads_of_one_client_are_bounded_together() -> None:
    limits = Limits(calls=10, calls_per_client=2, reserved=0)
    with ExitStack() as stack:
        take(stack, limits, "c", READ)
        take(stack, limits, "c", WRITE)
        for kind in (READ, WRITE):
            with pytest.raises(ServerBusy, match="this client reached their limit of"):
                take(stack, limits, "c", kind)
        take(stack, limits, "c", SHORT)
        take(stack, limits, "other", READ)


def test_reserve_is_at_most_the_half() -> None:
    limits = Limits(calls=1, calls_per_client=1, reserved=100)
    with limits.call("c", READ, changes=False):
        assert limits.open_calls == 1


@pytest.fixture
def location() -> Iterator[str]:
    with streamfactory.serve(
        memory=True, calls=12, calls_per_client=100, calls_reserved=4
    ) as server:
        yield server.location


def follow(client: HostileClient) -> fl.FlightStreamReader:
    ticket = fl.Ticket(message(topic="t", partition=0, follow=True))
    reader = client.client.do_get(ticket, client.options())
    assert reader.read_chunk().data.num_rows == 3
    return reader


def test_others_commit_and_look_while_readers_hold_all_calls(location: str) -> None:
    with ExitStack() as stack:
        client = stack.enter_context(connected(location))
        client.create("t", ROWS.schema)
        client.inline("t", ROWS)
        others = [stack.enter_context(connected(location)) for _ in range(2)]
        readers = [follow(others[number % 2]) for number in range(8)]
        for one in (*others, client):
            with pytest.raises(fl.FlightUnavailableError) as caught:
                follow(one)
            found = failure(caught.value)
            assert found.code == ConnectionFailed.code
            assert found.retry_after_ms == 1000
        for _ in range(20):
            assert client.act("health")["ready"]
            assert client.act("topics")["names"] == ["t"]
            client.inline("t", ROWS)
            client.put("t", ROWS)
        for reader in readers:
            reader.cancel()


def test_connections_of_one_address_are_one_client() -> None:
    with (
        streamfactory.serve(memory=True, calls_per_client=3) as server,
        ExitStack() as stack,
    ):
        clients = [stack.enter_context(connected(server.location)) for _ in range(4)]
        clients[0].create("t", ROWS.schema)
        clients[0].inline("t", ROWS)
        readers = [follow(client) for client in clients[:3]]
        with pytest.raises(fl.FlightUnavailableError, match="limit of 3"):
            follow(clients[3])
        for reader in readers:
            reader.cancel()
