"""Reading: merge, membership, partitions, offsets, ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import warnings
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.sockets.peers import (
    PATIENCE,
    SCHEMA,
    Background,
    Writer,
    dialled,
    is_cut,
    numbers_of,
    opened,
    rows,
    source_of,
    stream_of,
    until,
)

from streamfactory.spi import (
    BatchState,
    ClosedError,
    ConfigError,
    ConnectionFailed,
    Failed,
    FetchLimits,
    Finished,
    GuaranteeRefused,
    IncarnationChanged,
    MessageBatch,
    OffsetOutOfRange,
    Partition,
    PartitionState,
    SchemaMismatch,
    StreamTimeout,
)
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source

PARTITION_0 = Partition("rows", 0)


def everything(**options: str) -> tuple[list[int], Any]:
    with opened(**options) as stream:
        return numbers_of(stream), stream.ends.get(PARTITION_0)


def serve(server: socket.socket, *streams: bytes) -> None:
    """Send each of some streams to whoever comes next."""
    for data in streams:
        connection, _ = server.accept()
        with connection:
            connection.sendall(data)


def serving(server: socket.socket, *streams: bytes) -> Background:
    return Background(lambda: serve(server, *streams))


# --- which way round ----------------------------------------------------------------


def test_a_writer_that_connects_is_read_to_its_end(port: int, address: str) -> None:
    reading = Background(lambda: everything(listen=address))
    writer = Writer(port)
    writer.send(1, 2)
    writer.send(3)
    writer.finish()
    assert reading.result() == ([1, 2, 3], Finished())


def test_a_writer_that_listens_is_read_to_its_end(port: int, address: str) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        sending = serving(server, stream_of(rows(1, 2), rows(3)))
        assert everything(connect=address) == ([1, 2, 3], Finished())
        sending.result()


def test_a_reader_may_connect_before_the_writer_listens(
    port: int, address: str
) -> None:
    reading = Background(lambda: everything(connect=address))
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", port))
        # Bound, and not listening: refused so far.
        assert not reading.is_done
        server.listen()
        serve(server, stream_of(rows(7)))
    assert reading.result() == ([7], Finished())


def test_unix_sockets_in_a_range_are_partitions(folder: Path) -> None:
    servers = []
    for number in range(3):
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(folder / f"{number}.s"))
        server.listen()
        servers.append(server)
    sending = [serving(s, stream_of(rows(n))) for n, s in enumerate(servers)]
    with opened(connect=f"unix:{folder}/{{0-2}}.s") as stream:
        found = {batch.partition.id: numbers_of([batch]) for batch in stream}
    assert found == {0: [0], 1: [1], 2: [2]}
    for number, one in enumerate(sending):
        one.result()
        servers[number].close()


def test_a_port_range_is_partitions(port: int) -> None:
    reading = Background(
        lambda: sorted(
            (batch.partition.id, batch.first_offset, *numbers_of([batch]))
            for batch in opened(listen=f"127.0.0.1:{port}-{port + 2}")
        )
    )
    for number in (2, 0, 1):
        writer = Writer(port + number)
        writer.send(number)
        writer.finish()
    assert reading.result() == [(0, 0, 0), (1, 0, 1), (2, 0, 2)]


# --- merging ------------------------------------------------------------------------


@pytest.fixture
def reader_of(address: str) -> Iterator[Callable[..., Reader]]:
    """Makes a reader that listens; all are closed in the end."""
    made: list[Reader | Source] = []

    def make(**options: str) -> Reader:
        source = source_of(**{"listen": address, "x_schema": "n bigint", **options})
        reader = source.reader(PARTITION_0)
        made.extend((source, reader))
        reader.fetch(0, timeout=0)  # which listens
        return reader

    yield make
    for one in reversed(made):
        one.close()


def some(reader: Reader, start: int) -> MessageBatch:
    """The next batch that has something to say."""
    batch = reader.fetch(start, timeout=PATIENCE)
    assert batch.num_rows or batch.end
    return batch


def test_rows_of_all_writers_are_merged_each_in_its_order(
    port: int, address: str
) -> None:
    reading = Background(lambda: everything(listen=address, writers="3"))
    writers = [Writer(port) for _ in range(3)]
    for step in range(20):
        for number, writer in enumerate(writers):
            writer.send(100 * number + step)
    for writer in writers:
        writer.finish()
    numbers, end = reading.result()
    assert end == Finished()
    partitions = [[n for n in numbers if n // 100 == number] for number in range(3)]
    assert partitions == [[100 * number + s for s in range(20)] for number in range(3)]


def test_the_early_end_of_one_writer_does_not_end_the_stream(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(writers="2")
    early, late = Writer(port), Writer(port)
    early.send(1)
    early.finish()
    assert numbers_of([some(reader, 0)]) == [1]
    assert reader.fetch(1, timeout=0.3).state is BatchState.IDLE
    late.send(2)
    assert numbers_of([some(reader, 1)]) == [2]
    late.finish()
    assert some(reader, 2).end == Finished()


def test_a_writer_that_has_not_come_is_waited_for(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(writers="2")
    Writer(port).finish()
    assert reader.fetch(0, timeout=0.3).state is BatchState.IDLE
    Writer(port).finish()
    assert some(reader, 0).end == Finished()


def test_any_writers_end_when_each_that_has_come_has(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(writers="any")
    assert reader.fetch(0, timeout=0.1).state is BatchState.IDLE
    one, other = Writer(port), Writer(port)
    one.send(1)
    other.send(1)
    one.finish()
    count = 0
    while count < 2:
        count += some(reader, count).num_rows
    assert reader.fetch(2, timeout=0.3).state is BatchState.IDLE
    other.finish()
    assert some(reader, 2).end == Finished()
    # A later writer would not be read.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_silence_is_no_end(port: int, reader_of: Callable[..., Reader]) -> None:
    reader = reader_of()
    writer = Writer(port)
    writer.send(1)
    assert numbers_of([some(reader, 0)]) == [1]
    assert reader.fetch(1, timeout=0.5).state is BatchState.IDLE
    writer.finish()
    assert some(reader, 1).end == Finished()


def test_a_writer_too_many_is_refused(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of()
    first, second = Writer(port), Writer(port)
    first.send(1)
    assert numbers_of([some(reader, 0)]) == [1]
    assert is_cut(second.socket)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    first.finish()
    assert some(reader, 1).end == Finished()


# --- ends -----------------------------------------------------------------------------


def test_a_torn_connection_is_a_failure_after_the_last_row(
    port: int, address: str
) -> None:
    reading = Background(lambda: everything(listen=address))
    writer = Writer(port)
    writer.send(1)
    writer.tear()
    with pytest.raises(ConnectionFailed) as caught:
        reading.result()
    assert str(caught.value) == (
        f"the stream broke off: {address}: the connection was closed without an "
        "end-of-stream marker (stream 'socket:rows', partition rows-0, offset 1)"
    )


def test_a_broken_writer_does_not_stop_another_and_is_reported(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(writers="2")
    torn, other = Writer(port), Writer(port)
    torn.send(1)
    torn.tear()
    assert numbers_of([some(reader, 0)]) == [1]
    other.send(2)
    assert numbers_of([some(reader, 1)]) == [2]
    other.finish()
    assert isinstance(some(reader, 2).end, Failed)
    assert isinstance(some(reader, 2).end, Failed)


KILLED = """
import socket, sys, time
import pyarrow as pa
file = socket.create_connection(("127.0.0.1", int(sys.argv[1]))).makefile("wb")
batch = pa.record_batch({"n": pa.array([1, 2])})
writer = pa.ipc.new_stream(file, batch.schema)
writer.write_batch(batch)
file.flush()
time.sleep(60)
"""


def test_a_killed_writer_is_a_failure(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of()
    with subprocess.Popen([sys.executable, "-c", KILLED, str(port)]) as process:
        assert numbers_of([some(reader, 0)]) == [1, 2]
        process.send_signal(signal.SIGKILL)
        assert isinstance(some(reader, 2).end, Failed)


def test_an_end_is_in_the_metadata(port: int, address: str) -> None:
    with closing(source_of(listen=address)) as source:
        looking = Background(lambda: source.schema)
        Writer(port).finish()
        looking.result()
        with closing(source.reader(PARTITION_0)) as reader:
            assert some(reader, 0).end == Finished()
            [info] = source.metadata.partitions()
            assert (info.state, info.latest) == (PartitionState.ENDED, None)


def test_an_empty_stream_has_its_schema_and_an_end(port: int, address: str) -> None:
    def read() -> Any:
        with opened(listen=address) as stream:
            return stream.schema, numbers_of(stream), stream.ends[PARTITION_0]

    reading = Background(read)
    Writer(port).finish()
    assert reading.result() == (SCHEMA, [], Finished())


# --- offsets --------------------------------------------------------------------------


def test_an_expired_start_is_out_of_range(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of()
    Writer(port).send(1, 2, 3)
    some(reader, 0)
    with pytest.raises(OffsetOutOfRange) as caught:
        reader.fetch(1, timeout=1.0)
    assert (caught.value.earliest, caught.value.latest) == (3, None)


def test_a_loss_is_reported_if_the_policy_continues(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(x_out__of__range="earliest")
    writer = Writer(port)
    writer.send(1, 2, 3)
    some(reader, 0)
    writer.send(4)
    batch = some(reader, 1)
    assert [(x.start, x.end, x.cause) for x in batch.losses] == [(1, 3, "retention")]
    assert (batch.first_offset, numbers_of([batch])) == (3, [4])


def test_a_start_ahead_leaves_out_what_comes_before(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of()
    writer = Writer(port)
    writer.send(1, 2)
    writer.send(3, 4)
    batch = some(reader, 3)
    assert (batch.first_offset, numbers_of([batch])) == (3, [4])


def test_a_position_of_another_connection_is_refused(port: int, address: str) -> None:
    source = source_of(listen=address, x_schema="n bigint")
    reader = source.reader(PARTITION_0, incarnation="of yesterday")
    reader.fetch(0, timeout=0)
    writer = Writer(port)
    writer.send(1)
    with pytest.raises(IncarnationChanged) as caught:
        reader.fetch(0, timeout=PATIENCE)
    assert caught.value.expected == "of yesterday"
    writer.tear()
    reader.close()
    source.close()


def test_a_recreated_consumer_continues_with_the_connection(
    port: int, address: str
) -> None:
    source = source_of(listen=address)
    looking = Background(lambda: source.schema)
    writer = Writer(port)
    looking.result()
    limits = FetchLimits(10, 2**20, 0.2)
    at, found = 0, list[int]()
    for number in range(3):
        writer.send(number)
        made = source.factory.create_partition_level_consumer("test", PARTITION_0)

        answer = made.fetch_messages(at, None, limits)
        while answer.rows is None:
            answer = made.fetch_messages(at, None, limits)
        found += numbers_of([answer])
        at = answer.next_offset
        made.close()
    assert (found, at) == ([0, 1, 2], 3)
    writer.tear()
    source.close()


def test_columns_not_wanted_are_left_out(port: int, address: str) -> None:
    batch = pa.record_batch({"a": [1], "n": [2]})

    def read() -> Any:
        properties = {"streamType": "socket", "stream.socket.listen": address}
        with open_stream(properties, columns=["n"]) as stream:
            return [found.rows.to_pydict() for found in stream]

    reading = Background(read)
    with dialled(port) as connection:
        connection.sendall(stream_of(batch, schema=batch.schema))
        assert reading.result() == [{"n": [2]}]


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_every_kind_of_column_comes_through(
    port: int, address: str, compression: str | None
) -> None:
    batches = [
        pa.record_batch(
            {
                "words": pa.array(["a", None, word]).dictionary_encode(),
                "lists": [[1, 2], [], None],
                "structs": [{"x": 1, "y": "é"}, None, {"x": 2, "y": None}],
                "decimals": pa.array([None, None, None], pa.decimal128(20, 2)),
                "texts": pa.array(["ü", "", None], pa.large_string()),
            }
        )
        for word in ("b", "c", "c")
    ]
    data = stream_of(*batches, schema=batches[0].schema, compression=compression)

    def read() -> Any:
        with opened(listen=address) as stream:
            return [row for batch in stream for row in batch.rows.to_pylist()]

    reading = Background(read)
    with dialled(port) as connection:
        connection.sendall(data)
        expected = [row for batch in batches for row in batch.to_pylist()]
        assert reading.result() == expected


# --- reconnecting ---------------------------------------------------------------------


def test_a_reconnect_is_another_incarnation(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(reconnect__millis="20s")
    first = Writer(port)
    first.send(1, 2)
    some(reader, 0)
    old = reader.incarnation
    first.tear()
    assert reader.fetch(2, timeout=0.3).state is BatchState.IDLE
    second = Writer(port)
    second.send(3)
    with pytest.raises(IncarnationChanged) as caught:
        reader.fetch(2, timeout=PATIENCE)
    assert caught.value.expected == old


def test_no_row_of_a_reconnect_is_lost_if_the_policy_continues(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(reconnect__millis="20s", x_out__of__range="earliest")
    first = Writer(port)
    first.send(1, 2)
    some(reader, 0)
    first.tear()
    second = Writer(port)
    second.send(3)
    fetched = reader.fetch(2, timeout=PATIENCE)
    assert [(x.start, x.cause) for x in fetched.losses] == [(2, "incarnation")]
    batch = some(reader, fetched.next_offset)
    assert (batch.first_offset, numbers_of([batch])) == (0, [3])
    second.finish()
    assert some(reader, 1).end == Finished()


def test_a_broken_connection_without_reconnect_is_an_end(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(reconnect__millis="200")
    Writer(port).tear()
    assert isinstance(some(reader, 0).end, Failed)


def test_a_reader_that_connects_does_so_again(port: int, address: str) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        source = source_of(
            connect=address, reconnect__millis="20s", x_out__of__range="earliest"
        )
        sending = serving(server, stream_of(rows(1), end=False), stream_of(rows(2)))
        reader = source.reader(PARTITION_0)
        assert numbers_of([some(reader, 0)]) == [1]
        fetched = reader.fetch(1, timeout=PATIENCE)
        assert [x.cause for x in fetched.losses] == ["incarnation"]
        assert numbers_of([some(reader, fetched.next_offset)]) == [2]
        assert some(reader, 1).end == Finished()
        sending.result()
        reader.close()
        source.close()


# --- schemas --------------------------------------------------------------------------


OTHER_SCHEMA = pa.schema([pa.field("n", pa.string(), nullable=False)])


def test_second_writer_with_another_schema_is_refused(port: int, address: str) -> None:
    source = source_of(listen=address, writers="2", x_out__of__range="earliest")
    looking = Background(lambda: source.schema)
    first = Writer(port)
    assert looking.result() == SCHEMA
    reader = source.reader(PARTITION_0)
    reader.fetch(0, timeout=0.3)
    other = Writer(port, OTHER_SCHEMA)
    first.finish()
    check_schema_is_refused(source, reader, other)


def test_writer_that_reconnects_with_another_schema_is_refused(
    port: int, address: str
) -> None:
    source = source_of(
        listen=address,
        writers="1",
        reconnect__millis="20s",
        x_out__of__range="earliest",
    )
    looking = Background(lambda: source.schema)
    first = Writer(port)
    assert looking.result() == SCHEMA
    first.tear()
    reader = source.reader(PARTITION_0)
    reader.fetch(0, timeout=0.3)
    check_schema_is_refused(source, reader, Writer(port, OTHER_SCHEMA))


def check_schema_is_refused(source: Source, reader: Reader, other: Writer) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        until(lambda: reader.fetch(0, timeout=0.3).end)
    assert is_cut(other.socket)
    assert str(caught.value) == (
        "a sender has another schema: column 'n' string not null, where the "
        "stream has 'n' bigint (stream 'socket:rows', partition rows-0, offset 0); "
        "use one schema in all senders of a stream; restart the reader to begin "
        "with a new "
        "one"
    )
    reader.close()
    source.close()


def test_metadata_of_a_schema_makes_no_difference(port: int, address: str) -> None:
    reading = Background(lambda: everything(listen=address, writers="2"))
    for schema in (SCHEMA, SCHEMA.with_metadata({"pandas": "{}"})):
        Writer(port, schema).finish()
    assert reading.result() == ([], Finished())


def test_a_schema_that_does_not_come_is_a_time_out(address: str) -> None:
    source = source_of(listen=address, connection__timeout__millis="300")
    with pytest.raises(StreamTimeout) as caught:
        _ = source.schema
    assert re.search(r" in 0\.\d s: no writer has sent a schema", str(caught.value))
    assert "start the writer, or declare the option `schema`" in str(caught.value)
    source.close()


def test_a_declared_schema_is_known_without_a_connection(address: str) -> None:
    source = source_of(connect=address, x_schema="n bigint")
    assert source.schema == SCHEMA
    [info] = source.metadata.partitions()
    assert (info.earliest, info.latest, info.incarnation) == (0, None, None)
    source.close()


# --- processes and closing ----------------------------------------------------------


def test_closing_wakes_a_fetch_that_waits(
    reader_of: Callable[..., Reader],
) -> None:
    reader = reader_of()
    fetching = Background(lambda: reader.fetch(0, timeout=60.0))
    reader.close()
    with pytest.raises(ClosedError):
        fetching.result()


def test_a_wake_before_the_fetch_is_remembered(address: str) -> None:
    source = source_of(listen=address, x_schema="n bigint")
    consumer = source.factory.create_partition_level_consumer("test", PARTITION_0)
    consumer.wake()
    fetching = Background(
        lambda: consumer.fetch_messages(0, None, FetchLimits(1, 1, 60.0))
    )
    assert fetching.result().rows is None
    consumer.close()
    source.close()


def test_a_fork_leaves_the_connection_to_the_parent(port: int, address: str) -> None:
    source = source_of(listen=address)
    looking = Background(lambda: source.schema)
    writer = Writer(port)
    looking.result()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads are there
        child = os.fork()
    if not child:
        # What was inherited is neither read nor shut down, whatever is closed here.
        source.factory.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    reader = source.reader(PARTITION_0)
    writer.send(1)
    assert numbers_of([some(reader, 0)]) == [1]
    writer.finish()
    assert some(reader, 1).end == Finished()
    reader.close()
    source.close()


def test_a_closed_reader_is_reported_to_its_writer(port: int, address: str) -> None:
    source = source_of(listen=address)
    looking = Background(lambda: source.schema)
    writer = Writer(port)
    looking.result()
    source.close()
    assert is_cut(writer.socket)


# --- what a raw socket cannot do ----------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("startingTimestamp", "0"),
        ("startingOffsetsByTimestamp", '{"rows": {"0": 1}}'),
    ],
)
def test_what_needs_replay_names_the_durable_way(
    address: str, key: str, value: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        source_of(listen=address, **{f"x_{key}": value})
    [problem] = caught.value.problems
    assert str(problem) == (
        f"{key}: {value!r} requires replay; a raw socket stores nothing: copy it into "
        "a "
        "`file` stream and read that [argument]"
    )


def test_a_guarantee_above_what_a_socket_gives_is_refused(address: str) -> None:
    with pytest.raises(GuaranteeRefused) as caught:
        source_of(listen=address, x_guarantee="at-least-once")
    assert caught.value.what == (
        "guarantee=at-least-once is required, but this source has at-most-once: the "
        "source cannot be "
        "read again after a failure (not replayable)"
    )


def test_a_group_is_refused_as_well(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        source_of(
            listen=address,
            consumer__type="highlevel",
            x_group__id="g",
            x_checkpoint__location=str(tmp_path),
        )
    assert (
        "highlevel requires replay: the stream cannot be read from a checkpoint"
        in str(caught.value)
    )
