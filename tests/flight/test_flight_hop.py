"""What went wrong in Apache Hop's Flight stream, one test each (hop-1 to hop-13)."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.conftest import stream

import streamfactory
from streamfactory.spi import SchemaMismatch, StreamError
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from streamfactory.wiring.serving.process import ServerProcess

DEADLINE = 60.0


def rows(start: int, count: int = 3) -> pa.Table:
    return pa.table({"id": pa.array(range(start, start + count), pa.int64())})


def put(writer: fl.FlightStreamWriter, table: pa.Table) -> None:
    writer.write_table(table)
    writer.close()


def ids(properties: dict[str, str]) -> list[int]:
    with streamfactory.open(properties) as opened:
        found: list[int] = opened.to_reader().read_all()["id"].to_pylist()
    return sorted(found)


def test_a_pause_of_the_writers_is_no_end(clicks: dict[str, str]) -> None:
    """hop-1: a minute without rows ended the reader cleanly, and lost what followed."""
    with open_sink(clicks) as sink:
        sink.put(rows(0), writer_id="w", epoch=0)
        with streamfactory.open(clicks, follow=True, start="earliest") as opened:
            batches = iter(opened)
            assert next(batches).num_rows == 3
            written = threading.Timer(
                1.5, lambda: sink.put(rows(3), writer_id="w", epoch=1)
            )
            written.start()
            assert next(batches).rows["id"].to_pylist() == [3, 4, 5]
            written.join()


def test_a_writer_that_fails_leaves_nothing_and_ends_no_reader(
    clicks: dict[str, str],
) -> None:
    """hop-2: after a writer's failure readers waited, and then saw a clean end."""

    with open_sink(clicks) as sink:
        sink.put(rows(0), writer_id="w", epoch=0)
        with streamfactory.open(clicks, follow=True, start="earliest") as opened:
            batches = iter(opened)
            assert next(batches).num_rows == 3
            writer = sink.writer(rows(0).schema, writer_id="w", epoch=1)
            for number in range(20):
                writer.write(rows(number * 100_000, 100_000).to_batches()[0])
            writer.abort()
            writer.close()
            sink.put(rows(3), writer_id="w", epoch=1)
            assert next(batches).rows["id"].to_pylist() == [3, 4, 5]
    assert ids(clicks) == [0, 1, 2, 3, 4, 5]


def test_rows_written_just_before_the_end_are_read(clicks: dict[str, str]) -> None:
    """hop-3: rows enqueued just before the writer was done could be dropped."""
    for epoch in range(20):
        with open_sink(clicks) as sink:
            sink.put(rows(epoch * 3), writer_id="w", epoch=epoch)
        assert ids(clicks) == list(range((epoch + 1) * 3))


def test_the_end_of_one_writer_does_not_end_the_stream_of_another(
    clicks: dict[str, str],
) -> None:
    """hop-4: the first of two writers to finish ended the stream for both."""
    with open_sink(clicks) as first, open_sink(clicks) as second:
        first.put(rows(0), writer_id="first", epoch=0)
        first.close()
        second.put(rows(3), writer_id="second", epoch=0)
        second.put(rows(6), writer_id="second", epoch=1)
    assert ids(clicks) == list(range(9))


