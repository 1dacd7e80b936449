"""Rights follow the effect of a call: each cell of the table in docs/flight.md."""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.hostile import (
    HostileClient,
    connected,
    failure,
    inline_attempt,
    message,
    stream_of,
)

import streamfactory
from streamfactory.backends.flight.server.access import Right
from streamfactory.backends.flight.server.rights import Effect, effects
from streamfactory.spi import NotAuthorized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

USERS: Final = {
    "nobody": set[Right](),
    "reader": {Right.READ},
    "writer": {Right.WRITE},
    "admin": {Right.ADMIN},
    "owner": {Right.WRITE, Right.ADMIN},
}
"""Rights on every topic and group."""
ROWS: Final = pa.record_batch({"id": pa.array([1, 2, 3])})
EFFECTS: Final = {effect.call: effect for effect in effects()}


def token(user: str) -> str:
    return f"{user}-has-a-long-token"


@pytest.fixture(scope="module")
def clients(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mapping[str, HostileClient]]:
    """A client of each user, and one of a user with all rights."""
    folder: Path = tmp_path_factory.mktemp("access")
    users = {**USERS, "root": set(Right)}
    lines = ["[tokens]"]
    for user in users:
        (folder / user).write_text(token(user))
        lines.append(f'{user} = "${{file:{folder / user}}}"')
    for table in ("topics", "groups"):
        lines.append(f'[{table}."*"]')
        for right in Right:
            able = [user for user, rights in users.items() if right in rights]
            lines.append(f"{right.value} = {json.dumps(able)}")
    access = folder / "access.toml"
    access.write_text("\n".join(lines))
    with (
        pytest.MonkeyPatch.context() as environment,
        ExitStack() as stack,
    ):
        environment.setenv("STREAMFACTORY_SECRETS", str(folder))
        server = stack.enter_context(
            streamfactory.serve(memory=True, access_file=str(access))
        )
        yield {
            user: stack.enter_context(connected(server.location, token(user)))
            for user in users
        }


def _commit(client: HostileClient, topic: str, **members: Any) -> None:
    client.commit(topic, inline_attempt(stream_of(ROWS)), **members)


def _session(client: HostileClient, topic: str, **members: Any) -> None:
    """One epoch over a session; ``replace`` is a member of the epoch."""
    of_epoch = {key: members.pop(key) for key in ("replace",) if key in members}
    writer_id = uuid.uuid4().hex
    wanted = message(topic=topic, writer=writer_id, instance="", **members)
    descriptor = fl.FlightDescriptor.for_command(wanted)
    writer, reader = client.client.do_exchange(descriptor, client.options())
    parts = [{"partition": 0, "rows": ROWS.num_rows}]
    epoch = message(epoch=0, attempt="a", parts=parts, rows=3, **of_epoch)
    try:
        writer.begin(ROWS.schema)
        writer.write_with_metadata(ROWS, epoch)
        reader.read_chunk()
    finally:
        writer.close()


def _path(topic: str) -> fl.FlightDescriptor:
    return fl.FlightDescriptor.for_path(topic)


def _put(client: HostileClient, topic: str) -> None:
    client.plain(topic, ROWS)
    client.upload(topic, ROWS)


