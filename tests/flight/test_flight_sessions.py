"""Small epochs that are committed over one long call."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.conftest import stream
from tests.proving.ports import free_port

import streamfactory
from streamfactory.backends.flight.client import committing
from streamfactory.backends.flight.client.connection import Connection
from streamfactory.backends.flight.client.remote import RemoteLogStore
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.failures import from_status
from streamfactory.backends.flight.protocol.rows import InlineRows
from streamfactory.spi import (
    FormatRefused,
    NotAuthorized,
    StreamError,
    WriterFenced,
)
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.writing import claimed

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.wiring.serving.process import ServerProcess
    from streamfactory.wiring.writing.sink import Sink

DEADLINE = 60.0
SCHEMA = pa.schema({"n": pa.int64()})


def rows(*numbers: int) -> pa.RecordBatch:
    values = pa.array(numbers, pa.int64())
    return pa.RecordBatch.from_arrays([values], schema=SCHEMA)


def read(properties: dict[str, str], column: str = "n") -> list[Any]:
    with streamfactory.open(properties) as opened:
        return sorted(opened.to_reader().read_all()[column].to_pylist())


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions stay in use, however busy the machine is."""
    monkeypatch.setattr(committing, "_IDLE_SECONDS", 3600)
    monkeypatch.setattr(claimed, "_SECONDS", 3600)


