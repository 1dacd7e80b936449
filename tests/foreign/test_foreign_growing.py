"""One file: torn tails, growth, ends, and what is written over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.foreign.stage import (
    NUMBERS,
    config_of,
    numbers,
    plugins,
    properties,
    write_random,
    write_stream,
)

from streamfactory.backends.file.foreign import create_consumer
from streamfactory.spi import (
    BatchState,
    CorruptData,
    FetchLimits,
    Finished,
    FormatRefused,
    IncarnationChanged,
    Partition,
    PartitionState,
    PartitionVanished,
    SchemaMismatch,
    StreamTimeout,
    TopicNotFound,
)
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from pathlib import Path

    from tests.foreign.stage import Consumers, Infos, Providers


NOW = FetchLimits(1_000_000, 1 << 30, 0.0)
SOON = FetchLimits(1_000_000, 1 << 30, 100.0)
END = b"\xff\xff\xff\xff\0\0\0\0"


def schema_bytes(schema: pa.Schema = NUMBERS) -> bytes:
    found: bytes = schema.serialize().to_pybytes()
    return found


def batch_bytes(*values: int) -> bytes:
    found: bytes = numbers(*values).serialize().to_pybytes()
    return found


def values(fetched: Any) -> list[int]:
    found: list[int] = [] if fetched.rows is None else fetched.rows[0].to_pylist()
    return found


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    """A stream of three rows that nobody has ended."""
    path = tmp_path / "growing.arrows"
    path.write_bytes(schema_bytes() + batch_bytes(0, 1, 2))
    return path


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


# --- torn tails -------------------------------------------------------------------


def test_torn_tail_is_waited_for_at_every_byte(
    growing: Path, consumer_factory: Consumers, info_of: Infos
) -> None:
    consumer = consumer_factory(growing)
    assert values(consumer.fetch_messages(0, None, NOW)) == [0, 1, 2]
    tail = batch_bytes(3, 4)
    for at, byte in enumerate(tail):
        found = consumer.fetch_messages(3, None, NOW)
        assert (found.rows, found.next_offset, found.latest) == (None, 3, 3), at
        assert found.state is BatchState.CAUGHT_UP
        if at % 16 == 0:
            assert info_of(growing).latest == 3
        append(growing, bytes([byte]))
    assert values(consumer.fetch_messages(3, None, NOW)) == [3, 4]
    assert info_of(growing).latest == 5


def test_file_is_a_stream_from_its_first_byte_on(
    tmp_path: Path, consumer_factory: Consumers, provider_factory: Providers
) -> None:
    path = tmp_path / "a"
    whole = schema_bytes() + batch_bytes(7) + END
    path.touch()
    consumer, provider = consumer_factory(path), provider_factory(path)
    for at in range(len(whole)):
        found = consumer.fetch_messages(0, None, NOW)
        if found.rows is not None:
            break
        assert (found.state, found.latest) == (BatchState.CAUGHT_UP, 0)
        if at < len(schema_bytes()):
            with pytest.raises(StreamTimeout):
                provider.fetch_schema("t")
        else:
            assert provider.fetch_schema("t") == NUMBERS
        append(path, whole[at : at + 1])
    assert path.stat().st_size == len(whole) - len(END)


def test_end_marker_finishes_the_stream(
    growing: Path, consumer_factory: Consumers, info_of: Infos
) -> None:
    consumer = consumer_factory(growing)
    assert info_of(growing).state is PartitionState.ACTIVE
    for at in range(len(END)):
        assert consumer.fetch_messages(3, None, NOW).state is BatchState.CAUGHT_UP
        append(growing, END[at : at + 1])
    found = consumer.fetch_messages(3, None, SOON)
    assert (found.state, found.end) == (BatchState.END_OF_PARTITION, Finished())
    assert info_of(growing).state is PartitionState.ENDED
    assert values(consumer.fetch_messages(1, None, NOW)) == [1, 2]


def test_zeros_behind_the_last_message_are_no_end(
    growing: Path, consumer_factory: Consumers
) -> None:
    """A file system leaves them where a machine lost its power, or for later."""
    size = growing.stat().st_size
    append(growing, bytes(4096))
    consumer = consumer_factory(growing)
    assert consumer.fetch_messages(3, None, NOW).state is BatchState.CAUGHT_UP
    with growing.open("r+b") as file:
        file.seek(size)
        file.write(batch_bytes(3))
    assert values(consumer.fetch_messages(3, None, NOW)) == [3]


def test_bytes_behind_the_end_are_reported(
    growing: Path, consumer_factory: Consumers
) -> None:
    append(growing, END + growing.read_bytes())
    with pytest.raises(CorruptData) as caught:
        consumer_factory(growing).fetch_messages(0, None, NOW)
    assert str(growing) in caught.value.what
    assert "follow the end marker" in caught.value.what


def test_random_access_file_is_not_there_before_its_footer(
    tmp_path: Path, info_of: Infos, consumer_factory: Consumers
) -> None:
    path = write_random(tmp_path / "a", numbers(1, 2), numbers(3))
    whole = path.read_bytes()
    for kept in range(6, len(whole)):
        path.write_bytes(whole[:kept])
        with pytest.raises(StreamTimeout) as caught:
            info_of(path)
        assert caught.value.what == (
            f"the file {str(path)!r} has no footer: it is incomplete"
        )
        with pytest.raises(StreamTimeout):
            consumer_factory(path).fetch_messages(0, None, NOW)
    path.write_bytes(whole)
    info = info_of(path)
    assert (info.latest, info.state) == (3, PartitionState.ENDED)


# --- following --------------------------------------------------------------------

WRITER = """
import sys, time
import pyarrow as pa
path, count = sys.argv[1], int(sys.argv[2])
schema = pa.schema([pa.field("number", pa.int64())])
with open(path, "ab", buffering=0) as file:
    with pa.ipc.new_stream(file, schema) as writer:
        for first in range(0, count, 10):
            rows = pa.array(range(first, first + 10), pa.int64())
            writer.write_batch(pa.record_batch([rows], schema=schema))
            time.sleep(0.002)
        if len(sys.argv) > 3:
            print("written", flush=True)
            time.sleep(60)
