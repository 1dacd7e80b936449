"""Writing: to one reader or several, back-pressure, and who learns which end."""

from __future__ import annotations

import json
import socket
import struct
import time
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.proving.commands import command_of
from tests.sockets.peers import (
    DIALLED,
    PATIENCE,
    SCHEMA,
    Background,
    dialled,
    numbers_of,
    opened,
    properties_of,
    read_plainly,
    rows,
    sink_of,
    source_of,
    until,
)

from streamfactory.spi import (
    Cancelled,
    ClosedError,
    ConnectionFailed,
    Failed,
    Finished,
    IncarnationChanged,
    MisuseError,
    Partition,
    ReaderFinished,
    SchemaMismatch,
    StreamTimeout,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.writing.sink import Sink
    from streamfactory.wiring.writing.writer import Writer

PARTITION_0 = Partition("rows", 0)
LARGE = 200_000
"""Rows of a batch that is not copied on its way."""


def plain_reader(port: int) -> Background:
    """Reads with pyarrow alone."""
    return Background(lambda: numbers_of(read_plainly(dialled(port))))


def test_a_reader_that_connects_gets_every_row_and_the_end(
    port: int, address: str
) -> None:
    with sink_of(listen=address) as sink:
        reading = plain_reader(port)
        sink.put(rows(1, 2))
        sink.put(rows(*range(LARGE)))
        sink.put(rows(*range(LARGE)))
        sink.end_stream(Finished())
        assert reading.result() == [1, 2, *range(LARGE), *range(LARGE)]


def test_a_reader_that_listens_gets_every_row_and_the_end(
    port: int, address: str
) -> None:
    def accept() -> list[int]:
        with socket.create_server(("127.0.0.1", port)) as server:
            return numbers_of(read_plainly(server.accept()[0]))

    with sink_of(connect=address) as sink:
        reading = Background(accept)
        sink.put(rows(1, 2))
        sink.end_stream(Finished())
        assert reading.result() == [1, 2]


def test_every_one_of_several_readers_gets_every_row(port: int, address: str) -> None:
    with sink_of(listen=address, readers="3") as sink:
        reading = [plain_reader(port) for _ in range(3)]
        sink.put(rows(1, 2))
        sink.put(rows(3))
        sink.end_stream(Finished())
        assert [one.result() for one in reading] == [[1, 2, 3]] * 3


def test_rows_wait_until_all_readers_have_come(port: int, address: str) -> None:
    with sink_of(listen=address, readers="2") as sink:
        first = plain_reader(port)
        writing = Background(lambda: sink.put(rows(1)))
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", 1))  # some time goes by
        assert not writing.is_done
        second = plain_reader(port)
        writing.result()
        sink.end_stream(Finished())
        assert (first.result(), second.result()) == ([1], [1])


def test_without_readers_writing_gives_up(address: str) -> None:
    with sink_of(listen=address, connection__timeout__millis="300") as sink:
        with pytest.raises(StreamTimeout) as caught:
            sink.put(rows(1))
        assert str(caught.value) == (
            f"{address}: 0 of 1 readers connected before the timeout (stream "
            "'socket:rows'); "
            "start the readers, or increase connection.timeout.millis"
        )


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_both_halves_understand_each_other(address: str, compression: str) -> None:
    table = pa.table({"n": range(LARGE), "t": [f"é{n % 97}" for n in range(LARGE)]})

    def read() -> pa.Table:
        with opened(connect=address) as stream:
            return pa.Table.from_batches(batch.rows for batch in stream)

    reading = Background(read)
    with sink_of(listen=address, compression=compression) as sink:
        for epoch in range(3):
            sink.put(table, epoch=epoch)
        sink.end_stream(Finished())
    assert reading.result().equals(pa.concat_tables([table] * 3))


def test_rows_go_to_the_partition_they_name(folder: Path) -> None:
    address = f"unix:{folder}/{{0-2}}.s"

    def read() -> dict[int, list[int]]:
        found: dict[int, list[int]] = {0: [], 1: [], 2: []}
        with opened(connect=address) as stream:
            for batch in stream:
                found[batch.partition.id] += numbers_of([batch])
            assert set(stream.ends.values()) == {Finished()}
        return found

    reading = Background(read)
    with sink_of(listen=address) as sink:
        assert sink.partition_count() == 3
        places = pa.array([2, 0, 2], pa.int32())
        sink.put(pa.record_batch({"n": [1, 2, 3], "_partition": places}))
        sink.end_stream(Finished())
    assert reading.result() == {0: [2], 1: [], 2: [1, 3]}


# --- ends -----------------------------------------------------------------------------


def test_an_empty_stream_has_its_schema(port: int, address: str) -> None:
    with sink_of(listen=address) as sink:
        reading = Background(
            lambda: pa.ipc.open_stream(dialled(port).makefile("rb")).read_all()
        )
        sink.writer(SCHEMA).close()
        ending = Background(lambda: sink.end_stream(Finished()))
        assert reading.result().equals(SCHEMA.empty_table())
        DIALLED[0].close()
        ending.result()


def test_a_stream_without_a_schema_cannot_end(address: str) -> None:
    with sink_of(listen=address) as sink, pytest.raises(MisuseError) as caught:
        sink.end_stream(Finished())
    assert "the stream cannot be ended: it has no schema yet" in str(caught.value)


@contextmanager
def unfinished(port: int, address: str) -> Iterator[tuple[Sink, Writer]]:
    """A sink and its writer, whose stream then fails for a plain reader."""
    with sink_of(listen=address) as sink:
        reading = plain_reader(port)
        writer = sink.writer(SCHEMA)
        writer.write(rows(1))
        yield sink, writer
        with pytest.raises(pa.ArrowInvalid, match="Corrupted metadata length"):
            reading.result()
        writer.close()


def test_an_aborted_attempt_is_a_failure_to_plain_pyarrow(
    port: int, address: str
) -> None:
    with unfinished(port, address) as (_, writer):
        writer.abort()


def test_an_epoch_that_a_committer_aborts_is_a_failure_to_plain_pyarrow(
    port: int, address: str
) -> None:
    with (
        unfinished(port, address) as (sink, writer),
        closing(sink.committer()) as committer,
    ):
        committer.abort(0, [writer.commit(), None])
        committer.abort(0, [])


def test_a_closed_stream_without_an_end_is_a_failure_to_plain_pyarrow(
    port: int, address: str
) -> None:
    with unfinished(port, address) as (sink, writer):
        writer.commit()
        sink.close()


def test_a_cancelled_stream_is_a_failure_to_plain_pyarrow(
    port: int, address: str
) -> None:
    with unfinished(port, address) as (sink, writer):
        writer.commit()
        sink.end_stream(Cancelled("the user"))


def test_a_stream_that_does_not_finish_is_a_failure_to_ours(address: str) -> None:
    source = source_of(connect=address, x_schema="n bigint")
    with sink_of(listen=address) as sink, closing(source.reader(PARTITION_0)) as reader:
        fetching = Background(lambda: reader.fetch(0, timeout=PATIENCE))
        sink.put(rows(1))
        assert numbers_of([fetching.result()]) == [1]
        sink.close()
        assert isinstance(reader.fetch(1, timeout=PATIENCE).end, Failed)
    source.close()


def test_the_attempt_after_an_abort_has_separate_readers(
    port: int, address: str
) -> None:
    with sink_of(listen=address) as sink:
        reading = plain_reader(port)
        writer = sink.writer(SCHEMA)
        writer.write(rows(1))
        writer.abort()
        writer.close()
        with pytest.raises(pa.ArrowInvalid, match="Corrupted metadata length"):
            reading.result()
        again = Background(lambda: sink.put(rows(2)))
        reading = plain_reader(port)
        again.result()
        sink.end_stream(Finished())
        assert reading.result() == [2]


def test_a_reader_that_has_enough_is_no_error(port: int, address: str) -> None:
    with sink_of(listen=address) as sink:
        writer = sink.writer(SCHEMA)
        reader = dialled(port)
        writer.write(rows(1))
        assert writer.end is None
        reader.close()
        until(lambda: writer.end == ReaderFinished())
        writer.write(rows(2, 3))
        writer.commit()
        assert writer.counters.unread == 2
        writer.close()
        assert sink.end_stream(Finished()) == ReaderFinished()


def test_one_reader_that_leaves_stops_no_other(port: int, address: str) -> None:
    with sink_of(listen=address, readers="2") as sink:
        writer = sink.writer(SCHEMA)
        leaving, staying = dialled(port), plain_reader(port)
        writer.write(rows(1))
        leaving.close()
        for number in range(2, 50):
            writer.write(rows(number))
        assert writer.end is None
        writer.commit()
        writer.close()
        assert sink.end_stream(Finished()) == ReaderFinished()
        assert staying.result() == list(range(1, 50))


def read_all(connection: socket.socket) -> None:
    """Read until nothing comes any more."""
    connection.settimeout(0.3)
    with suppress(TimeoutError):
        while connection.recv(1 << 16):
            pass


@pytest.mark.parametrize("unread", [True, False], ids=["reset", "closed"])
def test_a_reader_that_closes_before_the_end_has_not_confirmed_it(
    port: int, address: str, *, unread: bool
) -> None:
    with sink_of(listen=address) as sink:
        reader = dialled_later(port)
        sink.put(rows(*range(1000)))
        if not unread:
            read_all(reader.result())
        reader.result().close()
        assert sink.end_stream(Finished()) == ReaderFinished()


def test_publish_fails_where_a_reset_cuts_what_it_sent(
    port: int, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("n\n" + "1234567\n" * 2_000_000)
    name = tmp_path / "s.json"
    body = {"name": "s", "properties": properties_of(listen=address)}
    name.write_text(json.dumps(body))

    def read_some() -> None:
        reader = dialled(port)
        for _ in range(64):  # of some 250 pieces
            assert reader.recv(1 << 16, socket.MSG_WAITALL)
        reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reader.close()

    reading = Background(read_some)
    publish = command_of(capsys, "publish")
    done = publish(name, file, "--schema", "n bigint", "--json")
    reading.result()
    assert done.status == 1
    assert "may lack rows" in done.err
    assert done.json["confirmed"] is False


def test_a_reader_that_speaks_is_none(port: int, address: str) -> None:
    with sink_of(listen=address) as sink:
        writer = sink.writer(SCHEMA)
        dialled(port).sendall(b"GET / HTTP/1.1\r\n\r\n")
        writer.write(rows(1))
        with pytest.raises(ConnectionFailed) as caught:
            until(lambda: writer.end)
        assert "the reader sent bytes, which readers never do" in str(caught.value)
        writer.abort()
        writer.close()


def test_an_end_that_no_reader_takes_is_a_time_out(port: int, address: str) -> None:
    with sink_of(listen=address, connection__timeout__millis="500") as sink:
        reader = dialled_later(port)
        sink.put(rows(1))
        with pytest.raises(StreamTimeout) as caught:
            sink.end_stream(Finished())
        assert "a reader has not closed after the end of the stream" in str(
            caught.value
        )
        reader.result().close()


def dialled_later(port: int) -> Background:
    return Background(lambda: dialled(port))


def test_a_stream_that_was_finished_takes_nothing(port: int, address: str) -> None:
    with sink_of(listen=address) as sink:
        reading = plain_reader(port)
        sink.put(rows(1))
        assert sink.end_stream(Finished()) is None
        assert reading.result() == [1]
        sink.end_stream(Finished())
        with pytest.raises(MisuseError) as caught:
            sink.put(rows(2))
        assert "the stream is finished: no more rows can be written" in str(
            caught.value
        )


# --- back-pressure --------------------------------------------------------------------


def fill(sink: Sink) -> int:
    """Write until something stops it; answers the rows that were taken before."""
    writer = sink.writer(SCHEMA)
    taken = 0
    batch = rows(*range(1000))
    try:
        while taken < 100_000_000:
            writer.write(batch)
            taken += 1000
    except StreamTimeout:
        return taken
    finally:
        writer.close()
    raise AssertionError


def test_a_stalled_reader_holds_the_writer_back(port: int, address: str) -> None:
    before = pa.total_allocated_bytes()
    options = {"buffer__bytes": "64K", "stall__timeout__millis": "300"}
    with sink_of(listen=address, **options) as sink:
        filling = Background(lambda: fill(sink))
        reader = dialled(port)
        taken = filling.result()
        reader.close()
    # 8 bytes a row: no more than what the two buffers of the system can hold.
    assert 1000 <= taken < 2_000_000
    # Small batches are joined to messages of a megabyte: one waits, one is made.
    assert pa.total_allocated_bytes() - before < 3_000_000


def test_closing_wakes_a_writer_that_waits(port: int, address: str) -> None:
    with sink_of(listen=address, buffer__bytes="64K") as sink:
        writer = sink.writer(SCHEMA)
        batch = rows(*range(LARGE))

        def write() -> None:
            for _ in range(1000):
                writer.write(batch)

        writing = Background(write)
        reader = dialled(port)
        reader.recv(1, socket.MSG_PEEK)
        until(lambda: writer.counters.rows >= LARGE)
        started = time.monotonic()
        with pytest.warns(ResourceWarning, match="never committed"):
            writer.close()
        with pytest.raises(ClosedError):
            writing.result()
        assert time.monotonic() - started < 20.0  # nobody reads on
        # The reader learns of it: what is there ends in the middle of a message.
        with pytest.raises(OSError, match=r"Expected to be able to read|reset"):
            read_plainly(reader)


# --- reconnecting and schemas ---------------------------------------------------------


def test_a_reader_that_comes_again_gets_the_schema_and_what_follows(
    port: int, address: str
) -> None:
    with sink_of(listen=address, reconnect__millis="20s") as sink:
        writer = sink.writer(SCHEMA)
        first = dialled(port)
        writer.write(rows(1))
        first.close()
        assert writer.end is None  # but it has been seen
        again = plain_reader(port)
        writer.write(rows(2))
        writer.commit()
        writer.close()
        sink.end_stream(Finished())
        assert again.result() == [2]


def test_a_reconnected_writer_is_another_incarnation(address: str) -> None:
    source = source_of(listen=address, x_schema="n bigint", reconnect__millis="20s")
    with closing(source.reader(PARTITION_0)) as reader:
        reader.fetch(0, timeout=0)
        with sink_of(connect=address) as sink:
            sink.put(rows(1))
            assert numbers_of([reader.fetch(0, timeout=PATIENCE)]) == [1]
        with sink_of(connect=address) as sink:
            sink.put(rows(2))
            with pytest.raises(IncarnationChanged):
                reader.fetch(1, timeout=PATIENCE)
    source.close()


def test_other_rows_than_those_before_are_refused(port: int, address: str) -> None:
    with sink_of(listen=address) as sink:
        reading = plain_reader(port)
        sink.put(rows(1))
        with pytest.raises(SchemaMismatch):
            sink.put(pa.record_batch({"other": ["x"]}))
        sink.end_stream(Finished())
        assert reading.result() == [1]