@pytest.fixture
def actions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the actions that clients perform."""
    performed: list[str] = []
    original = Connection.call

    def call(self: Connection, action: str, request: Any, answer: type[Any]) -> Any:
        performed.append(action)
        return original(self, action, request, answer)

    monkeypatch.setattr(Connection, "call", call)
    return performed


def sessions(sink: Sink) -> committing.CommitSessions:
    found: committing.CommitSessions = sink.factory._sessions  # type: ignore[attr-defined]
    return found


def test_epochs_of_a_writer_are_committed_over_one_call(
    clicks: dict[str, str], actions: list[str]
) -> None:
    with open_sink(clicks) as sink:
        for epoch in range(30):
            assert sink.put(rows(epoch), writer_id="w", epoch=epoch)
        assert actions.count("claim") == 1
        assert actions.count("commit") == 1  # of the first epoch
        assert not sink.put(rows(29), writer_id="w", epoch=29)
    assert read(clicks) == list(range(30))


def test_epoch_without_rows_and_rows_of_many_partitions_go_over_a_session(
    clicks: dict[str, str], actions: list[str]
) -> None:
    clicks["stream.flight.partitions"] = "3"
    color = pa.dictionary(pa.int8(), pa.string())
    with open_sink(clicks) as sink:
        for epoch in range(4):
            # Another dictionary with each epoch.
            found = pa.record_batch(
                {
                    "_partition": pa.array([2, 0, 2], pa.int32()),
                    "n": pa.array([epoch, 10 + epoch, 20 + epoch], pa.int64()),
                    "c": pa.array([f"c{epoch}", None, "x"]).cast(color),
                }
            )
            sink.put(found, writer_id="w", epoch=2 * epoch)
            sink.put(found.slice(0, 0), writer_id="w", epoch=2 * epoch + 1)
    assert actions.count("commit") == 1
    by_partition: dict[int, list[tuple[int, str | None]]] = {}
    with streamfactory.open(clicks) as opened:
        for batch in opened:
            found = by_partition.setdefault(batch.partition.id, [])
            texts = batch.rows["c"].cast(pa.string()).to_pylist()
            found += zip(batch.rows["n"].to_pylist(), texts, strict=True)
    assert by_partition == {
        0: [(10 + epoch, None) for epoch in range(4)],
        2: [
            pair
            for epoch in range(4)
            for pair in ((epoch, f"c{epoch}"), (20 + epoch, "x"))
        ],
    }


def test_commit_whose_answer_was_lost_is_repeated_by_the_action(
    clicks: dict[str, str], actions: list[str]
) -> None:
    class Lost:
        """Reads the answer, and fails as a connection that broke."""

        def __init__(self, reader: Any) -> None:
            self._reader = reader
            self.cancel = reader.cancel

        def read_chunk(self) -> Any:
            assert self._reader.read_chunk().app_metadata
            msg = "Socket closed"
            raise fl.FlightUnavailableError(msg)

    with open_sink(clicks) as sink:
        for epoch in range(3):
            sink.put(rows(epoch), writer_id="w", epoch=epoch)
        opened = sessions(sink)._open
        assert opened is not None
        sessions(sink)._open = opened._replace(reader=Lost(opened.reader))
        actions.clear()
        sink.put(rows(3), writer_id="w", epoch=3)
        assert actions == ["commit"]
        sink.put(rows(4), writer_id="w", epoch=4)
    assert read(clicks) == list(range(5))


def test_session_with_a_server_that_restarted_is_opened_again(folder: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    with streamfactory.serve(path=folder, address=address) as server:
        properties = stream(server, connection_timeout_millis="60000")
        with open_sink(properties) as sink:
            for epoch in range(5):
                sink.put(rows(epoch), writer_id="w", epoch=epoch)
            os.kill(server.pid, signal.SIGKILL)
            server.wait(DEADLINE)
            with streamfactory.serve(path=folder, address=address):
                for epoch in range(5, 10):
                    sink.put(rows(epoch), writer_id="w", epoch=epoch)
                assert sessions(sink)._open is not None
                assert read(properties) == list(range(10))


def test_later_instance_fences_the_session_of_an_earlier_one(
    clicks: dict[str, str],
) -> None:
    with open_sink(clicks) as sink, open_sink(clicks) as later:
        committer = sink.committer(writer_id="w")

        def commit(epoch: int) -> None:
            with closing(
                sink.writer(SCHEMA, writer_id="w", epoch=epoch, committer=committer)
            ) as writer:
                writer.write(rows(epoch))
                committer.commit(epoch, [writer.commit()])

        with closing(committer):
            for epoch in range(4):
                commit(epoch)
            assert sessions(sink)._open is not None
            later.put(rows(4), writer_id="w", epoch=4)
            with pytest.raises(WriterFenced):
                commit(5)
    assert read(clicks) == list(range(5))


def test_writers_that_put_in_turns_claim_in_turns(clicks: dict[str, str]) -> None:
    with open_sink(clicks) as one, open_sink(clicks) as other:
        for epoch in range(12):
            sink = (one, other)[epoch // 3 % 2]
            assert sink.put(rows(epoch), writer_id="w", epoch=epoch)
        assert not one.put(rows(11), writer_id="w", epoch=11)
    assert read(clicks) == list(range(12))


def test_right_that_was_withdrawn_ends_a_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALICE", "alice-has-a-long-token")
    access = tmp_path / "access.toml"
    rules = (
        '[tokens]\nalice = "${env:ALICE}"\n'
        '[topics."clicks"]\nread = ["alice"]\nwrite = ["alice"]\n'
    )
    access.write_text(rules)
    with (
        streamfactory.serve(memory=True, access_file=str(access)) as server,
        open_sink(stream(server, "clicks", token="${env:ALICE}")) as sink,
    ):
        for epoch in range(3):
            sink.put(rows(epoch), writer_id="w", epoch=epoch)
        access.write_text(rules.replace('write = ["alice"]\n', ""))
        deadline = time.monotonic() + DEADLINE

        def put_on() -> None:
            for epoch in itertools.count(3):
                sink.put(rows(epoch), writer_id="w", epoch=epoch)
                assert time.monotonic() < deadline

        with pytest.raises(NotAuthorized):
            put_on()


def test_server_with_an_idle_session_shuts_down(folder: str) -> None:
    with streamfactory.serve(path=folder) as server:
        properties = stream(server, connection_timeout_millis="1000")
        with open_sink(properties) as sink:
            for epoch in range(3):
                sink.put(rows(epoch), writer_id="w", epoch=epoch)
            os.kill(server.pid, signal.SIGTERM)
            assert server.wait(DEADLINE) == 0
            with pytest.raises(StreamError):
                sink.put(rows(3), writer_id="w", epoch=3)


def test_rows_that_wait_for_their_commit_can_be_pickled(clicks: dict[str, str]) -> None:
    with open_sink(clicks) as sink:
        large = pa.record_batch({"n": list(range(10_000))}).slice(7, 3)
        with closing(sink.writer(large.schema, writer_id="w")) as writer:
            writer.write(large)
            message = pickle.dumps(writer.commit())
        assert len(message) < 10_000
        with closing(sink.committer(writer_id="w")) as committer:
            committer.commit(0, [pickle.loads(message)])
    assert read(clicks) == [7, 8, 9]


class Silent(fl.FlightServerBase):  # type: ignore[misc]
    """Takes epochs, and answers none."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.taken = threading.Event()

    def do_exchange(
        self, context: Any, descriptor: Any, reader: Any, writer: Any
    ) -> None:
        reader.read_chunk()
        self.taken.set()
        with suppress(StopIteration):
            reader.read_chunk()