def test_two_readers_each_read_every_row(clicks: dict[str, str]) -> None:
    """hop-5: rows were split between two readers."""
    with open_sink(clicks) as sink:
        for epoch in range(5):
            sink.put(rows(epoch * 3), writer_id="w", epoch=epoch)
    found: list[list[int]] = []
    readers = [
        threading.Thread(target=lambda: found.append(ids(clicks))) for _ in range(2)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(DEADLINE)
    assert found == [list(range(15))] * 2


def test_a_name_that_is_used_again_is_a_new_topic(
    flight_server: ServerProcess, clicks: dict[str, str], topic: str
) -> None:
    """hop-6: the old 'done' flag survived in a stream whose name was used again."""
    with open_sink(clicks) as sink:
        sink.put(rows(0), writer_id="w", epoch=0)
    client = fl.connect(flight_server.location)
    list(client.do_action(("delete", b'{"v":1,"topic":"%b"}' % topic.encode())))
    client.close()
    with open_sink(clicks) as sink:
        sink.put(rows(7), writer_id="w", epoch=0)
    assert ids(clicks) == [7, 8, 9]


def test_a_reader_that_leaves_takes_no_rows_with_it(
    flight_server: ServerProcess, clicks: dict[str, str], topic: str
) -> None:
    """hop-7, hop-10: rows were drained for a client that had gone."""
    with open_sink(clicks) as sink:
        for epoch in range(10):
            sink.put(rows(epoch * 3), writer_id="w", epoch=epoch)
    for _ in range(5):
        client = fl.connect(flight_server.location)
        info = client.get_flight_info(fl.FlightDescriptor.for_path(topic))
        client.do_get(info.endpoints[0].ticket).cancel()
        client.get_schema(fl.FlightDescriptor.for_path(topic))
        client.close()
    assert ids(clicks) == list(range(30))


def test_a_writer_hears_of_a_wrong_schema(clicks: dict[str, str]) -> None:
    """hop-8: schema mismatch and overflow were invisible to the writing program."""
    with open_sink(clicks) as sink:
        sink.put(rows(0), writer_id="w", epoch=0)
        with pytest.raises(SchemaMismatch, match="id"):
            sink.put(pa.table({"id": ["text"]}), writer_id="w", epoch=1)
    assert ids(clicks) == [0, 1, 2]


def test_a_plain_client_hears_of_a_wrong_schema(
    flight_server: ServerProcess, clicks: dict[str, str], topic: str
) -> None:
    """hop-8: also where the client knows nothing of us."""
    with open_sink(clicks) as sink:
        sink.put(rows(0), writer_id="w", epoch=0)
    client = fl.connect(flight_server.location)
    wrong = pa.table({"id": ["text"]})
    writer, _ = client.do_put(fl.FlightDescriptor.for_path(topic), wrong.schema)
    wanted = "column 'id' is string, declared bigint"
    with pytest.raises(fl.FlightError, match=wanted):
        put(writer, wrong)
    client.close()
    assert ids(clicks) == [0, 1, 2]


def test_a_reader_that_stalls_does_not_grow_the_server(folder: str) -> None:
    """hop-9: a slow reader made the server's memory grow without bound."""
    rows_of_a_batch = 1 << 17
    batch = pa.table({"id": pa.array(range(rows_of_a_batch), pa.int64())})
    with streamfactory.serve(path=folder, fsync="never") as server:
        properties = stream(server)
        with open_sink(properties) as sink:
            for epoch in range(100):
                sink.put(batch, writer_id="w", epoch=epoch)
        before = resident(server.pid)
        client = fl.connect(server.location)
        info = client.get_flight_info(fl.FlightDescriptor.for_path("clicks"))
        stalled = [client.do_get(info.endpoints[0].ticket) for _ in range(8)]
        for reader in stalled:
            reader.read_chunk()
        time.sleep(1.0)  # in which a server without flow control sends everything
        grown = resident(server.pid) - before
        for reader in stalled:
            reader.cancel()
        client.close()
    # 100 batches of 1 MiB for each of 8 readers would be 800 MiB.
    assert grown < 200 << 20


def test_looking_at_a_topic_consumes_nothing(
    flight_server: ServerProcess, clicks: dict[str, str], topic: str
) -> None:
    """hop-10: looking up the fields opened the stream and drained it."""
    with open_sink(clicks) as sink:
        sink.put(rows(0), writer_id="w", epoch=0)
    client = fl.connect(flight_server.location)
    descriptor = fl.FlightDescriptor.for_path(topic)
    for _ in range(3):
        assert client.get_schema(descriptor).schema.names == ["id"]
        assert client.get_flight_info(descriptor).total_records == 3
        assert topic.encode() in {f.descriptor.path[0] for f in client.list_flights()}
    client.close()
    assert ids(clicks) == [0, 1, 2]


def test_endpoints_name_the_address_where_the_server_listens(
    flight_server: ServerProcess, clicks: dict[str, str], topic: str
) -> None:
    """hop-11, hop-12: endpoints named a default port, not the server's."""
    with open_sink(clicks) as sink:
        sink.put(rows(0), writer_id="w", epoch=0)
    client = fl.connect(flight_server.location)
    info = client.get_flight_info(fl.FlightDescriptor.for_path(topic))
    client.close()
    places = [str(p.uri, "utf-8") for e in info.endpoints for p in e.locations]
    assert places == [flight_server.location]
    elsewhere = fl.connect(places[0])
    assert elsewhere.do_get(info.endpoints[0].ticket).read_all().num_rows == 3
    elsewhere.close()


def test_what_a_server_cannot_store_is_an_error_of_the_writer(folder: str) -> None:
    """hop-13: the result of storing a row was ignored."""
    with streamfactory.serve(path=folder) as server:
        properties = stream(server)
        with open_sink(properties) as sink:
            sink.put(rows(0), writer_id="w", epoch=0)
            # A limit on the size of files stands for a full disk.
            limit = (1 << 16, resource.RLIM_INFINITY)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, limit)
            large = pa.table({"id": pa.array(range(1 << 17), pa.int64())})
            with pytest.raises(StreamError) as caught:
                sink.put(large, writer_id="w", epoch=1)
            assert caught.value.code == "storage_failed"
            infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, infinite)
            sink.put(rows(3), writer_id="w", epoch=1)
        assert ids(properties) == [0, 1, 2, 3, 4, 5]


def test_a_killed_server_forgets_nothing_it_has_acknowledged(folder: str) -> None:
    properties, epochs = {}, 5
    for life in range(3):
        with streamfactory.serve(path=folder) as server:
            properties = stream(server)
            with open_sink(properties) as sink:
                for epoch in range(life * epochs, (life + 1) * epochs):
                    sink.put(rows(epoch * 3), writer_id="w", epoch=epoch)
            assert ids(properties) == list(range((life + 1) * epochs * 3))
            os.kill(server.pid, signal.SIGKILL)


def test_a_killed_writer_leaves_no_rows(flight_server: ServerProcess) -> None:
    topic = uuid.uuid4().hex
    properties = stream(flight_server, topic)
    with open_sink(properties) as sink:
        sink.put(rows(0), writer_id="w", epoch=0)
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            (
                "import pyarrow as pa, pyarrow.flight as fl, os, time\n"
                f"c = fl.connect({flight_server.location!r})\n"
                f"d = fl.FlightDescriptor.for_path({topic!r})\n"
                "t = pa.table({'id': pa.array(range(100_000), pa.int64())})\n"
                "w, r = c.do_put(d, t.schema)\n"
                "w.write_table(t)\n"
                f"open({str(Path(topic).absolute())!r}, 'w').close()\n"
                "time.sleep(60)\n"
            ),
        ]
    )
    deadline = time.monotonic() + DEADLINE
    while not Path(topic).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    child.kill()
    child.wait()
    time.sleep(0.2)
    assert ids(properties) == [0, 1, 2]


def resident(pid: int) -> int:
    """Bytes of memory of a process."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGESIZE")
