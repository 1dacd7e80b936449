"""What a writer learns while it uploads, and where its rows are once committed."""

from __future__ import annotations

import os
import queue
import signal
import threading
import uuid
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.proving.ports import free_port

import streamfactory
from streamfactory.arrowlog import Epoch
from streamfactory.backends.flight.client import committing, remote, uploading
from streamfactory.backends.flight.client.connection import Connection
from streamfactory.backends.flight.client.remote import RemoteLogStore
from streamfactory.backends.flight.client.uploading import Upload, UploadTarget
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.rows import inline_rows
from streamfactory.spi import (
    FormatRefused,
    IncarnationChanged,
    StreamError,
    Summary,
    TopicNotFound,
)
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.writing import claimed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamfactory.wiring.serving.process import ServerProcess

SCHEMA = pa.schema({"n": pa.int64()})


def rows(count: int, start: int = 0) -> pa.RecordBatch:
    values = pa.array(range(start, start + count), pa.int64())
    return pa.RecordBatch.from_arrays([values], schema=SCHEMA)


@pytest.fixture
def connection(flight_server: ServerProcess) -> Iterator[Connection]:
    with closing(connected(flight_server.location)) as one:
        yield one


def connected(location: str) -> Connection:
    return Connection([location], 30, 60, lambda: ({}, []))


def put_plainly(client: fl.FlightClient, *path: str, count: int) -> list[bytes]:
    """All that the server sends during a plain put of three batches."""
    descriptor = fl.FlightDescriptor.for_path(*path)
    writer, reader = client.do_put(descriptor, SCHEMA)
    for _ in range(3):
        writer.write_batch(rows(count))
    writer.done_writing()
    found = []
    while (message := reader.read()) is not None:
        found.append(bytes(message))
    writer.close()
    return found


# --- plain puts -------------------------------------------------------------------


def test_plain_put_returns_the_offsets_of_its_rows(
    connection: Connection, topic: str
) -> None:
    store = RemoteLogStore(connection)
    store.create(topic, SCHEMA, 2)
    client = connection.client()
    for partition, start in (("0", 0), ("0", 30), ("1", 0)):
        received, appended = put_plainly(client, topic, partition, count=10)
        assert decode(received, m.Received).rows == 30
        (placed,) = decode(appended, m.Appended).placed
        assert placed == m.Placed(int(partition), start, start + 30)


def test_offsets_that_a_plain_put_learned_survive_a_kill(folder: str) -> None:
    address = f"127.0.0.1:{free_port()}"
    with streamfactory.serve(path=folder, address=address) as server:
        with closing(connected(server.location)) as one:
            appended = put_plainly(one.client(), "clicks", count=7)[-1]
        os.kill(server.pid, signal.SIGKILL)
    (placed,) = decode(appended, m.Appended).placed
    with (
        streamfactory.serve(path=folder, address=address) as server,
        closing(connected(server.location)) as one,
    ):
        ticket = m.Ticket("clicks", placed.partition, placed.start, placed.end)
        table = one.client().do_get(fl.Ticket(encode(ticket))).read_all()
    assert table.column("n").to_pylist() == [*range(7)] * 3


def test_plain_put_without_a_reader_of_results_is_committed(
    connection: Connection, topic: str
) -> None:
    client = connection.client()
    writer, _ = client.do_put(fl.FlightDescriptor.for_path(topic), SCHEMA)
    writer.write_batch(rows(5))
    writer.close()
    (partition,) = RemoteLogStore(connection).open(topic).bounds()
    assert (partition.earliest, partition.latest) == (0, 5)


# --- staged uploads ---------------------------------------------------------------


def test_each_batch_is_acknowledged_unless_the_client_declines(
    connection: Connection, topic: str
) -> None:
    RemoteLogStore(connection).create(topic, SCHEMA)
    wanted = m.Stage(topic, uuid.uuid4().hex)
    descriptor = fl.FlightDescriptor.for_command(encode(wanted))
    writer, reader = connection.client().do_put(descriptor, SCHEMA)
    for number in range(1, 4):
        writer.write_with_metadata(rows(10), encode(m.Part(0)))
        assert decode(reader.read(), m.Received).rows == 10 * number
    writer.write_with_metadata(rows(10), encode(m.Part(0, acknowledge=False)))
    writer.done_writing()
    assert decode(reader.read(), m.Sealed).attempt == wanted.attempt
    writer.close()


