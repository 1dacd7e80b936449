"""Checkpoints of groups on the server: durable, fenced, and refused when foreign."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
import uuid
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.conftest import stream
from tests.proving.ports import free_port

import streamfactory
from streamfactory.arrowlog import MemoryLog, MemoryLogStore
from streamfactory.backends.flight.client.checkpoints import RemoteCheckpointStore
from streamfactory.backends.flight.client.connection import Connection
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import encode
from streamfactory.backends.flight.server import checkpoints as keeping
from streamfactory.backends.flight.server.checkpoints import CheckpointKeeper
from streamfactory.spi import (
    Checkpoint,
    CheckpointFailed,
    FormatRefused,
    IncarnationChanged,
    MessageTooLarge,
    NotAuthorized,
    Partition,
    Position,
    PositionRefused,
    StorageFailed,
    TransientError,
    WriterFenced,
)
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.serving.process import ServerProcess
    from streamfactory.wiring.streams.stream import Stream

POSITION = Position({Partition("clicks", 0): 23}, {Partition("clicks", 0): "a1"})
FURTHER = POSITION.with_offset(Partition("clicks", 0), 99)


@pytest.fixture
def connection(flight_server: ServerProcess) -> Iterator[Connection]:
    with closing(Connection([flight_server.location], 30, 30, lambda: ({}, []))) as one:
        yield one


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex}"


def member(properties: dict[str, str], instance: str = "0/1", **more: str) -> Stream:
    kind = "stream.flight.consumer.type"
    return streamfactory.open(
        {
            **properties,
            kind: "highlevel",
            "group.id": properties["stream.flight.topic.name"],
            "group.instance": instance,
            "startingOffsets": "earliest",
            **more,
        }
    )


def put(properties: dict[str, str], epoch: int, rows: int, **options: str) -> None:
    table = pa.table({"n": pa.array(range(rows), pa.int64())})
    with open_sink({**properties, **options}) as sink:
        sink.put(table, writer_id="w", epoch=epoch)


def read(opened: Stream, rows: int) -> list[tuple[int, int]]:
    """Partition and offset of so many rows."""
    found: list[tuple[int, int]] = []
    while len(found) < rows:
        batch = opened.next_batch(30)
        assert batch is not None
        assert batch.first_offset is not None
        partition = batch.partition.id
        found += [(partition, n) for n in range(batch.first_offset, batch.next_offset)]
    return found


# --- the store -------------------------------------------------------------------


def test_new_group_has_no_checkpoints(connection: Connection, group: str) -> None:
    assert RemoteCheckpointStore(connection).load(group) == {}


def test_checkpoints_come_back_by_instance(connection: Connection, group: str) -> None:
    first, second = (RemoteCheckpointStore(connection) for _ in range(2))
    first.claim(group, "0-of-2")
    second.claim(group, "1-of-2")
    assert first.load(group) == {}
    first.save(group, "0-of-2", Checkpoint(POSITION, 3))
    first.save(group, "0-of-2", Checkpoint(FURTHER, 4))
    second.save(group, "1-of-2", Checkpoint(POSITION, 1))
    expected = {"0-of-2": Checkpoint(FURTHER, 4), "1-of-2": Checkpoint(POSITION, 1)}
    assert first.load(group) == second.load(group) == expected
    assert RemoteCheckpointStore(connection).load(f"{group}-other") == {}


def test_save_whose_answer_was_lost_may_be_repeated(
    connection: Connection, group: str
) -> None:
    store = RemoteCheckpointStore(connection)
    store.claim(group, "0-of-1")
    for _ in range(2):
        store.save(group, "0-of-1", Checkpoint(POSITION, 1))
    assert store.load(group) == {"0-of-1": Checkpoint(POSITION, 1)}


def test_earlier_run_of_an_instance_is_fenced_before_the_later_one_saves(
    connection: Connection, group: str
) -> None:
    earlier, later = (RemoteCheckpointStore(connection) for _ in range(2))
    earlier.claim(group, "0-of-1")
    earlier.save(group, "0-of-1", Checkpoint(POSITION, 1))
    later.claim(group, "0-of-1")
    with pytest.raises(WriterFenced) as caught:
        earlier.save(group, "0-of-1", Checkpoint(FURTHER, 2))
    assert "another instance has claimed writer '0-of-1'" in str(caught.value)
    later.save(group, "0-of-1", Checkpoint(FURTHER, 2))
    assert later.load(group) == {"0-of-1": Checkpoint(FURTHER, 2)}


def test_earlier_run_is_fenced_even_if_it_saves_what_the_later_one_saved(
    clicks: dict[str, str],
) -> None:
    put(clicks, 0, 5)
    with closing(member(clicks)) as earlier:
        assert len(read(earlier, 5)) == 5
        with closing(member(clicks)) as later:
            assert len(read(later, 5)) == 5
            later.commit()
        with pytest.raises(WriterFenced, match="another instance has claimed"):
            earlier.commit()


def test_generation_that_was_saved_with_another_position_is_refused(
    connection: Connection, group: str
) -> None:
    store = RemoteCheckpointStore(connection)
    store.claim(group, "0-of-1")
    store.save(group, "0-of-1", Checkpoint(POSITION, 5))
    for generation in (5, 4):
        with pytest.raises(WriterFenced, match="generation 5 was saved before"):
            store.save(group, "0-of-1", Checkpoint(FURTHER, generation))
    assert store.load(group) == {"0-of-1": Checkpoint(POSITION, 5)}


@pytest.mark.parametrize(
    ("changes", "error", "what"),
    [
        ({"position": "no position"}, PositionRefused, "is not JSON"),
        ({"position": '{"version":7}'}, PositionRefused, "has version 7"),
        ({"position": '{"version":1,"offsets":{"t":{"0":-1}}}'}, PositionRefused, "-1"),
        ({"generation": -1}, FormatRefused, "generation: expected an integer from 0"),
        ({"group": ""}, FormatRefused, "printable"),
        ({"group": "g" * 250}, FormatRefused, "printable"),
        ({"instance": "a\nb"}, FormatRefused, "printable"),
        ({"instance": "i" * 250}, FormatRefused, "printable"),
        ({"owner": ""}, FormatRefused, "printable"),
    ],
)
def test_what_is_no_checkpoint_is_refused_and_nothing_is_saved(
    connection: Connection, group: str, changes: dict[str, Any], error: Any, what: str
) -> None:
    sound = {
        "group": group,
        "instance": "0-of-1",
        "owner": "me",
        "generation": 1,
        "position": POSITION.to_json(),
    }
    wanted = m.SaveCheckpoint(**{**sound, **changes})
    with pytest.raises(error) as caught:
        connection.call("checkpoints-save", wanted, m.Done)
    assert what in str(caught.value)
    assert RemoteCheckpointStore(connection).load(group) == {}


def test_names_of_groups_are_no_paths(connection: Connection) -> None:
    for name in ("..", "../x", "/etc", "a/b", ".hidden", "clicks.topic"):
        store = RemoteCheckpointStore(connection)
        store.claim(name, "0-of-1")
        store.save(name, "0-of-1", Checkpoint(POSITION, 1))
        assert store.load(name) == {"0-of-1": Checkpoint(POSITION, 1)}


def test_groups_are_no_topics(
    connection: Connection, group: str, clicks: dict[str, str]
) -> None:
    put(clicks, 0, 3)
    store = RemoteCheckpointStore(connection)
    topic = clicks["stream.flight.topic.name"]
    for name in (topic, group):
        store.claim(name, "0-of-1")
        store.save(name, "0-of-1", Checkpoint(POSITION, 1))
    names = connection.call("topics", m.Done(), m.Names).names
    assert topic in names
    assert group not in names
    with streamfactory.open(clicks) as opened:
        assert opened.to_reader().read_all().num_rows == 3


def test_checkpoints_of_a_group_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_MOST_INSTANCES", 2)
    monkeypatch.setattr(keeping, "_MOST_BYTES", 2 * len(FURTHER.to_json()))
    store = MemoryLogStore()
    keeper = CheckpointKeeper(store)

    def save(instance: str, generation: int, position: Position) -> None:
        text = position.to_json()
        keeper.save(m.SaveCheckpoint("g", instance, "me", generation, text))

    for generation in range(1, 50):
        save("0-of-2", generation, FURTHER)
    save("1-of-2", 1, POSITION)
    long = FURTHER.with_offset(Partition("a longer name", 0), 1)
    keeper = CheckpointKeeper(store)  # after a restart
    with pytest.raises(MessageTooLarge, match="group 'g' would have 2 checkpoints of"):
        save("0-of-2", 50, long)
    for _ in range(2):
        with pytest.raises(MessageTooLarge, match="group 'g' would have 3 checkpoints"):
            keeper.claim(m.ClaimCheckpoint("g", "0-of-1", "me"))
    assert len(keeper.load(m.Group("g")).checkpoints) == 2


def test_full_disk_leaves_the_previous_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryLogStore()
    keeper = CheckpointKeeper(store)
    keeper.save(m.SaveCheckpoint("g", "0-of-1", "me", 1, POSITION.to_json()))

    def full(*args: Any, **more: Any) -> None:
        msg = "No space left on device"
        raise StorageFailed(msg)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryLog, "commit", full)
        with pytest.raises(CheckpointFailed) as caught:
            keeper.save(m.SaveCheckpoint("g", "0-of-1", "me", 2, FURTHER.to_json()))
    assert str(caught.value) == (
        "the checkpoint of instance '0-of-1' of group 'g' could not be saved: "
        "No space left on device; the previous checkpoint stays valid"
    )
    (saved,) = keeper.load(m.Group("g")).checkpoints.values()
    assert saved == m.SavedCheckpoint(1, POSITION.to_json())
    keeper.save(m.SaveCheckpoint("g", "0-of-1", "me", 2, FURTHER.to_json()))


def test_hostile_answer_of_a_server_is_refused() -> None:
    for position, generation in (("{}", 1), ('{"version":9}', 1), ("", 1), ("{}", -1)):
        with HostileServer(position, generation) as location:
            one = Connection([location], 30, 30, lambda: ({}, []))
            with closing(one), pytest.raises(PositionRefused) as caught:
                RemoteCheckpointStore(one).load("g")
        assert "the checkpoint of instance '0-of-1' of group 'g'" in str(caught.value)


class HostileServer(fl.FlightServerBase):  # type: ignore[misc]
    """Answers every action with one checkpoint."""

    def __init__(self, position: str, generation: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        saved = m.SavedCheckpoint(generation, position)
        self._answer = encode(m.Checkpoints({"0-of-1": saved}))

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        return [self._answer]

    def __enter__(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"


# --- groups ----------------------------------------------------------------------


def test_group_without_a_folder_resumes_at_its_last_commit(
    clicks: dict[str, str],
) -> None:
    put(clicks, 0, 5)
    with closing(member(clicks)) as opened:
        assert read(opened, 5) == [(0, n) for n in range(5)]
        opened.commit()
    put(clicks, 1, 2)
    with closing(member(clicks)) as opened:
        assert read(opened, 2) == [(0, 5), (0, 6)]
    with closing(member(clicks)) as opened:  # nothing was committed
        assert read(opened, 2) == [(0, 5), (0, 6)]


def test_folder_that_is_given_wins_over_the_server(
    clicks: dict[str, str], tmp_path: Path
) -> None:
    put(clicks, 0, 5)
    with closing(member(clicks, **{"checkpoint.location": str(tmp_path)})) as opened:
        read(opened, 5)
        opened.commit()
    assert (tmp_path / clicks["stream.flight.topic.name"] / "0-of-1.json").exists()
    with closing(member(clicks)) as opened:
        assert len(read(opened, 5)) == 5


def test_two_instances_share_a_stream_and_one_takes_over(
    clicks: dict[str, str],
) -> None:
    keys = {"stream.flight.partitions": "3", "producer.key.columns": "n"}
    put(clicks, 0, 6, **keys)
    with (
        closing(member(clicks, "0/2")) as first,
        closing(member(clicks, "1/2")) as second,
    ):
        partitions = [{p.id for p in one.position} for one in (first, second)]
        assert sorted(partitions[0] | partitions[1]) == [0, 1, 2]
        assert not partitions[0] & partitions[1]
        total = 0
        for one in (first, second):
            while (batch := one.next_batch(2)) is not None:
                total += batch.num_rows
                if not batch.num_rows or total == 6:
                    break
            one.commit()
        assert total == 6
    with closing(member(clicks)) as alone:
        assert sum(offset for _, offset in alone.position.items()) == 6


def test_second_process_of_an_instance_fences_the_first(
    clicks: dict[str, str],
) -> None:
    put(clicks, 0, 5)
    with closing(member(clicks)) as first:
        read(first, 5)
        with closing(member(clicks)) as second:
            with pytest.raises(WriterFenced):
                first.commit()
            assert len(read(second, 5)) == 5
            second.commit()
            put(clicks, 1, 1)
            read(first, 1)
            with pytest.raises(WriterFenced):
                first.commit()


def test_position_of_a_topic_that_was_recreated_is_refused(
    clicks: dict[str, str], connection: Connection
) -> None:
    put(clicks, 0, 5)
    with closing(member(clicks)) as opened:
        read(opened, 5)
        opened.commit()
    topic = clicks["stream.flight.topic.name"]
    connection.call("delete", m.Topic(topic), m.Done)
    put(clicks, 0, 9)
    with pytest.raises(IncarnationChanged), closing(member(clicks)) as opened:
        opened.next_batch(30)


def test_checkpoint_survives_a_server_that_is_killed_after_the_commit(
    folder: str,
) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    with streamfactory.serve(path=folder, address=address) as server:
        properties = stream(server)
        put(properties, 0, 5)
        with closing(member(properties)) as opened:
            assert len(read(opened, 5)) == 5
            opened.commit()
            os.kill(server.pid, signal.SIGKILL)
    with streamfactory.serve(path=folder, address=address):
        put(properties, 1, 1)
        with closing(member(properties)) as opened:
            assert read(opened, 1) == [(0, 5)]


def test_commit_waits_for_a_server_that_restarts(folder: str) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    properties = {
        "stream.flight.connection.timeout.millis": "60000",
        "retry.max.attempts": "100",
        "retry.initial.millis": "50",
        "retry.max.millis": "500",
    }
    with streamfactory.serve(path=folder, address=address) as server:
        properties |= stream(server)
        put(properties, 0, 5)
        opened = member(properties)
        assert len(read(opened, 5)) == 5
        os.kill(server.pid, signal.SIGKILL)
    with closing(opened):
        committing = threading.Thread(target=opened.commit)
        committing.start()
        with streamfactory.serve(path=folder, address=address):
            committing.join(60)
            assert not committing.is_alive()
            with closing(member(properties)) as again:
                assert dict(again.position) == dict(opened.position)


def test_rights_on_groups_are_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALICE", "alice-has-a-long-token")
    monkeypatch.setenv("BOB", "bob-has-another-token")
    access = tmp_path / "access.toml"
    access.write_text(
        '[tokens]\nalice = "${env:ALICE}"\nbob = "${env:BOB}"\n'
        '[topics."*"]\nread = ["*"]\nwrite = ["*"]\n'
        '[groups."clicks"]\nread = ["alice"]\nwrite = ["alice"]\n'
    )
    with streamfactory.serve(memory=True, access_file=str(access)) as server:
        alice, bob = (
            stream(server, token=f"${{env:{name}}}") for name in ("ALICE", "BOB")
        )
        put(alice, 0, 5)
        with closing(member(alice)) as opened:
            read(opened, 5)
            opened.commit()
        with pytest.raises(NotAuthorized, match="'bob' may not write the checkpoints"):
            member(bob)


@pytest.mark.long("three kills of a server")
def test_no_checkpoint_that_was_acknowledged_is_lost_by_kills(folder: str) -> None:
    port, chance = free_port(), random.Random(3)
    acknowledged: dict[str, int] = {}
    sent: dict[str, int] = {}

    def keep_saving(connection: Connection, instance: str) -> None:
        store = RemoteCheckpointStore(connection)
        with suppress(TransientError):
            store.claim("g", instance)
            saved = store.load("g").values()
            generation = max((one.generation for one in saved), default=0)
            while True:
                generation += 1
                position = Position({Partition("t", 0): generation})
                sent[instance] = generation
                store.save("g", instance, Checkpoint(position, generation))
                acknowledged[instance] = generation

    for _ in range(3):
        with (
            streamfactory.serve(path=folder, address=f"127.0.0.1:{port}") as server,
            closing(Connection([server.location], 30, 30, lambda: ({}, []))) as one,
        ):
            before = dict(acknowledged)
            names = [f"{number}-of-3" for number in range(3)]
            threads = [
                threading.Thread(target=keep_saving, args=(one, name)) for name in names
            ]
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + 60
            while acknowledged.keys() != {*names} or acknowledged == before:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(chance.random() * 0.3)
            os.kill(server.pid, signal.SIGKILL)
            for thread in threads:
                thread.join()
        with (
            streamfactory.serve(path=folder, address=f"127.0.0.1:{port}") as server,
            closing(Connection([server.location], 30, 30, lambda: ({}, []))) as one,
        ):
            found = RemoteCheckpointStore(one).load("g")
            for name, generation in acknowledged.items():
                assert generation <= found[name].generation <= sent[name]
                (offset,) = found[name].position.values()
                assert offset == found[name].generation