def test_closing_does_not_wait_for_the_answer_to_a_commit() -> None:
    writer = m.WriterInstance(topic="t", writer="w", instance="i")
    epoch = m.EpochHeader(epoch=0, rows=1)
    parts = InlineRows(((0, rows(1)),), SCHEMA)
    found: list[object] = []
    with (
        Silent() as server,
        closing(
            Connection([f"grpc://127.0.0.1:{server.port}"], 600, 600, lambda: ({}, []))
        ) as connection,
    ):
        sessions = committing.CommitSessions(connection)
        assert sessions.commit(writer, epoch, "a", parts) is None  # the first one
        thread = threading.Thread(
            target=lambda: found.append(sessions.commit(writer, epoch, "a", parts))
        )
        thread.start()
        assert server.taken.wait(DEADLINE)
        sessions.close()
        thread.join(DEADLINE)
        assert found == [None]  # the action has to do it


# --- messages of other clients ------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parts": (m.PartRows(0, 2),)}, "the parts of epoch 0 are not its batch of 3"),
        ({"parts": (m.PartRows(0, 4), m.PartRows(0, -1))}, "are not its batch of 3"),
        ({"parts": (m.PartRows(7, 3),)}, "partition 7"),
        ({"position": "{}"}, "position"),
    ],
)
def test_malformed_epoch_is_refused_and_nothing_is_written(
    flight_server: ServerProcess, topic: str, change: dict[str, Any], message: str
) -> None:
    sound = m.CommitRows(epoch=0, attempt="a", parts=(m.PartRows(0, 3),), rows=3)
    with closing(Connection([flight_server.location], 30, 60, lambda: ({}, []))) as one:
        log = RemoteLogStore(one).create(topic, SCHEMA, 1)
        log.claim("w", "i")

        def send(request: m.CommitRows) -> m.Committed:
            wanted = m.CommitSession(topic=topic, writer="w", instance="i")
            descriptor = fl.FlightDescriptor.for_command(encode(wanted))
            writer, reader = one.client().do_exchange(descriptor)
            writer.begin(SCHEMA)
            writer.write_with_metadata(rows(1, 2, 3), encode(request))
            answer = decode(reader.read_chunk().app_metadata, m.Committed)
            writer.close()
            return answer

        with pytest.raises(fl.FlightError) as caught:
            send(m.CommitRows(**{**_members(sound), **change}))
        assert message in str(from_status(caught.value))
        assert log.bounds()[0].latest == 0
        assert send(sound).placed == (m.Placed(0, 0, 3),)
        held = send(sound).held
        assert held is not None
        assert held.rows == 3
        assert log.bounds()[0].latest == 3


def test_exchange_that_is_neither_kind_is_refused(flight_server: ServerProcess) -> None:
    for command in (b"", b'{"v":1}', b'{"v":1,"writer":3}', b'{"v":9,"writer":"w"}'):
        with closing(fl.connect(flight_server.location)) as client:
            descriptor = fl.FlightDescriptor.for_command(command)
            _, reader = client.do_exchange(descriptor)
            with pytest.raises(fl.FlightError) as caught:
                reader.read_chunk()
        assert isinstance(from_status(caught.value), FormatRefused)


def _members(message: m.CommitRows) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__dataclass_fields__}