def test_verdict_of_a_commit_has_the_offsets_of_all_partitions(
    connection: Connection, topic: str
) -> None:
    log = RemoteLogStore(connection).create(topic, SCHEMA, 3)

    def commit(epoch: int) -> Mapping[int, range]:
        staged = []
        for count in (20_000, 5):  # one is uploaded, one travels with the commit
            stage = log.stage(uuid.uuid4().hex)
            stage.append(0, rows(count))
            stage.append(2, rows(1))
            staged.append(stage.seal())
        return log.commit(Epoch("w", epoch, staged, Summary(20_007))).placed

    assert commit(0) == {0: range(20_005), 2: range(2)}
    assert commit(1) == {0: range(20_005, 40_010), 2: range(2, 4)}
    assert commit(1) == {}  # committed before: no effect


def test_offsets_are_right_when_many_commit_at_once(
    connection: Connection, topic: str
) -> None:
    store = RemoteLogStore(connection)
    store.create(topic, SCHEMA)
    found: dict[int, range] = {}

    def commit(writer: int) -> None:
        log = store.open(topic)
        for epoch in range(5):
            stage = log.stage(uuid.uuid4().hex)
            value = 10 * writer + epoch
            stage.append(0, rows(1 + writer, start=1000 * value))
            committed = log.commit(Epoch(str(writer), epoch, [stage.seal()], Summary()))
            found[value] = committed.placed[0]

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ticket = fl.Ticket(encode(m.Ticket(topic, 0)))
    numbers = connection.client().do_get(ticket).read_all().column("n").to_pylist()
    assert len(found) == 20
    for value, span in found.items():
        count = 1 + value // 10
        assert numbers[span.start : span.stop] == [
            1000 * value + n for n in range(count)
        ]


# --- the client -------------------------------------------------------------------