SHORTENING: Final[dict[str, Any]] = {
    "replace": True,
    "retention": {"rows": 1},
    "writer_memory_ms": 0,
}
SCHEMA_TEXT: Final = "schema"
CALLS: Final[dict[str, Callable[[HostileClient, str], Any]]] = {
    "ListFlights": lambda c, t: list(c.client.list_flights(b"", c.options())),
    "GetFlightInfo": lambda c, t: c.client.get_flight_info(_path(t), c.options()),
    "GetSchema": lambda c, t: c.client.get_schema(_path(t), c.options()),
    "DoGet": lambda c, t: c.client.do_get(
        fl.Ticket(message(topic=t, partition=0)), c.options()
    ).read_all(),
    "DoExchange, subscription": lambda c, t: c.read(t),
    "DoPut": _put,
    "DoExchange, commits": _session,
    "topics": lambda c, t: c.act("topics"),
    "health": lambda c, t: c.act("health"),
    "statistics": lambda c, t: c.act("statistics"),
    "describe": lambda c, t: c.act("describe", topic=t),
    "partitions": lambda c, t: c.act("partitions", topics=[t]),
    "offsets-at": lambda c, t: c.act("offsets-at", timestamp_ms=0, partitions={t: [0]}),
    "create": lambda c, t: c.create(uuid.uuid4().hex, ROWS.schema),
    "grow": lambda c, t: c.act("grow", topic=t, partitions=2),
    "truncate": lambda c, t: c.act("truncate", topic=t, before={"0": 1}),
    "retain": lambda c, t: c.act("retain", topic=t, retention={"rows": 1}, hold={}),
    "delete": lambda c, t: c.act("delete", topic=t),
    "compact": lambda c, t: c.act("compact", topic=t),
    "verify": lambda c, t: c.act("verify", topic=t),
    "facts": lambda c, t: c.act("facts", topic=t),
    "commit": _commit,
    "claim": lambda c, t: c.act("claim", topic=t, writer="w", instance="i"),
    "last": lambda c, t: c.act("last", topic=t, writer="w"),
    "discard": lambda c, t: c.act("discard", topic=t, staged={"attempt": "a"}),
    "checkpoints-claim": lambda c, t: c.act(
        "checkpoints-claim", group=t, instance="i", owner="o"
    ),
    "checkpoints-groups": lambda c, t: c.act("checkpoints-groups"),
    "checkpoints-delete": lambda c, t: c.act("checkpoints-delete", group=t),
    "checkpoints-load": lambda c, t: c.act("checkpoints-load", group=t),
    "checkpoints-save": lambda c, t: c.act(
        "checkpoints-save",
        group=t,
        instance="i",
        owner="o",
        generation=0,
        position='{"version":1}',
    ),
    **{
        f"{name} with {member}": partial(call, **{member: SHORTENING[member]})
        for name, call in (("commit", _commit), ("DoExchange, commits", _session))
        for member in SHORTENING
    },
}
"""A request for each row of the table."""


def _is_refused(call: Callable[[], Any]) -> bool:
    """Whether a call is refused for want of a right; other refusals are none."""
    try:
        call()
    except (fl.FlightError, pa.ArrowException) as error:
        if "_get_schema" in str(error):  # pyarrow sends no status for this call
            return "FlightUnauthorizedError" in str(error)
        return failure(error).code == NotAuthorized.code
    return False


def test_table_has_a_request_for_each_of_its_rows() -> None:
    assert EFFECTS.keys() == CALLS.keys()


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("call", EFFECTS)
def test_each_cell_of_the_table_of_rights_holds(
    clients: Mapping[str, HostileClient], call: str, user: str
) -> None:
    effect: Effect = EFFECTS[call]
    topic = uuid.uuid4().hex
    clients["root"].create(topic, ROWS.schema)
    for number in range(2):
        _commit(clients["root"], topic, writer=f"w{number}")
    refused = _is_refused(lambda: CALLS[call](clients[user], topic))
    assert refused == (not effect.rights <= USERS[user])
    if refused:  # nothing was done
        found = clients["root"].act("describe", topic=topic)["partitions"]
        assert found == [{"id": 0, "earliest": 0, "latest": 6}]
        for number in range(2):
            last = clients["root"].act("last", topic=topic, writer=f"w{number}")
            assert last["held"]["epoch"] == 0


@pytest.mark.parametrize("member", SHORTENING)
def test_writer_is_told_which_member_of_its_commit_needs_the_right(
    clients: Mapping[str, HostileClient], member: str
) -> None:
    topic = uuid.uuid4().hex
    clients["root"].create(topic, ROWS.schema)
    with pytest.raises(fl.FlightUnauthorizedError) as caught:
        _commit(clients["writer"], topic, **{member: SHORTENING[member]})
    found = failure(caught.value)
    assert found.what == (
        f"user 'writer' may not administer topic '{topic}', which '{member}' of a "
        "commit needs"
    )
    assert found.remedy is not None
    assert "commit without it" in found.remedy


def test_server_forgets_writers_by_its_own_setting() -> None:
    with (
        streamfactory.serve(memory=True, writer_memory_millis="1ms") as server,
        connected(server.location) as client,
    ):
        client.create("t", ROWS.schema)
        _commit(client, "t", writer="first")
        assert client.act("last", topic="t", writer="first")["held"]["epoch"] == 0
        _commit(client, "t", writer="second", epoch=1)
        _commit(client, "t", writer="second", epoch=2)
        assert "held" not in client.act("last", topic="t", writer="first")
        assert client.act("last", topic="t", writer="second")["held"]["epoch"] == 2