"""


def test_another_process_is_followed_to_its_end(
    tmp_path: Path, consumer_factory: Consumers
) -> None:
    path = tmp_path / "a"
    path.touch()
    consumer = consumer_factory(path, format="stream")
    found: list[int] = []
    answers = 0
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path), "2000"]) as child:
        while True:
            fetched = consumer.fetch_messages(len(found), None, SOON)
            if fetched.state is BatchState.END_OF_PARTITION:
                break
            assert fetched.rows is not None
            found += values(fetched)
            answers += 1
        assert child.wait(120) == 0
    assert found == list(range(2000))
    assert answers > 10


def test_killed_writer_leaves_what_it_wrote_and_no_end(
    tmp_path: Path, consumer_factory: Consumers
) -> None:
    path = tmp_path / "a"
    command = [sys.executable, "-c", WRITER, str(path), "50", "and wait"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"written\n"
        os.kill(child.pid, signal.SIGKILL)
    consumer = consumer_factory(path)
    assert values(consumer.fetch_messages(0, None, NOW)) == list(range(50))
    found = consumer.fetch_messages(50, None, NOW)
    assert (found.state, found.end) == (BatchState.CAUGHT_UP, None)


def test_waiting_fetch_answers_soon_after_a_write(
    growing: Path, consumer_factory: Consumers
) -> None:
    consumer, late = consumer_factory(growing), []
    for number in range(3, 23):
        written: list[float] = []

        def write(number: int = number, written: list[float] = written) -> None:
            append(growing, batch_bytes(number))
            written.append(time.monotonic())

        writing = threading.Timer(0.02, write)
        writing.start()
        found = consumer.fetch_messages(number, None, SOON)
        now = time.monotonic()
        writing.join()
        assert values(found) == [number]
        late.append(now - written[0])
    assert sorted(late)[2] < 0.1


def test_wake_ends_a_waiting_fetch_and_is_remembered_once(
    growing: Path, consumer_factory: Consumers
) -> None:
    consumer = consumer_factory(growing)
    consumer.wake()
    for _ in range(2):
        waker = threading.Timer(0.05, consumer.wake)
        began = time.monotonic()
        if _:
            waker.start()
        found = consumer.fetch_messages(3, None, SOON)
        assert found.rows is None
        assert time.monotonic() - began < 50
        if _:
            waker.join()
    began = time.monotonic()
    consumer.fetch_messages(3, None, FetchLimits(1, 1, 0.1))
    assert time.monotonic() - began >= 0.1


# --- rows, limits, columns ----------------------------------------------------------


def test_small_batches_come_together(
    growing: Path, consumer_factory: Consumers
) -> None:
    for number in range(3, 100):
        append(growing, batch_bytes(number))
    consumer = consumer_factory(growing)
    assert values(consumer.fetch_messages(0, None, NOW)) == list(range(100))
    few = FetchLimits(10, 1 << 30, 0.0)
    found = consumer_factory(growing).fetch_messages(1, None, few)
    assert values(found) == list(range(1, 10))
    assert values(consumer_factory(growing).fetch_messages(5, None, few)) == list(
        range(5, 15)
    )
    assert values(consumer_factory(growing).fetch_messages(5, 8, NOW)) == [5, 6, 7]


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("mapped", ["true", "false"])
def test_only_wanted_columns_come_and_in_their_order(
    mapped: str, compression: str | None, tmp_path: Path, consumer_factory: Consumers
) -> None:
    rows = pa.record_batch(
        {"a": [1], "b": ["x"], "c": pa.array(["d"]).dictionary_encode()}
    )
    path = write_random(tmp_path / "a", rows, compression=compression)
    consumer = consumer_factory(path, ["c", "a"], memory__map=mapped)
    found = consumer.fetch_messages(0, None, NOW).rows
    assert found is not None
    assert found.to_pydict() == {"c": ["d"], "a": [1]}
    assert found.column_names == ["c", "a"]


def test_rows_outlive_file_and_consumer(
    tmp_path: Path, consumer_factory: Consumers
) -> None:
    path = write_random(tmp_path / "a", numbers(*range(1000)))
    consumer = consumer_factory(path)
    rows = consumer.fetch_messages(0, None, NOW).rows
    consumer.close()
    path.unlink()
    assert rows is not None
    assert rows[0].to_pylist() == list(range(1000))


def test_empty_stream_has_its_schema(tmp_path: Path, info_of: Infos) -> None:
    for write in (write_stream, write_random):
        info = info_of(write(tmp_path / "a"))
        assert (info.earliest, info.latest) == (0, 0)
        assert info.state is PartitionState.ENDED


# --- what is not there, or is another -------------------------------------------------


def test_missing_file_is_not_found(tmp_path: Path, info_of: Infos) -> None:
    with pytest.raises(TopicNotFound) as caught:
        info_of(tmp_path / "nowhere")
    assert caught.value.what == f"the file {str(tmp_path / 'nowhere')!r} does not exist"


def test_pipe_is_refused_and_not_waited_for(tmp_path: Path, info_of: Infos) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatRefused) as caught:
        info_of(tmp_path / "pipe")
    assert caught.value.what == f"{str(tmp_path / 'pipe')!r} is not a regular file"


def test_schema_that_is_not_there_yet_can_be_declared(
    tmp_path: Path, provider_factory: Providers
) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(StreamTimeout) as caught:
        provider_factory(tmp_path / "a").fetch_schema("t")
    assert "declare the option `schema`" in str(caught.value.remedy)
    given = {**properties(tmp_path / "a"), "schema": "number bigint"}
    with open_stream(given, plugins=plugins()) as stream:
        assert stream.schema == NUMBERS


def test_duplicate_column_is_reported(tmp_path: Path, info_of: Infos) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["n", "n"])
    with pytest.raises(SchemaMismatch) as caught:
        info_of(write_stream(tmp_path / "a", rows))
    assert "several columns named 'n'" in caught.value.what


@pytest.mark.parametrize("how", ["in place", "by rename"])
def test_rewritten_file_is_another_incarnation(
    how: str, growing: Path, consumer_factory: Consumers, info_of: Infos
) -> None:
    old = info_of(growing).incarnation
    consumer = consumer_factory(growing)
    assert consumer.fetch_messages(0, None, NOW).incarnation == old
    fresh = schema_bytes() + batch_bytes(7, 8, 9) + batch_bytes(10)
    if how == "in place":
        growing.write_bytes(fresh)
    else:
        other = growing.with_suffix(".other")
        other.write_bytes(fresh)
        other.rename(growing)
    batch = consumer.fetch_messages(3, None, NOW)
    assert (batch.rows, batch.next_offset, batch.latest) == (None, 0, 4)
    assert batch.incarnation == info_of(growing).incarnation != old
    assert values(consumer.fetch_messages(0, None, NOW)) == [7, 8, 9, 10]


def test_same_rows_in_another_file_are_another_incarnation(
    growing: Path, info_of: Infos
) -> None:
    old = info_of(growing).incarnation
    other = growing.with_suffix(".other")
    other.write_bytes(growing.read_bytes())
    other.rename(growing)
    assert info_of(growing).incarnation != old


def test_growth_is_the_same_incarnation(growing: Path, info_of: Infos) -> None:
    old = info_of(growing).incarnation
    append(growing, batch_bytes(*range(50_000)) + END)
    assert info_of(growing).incarnation == old is not None


def test_file_that_is_emptied_is_reported(
    growing: Path, consumer_factory: Consumers
) -> None:
    consumer = consumer_factory(growing)
    consumer.fetch_messages(0, None, NOW)
    growing.write_bytes(b"")
    with pytest.raises(IncarnationChanged) as caught:
        consumer.fetch_messages(0, None, NOW)
    assert "was recreated and is empty: expected incarnation" in caught.value.what


def test_replay_beyond_the_end_is_empty(
    growing: Path, consumer_factory: Consumers
) -> None:
    found = consumer_factory(growing).fetch_messages(1000, None, NOW)
    assert (found.rows, found.next_offset, found.latest) == (None, 1000, 3)


def test_other_partition_is_not_there(growing: Path) -> None:
    with pytest.raises(PartitionVanished):
        create_consumer(config_of(growing), Partition("t", 1))