class StagingServer(fl.FlightServerBase):  # type: ignore[misc]
    """Reads an upload; gives the answers of a script."""

    def __init__(self, answer: Callable[[Any, Any], None]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._answer = answer

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        self._answer(reader, writer)

    def __enter__(self) -> UploadTarget:
        self.connection = connected(f"grpc://127.0.0.1:{self.port}")
        return UploadTarget(self.connection, "t", SCHEMA, "i")

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.shutdown()


def test_bytes_in_flight_are_bounded_by_acknowledgements() -> None:
    most = 0

    def answer(reader: Any, writer: Any) -> None:
        """Acknowledge as late as possible: only when the client sends no more."""
        nonlocal most
        chunks: queue.Queue[Any] = queue.Queue()

        def read() -> None:
            with suppress(StopIteration):
                while True:
                    chunks.put(reader.read_chunk())
            chunks.put(None)

        threading.Thread(target=read).start()
        total = acknowledged = 0
        requested: list[tuple[int, int]] = []
        size = 0
        while True:
            try:
                chunk = chunks.get(timeout=0.3 if requested else None)
            except queue.Empty:
                count, acknowledged = requested.pop(0)
                writer.write(encode(m.Received(count, acknowledged)))
                continue
            if chunk is None:
                break
            total, size = total + chunk.data.num_rows, size + chunk.data.nbytes
            most = max(most, size - acknowledged)
            if decode(chunk.app_metadata, m.Part).acknowledge:
                requested.append((total, size))
        for pair in requested:
            writer.write(encode(m.Received(*pair)))
        writer.write(encode(m.Sealed("a")))

    batch = rows(1 << 17)  # 1 MiB
    with StagingServer(answer) as log:
        upload = Upload(log, "a")
        for _ in range(40):
            upload.write(0, batch)
        assert upload.finish() == m.Sealed("a")
    limit = uploading._ACKNOWLEDGED_BYTES
    assert limit <= most <= 2 * limit + batch.nbytes


def write_batches(upload: Upload, count: int) -> None:
    for _ in range(count):
        upload.write(0, rows(10_000))
    upload.finish()


def test_acknowledgement_of_other_rows_is_refused() -> None:
    def answer(reader: Any, writer: Any) -> None:
        with suppress(StopIteration):
            while True:
                reader.read_chunk()
                writer.write(encode(m.Received(1, 1)))

    with StagingServer(answer) as log:
        upload = Upload(log, "a")
        with pytest.raises(FormatRefused, match="acknowledged 1 rows of"):
            write_batches(upload, 100)
        upload.abort()


def test_server_that_ends_the_call_early_is_an_error() -> None:
    def answer(reader: Any, writer: Any) -> None:
        reader.read_chunk()

    with StagingServer(answer) as log:
        upload = Upload(log, "a")
        with pytest.raises(StreamError):
            write_batches(upload, 100)
        upload.abort()


# --- calls of a writer -------------------------------------------------------------


def test_writer_looks_a_topic_up_once_while_it_writes(
    clicks: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    original = Connection.call

    def call(self: Connection, action: str, request: Any, answer: type[Any]) -> Any:
        calls.append(action)
        return original(self, action, request, answer)

    monkeypatch.setattr(Connection, "call", call)
    monkeypatch.setattr(remote, "_FRESH_SECONDS", 3600)  # however busy the machine is
    monkeypatch.setattr(committing, "_IDLE_SECONDS", 3600)
    monkeypatch.setattr(claimed, "_SECONDS", 3600)
    with open_sink(clicks) as sink:
        sink.put(rows(3), writer_id="w", epoch=0)  # creates it
        assert calls[-2:] == ["claim", "commit"]
        sink.put(rows(3), writer_id="w", epoch=1)  # looks at its schema
        calls.clear()
        sink.put(rows(3), writer_id="w", epoch=2)
        assert calls == []  # it has claimed the writer, and has a call open for commits
        sink.put(rows(3))
        calls.clear()
        sink.put(rows(3))
        assert calls == ["commit"]


@pytest.mark.parametrize("writer", ["w", None])
def test_topic_that_was_recreated_is_never_written_by_mistake(
    clicks: dict[str, str], connection: Connection, writer: str | None
) -> None:
    topic = clicks["stream.flight.topic.name"]
    store = RemoteLogStore(connection)
    with open_sink(clicks) as sink:
        sink.put(rows(3), writer_id=writer, epoch=0)
        store.delete(topic)
        store.create(topic, SCHEMA)
        with suppress(IncarnationChanged):  # none where the first put was long ago
            sink.put(rows(3), writer_id=writer, epoch=1)
            assert writer is None
        before = store.open(topic).bounds()[0].latest
        if writer is None:  # who promises nothing across restarts goes on
            sink.put(rows(2))
            assert store.open(topic).bounds()[0].latest == before + 2
        else:
            with pytest.raises(IncarnationChanged):
                sink.put(rows(2), writer_id=writer, epoch=2)
            assert store.open(topic).bounds()[0].latest == before == 0


def test_topic_that_was_deleted_is_created_by_the_next_put(
    clicks: dict[str, str], connection: Connection
) -> None:
    topic = clicks["stream.flight.topic.name"]
    store = RemoteLogStore(connection)
    with open_sink(clicks) as sink:
        sink.put(rows(3))
        store.delete(topic)
        with suppress(TopicNotFound):  # none where the first put was long ago
            sink.put(rows(3))
        sink.put(rows(3))
        assert store.open(topic).bounds()[0].latest in (3, 6)


# --- batches that are joined -----------------------------------------------------


def texts(count: int, size: int) -> pa.RecordBatch:
    return pa.record_batch({"s": pa.array(["x" * size] * count, pa.string())})


def test_small_batches_that_grow_are_not_joined_to_one_that_is_too_large() -> None:
    with streamfactory.serve(memory=True, batch_bytes="20M") as server:
        properties = {
            "streamType": "flight",
            "stream.flight.location": server.location,
            "stream.flight.topic.name": "texts",
        }
        with open_sink(properties) as sink:
            schema = texts(0, 0).schema
            with closing(sink.writer(schema, writer_id="w")) as writer:
                writer.write(texts(1, 1))  # by which the others are guessed
                for _ in range(6):
                    writer.write(texts(1000, 10_000))
                message = writer.commit()
            with closing(sink.committer(writer_id="w")) as committer:
                committer.commit(0, [message])
        with streamfactory.open(properties) as opened:
            found = opened.to_reader().read_all()["s"]
        assert found.num_chunks > 1
        assert len(found) == 6001


def test_rows_that_grow_are_uploaded_rather_than_sent_with_the_commit(
    connection: Connection, topic: str
) -> None:
    log = RemoteLogStore(connection).create(topic, texts(0, 0).schema)
    for size in (1, 100_000):
        stage = log.stage(uuid.uuid4().hex)
        stage.append(0, texts(1, 1))
        stage.append(0, texts(10, size))
        sealed = stage.seal()
        assert (inline_rows(sealed) is None) == (size > 1)
        log.commit(Epoch(None, 0, [sealed], Summary(11)))
    assert log.bounds()[0].latest == 22
