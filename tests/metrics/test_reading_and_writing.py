"""What readers, writers and committers count: zero, then exactly what happened."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.specimens import PARTITION_0, Author, Words, envelopes, rows

import streamfactory
from streamfactory.spi import (
    BatchState,
    ConnectionFailed,
    Decoder,
    Fetched,
    FetchLimits,
    Loss,
    MessageBatch,
    Partition,
    SchemaMismatch,
    envelope_schema,
    hookimpl,
)
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.reading.counters import Counters, ReadTally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.wiring.reading.reader import Reader

    Readers = Callable[..., Reader]

READ = {"stream": "script:script", "topic": "script", "partition": "0"}
TABLE = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


class StandingClock(Clock):
    """A clock that a test sets."""

    time = 0.0

    def now(self) -> float:
        return self.time


def read(name: str) -> float | None:
    return streamfactory.metrics().value(f"read.{name}", **READ)


def test_a_reader_counts_what_it_returned(reader_of: Readers) -> None:
    author = Author(
        rows(0, 3, size=30, latest=10),
        rows(3, 2, size=20, latest=12),
    )
    reader = reader_of(author)
    assert [read(n) for n in ("rows", "messages", "bytes", "batches")] == [0] * 4
    assert read("fetches") == 0
    assert read("lag.offsets") is None
    reader.fetch(0)
    assert read("lag.offsets") == 7
    reader.fetch(3)
    assert [read(n) for n in ("rows", "messages", "bytes", "batches")] == [5, 5, 50, 2]
    assert [read(n) for n in ("fetches", "retries", "losses")] == [2, 0, 0]
    assert [read(n) for n in ("next.offset", "latest.offset")] == [5, 12]
    assert read("lag.offsets") == 7
    assert (read("fetch.seconds") or 0) > 0
    assert (read("decode.seconds") or 0) > 0
    reader.close()
    assert read("rows") == 5
    assert read("lag.offsets") is None


def test_time_in_the_consumer_is_fetch_time_and_not_decode_time(
    reader_of: Readers,
) -> None:
    def slowly(start: int, end: int | None, limits: FetchLimits) -> Fetched:
        time.sleep(0.05)
        return rows(start, 1)

    reader = reader_of(Author(slowly))
    begun = time.perf_counter()
    reader.fetch(0)
    took = time.perf_counter() - begun
    fetching, decoding = read("fetch.seconds") or 0, read("decode.seconds") or 0
    assert fetching >= 0.05
    assert 0 < decoding <= took - fetching


def test_retries_and_recreated_consumers_are_counted(reader_of: Readers) -> None:
    reader = reader_of(Author(ConnectionFailed("gone"), rows(0, 1)))
    assert [read("retries"), read("consumers.recreated")] == [0, 0]
    while not reader.fetch(0, timeout=5).num_rows:
        pass
    assert [read("retries"), read("consumers.recreated")] == [1, 1]


def test_losses_are_counted_with_their_extent(reader_of: Readers) -> None:
    lost = [Loss(PARTITION_0, 0, 4, "gap"), Loss(PARTITION_0, 4, None, "unknown")]
    reader = reader_of(Author(Fetched(None, 4, losses=lost)), out__of__range="earliest")
    assert [read("losses"), read("lost.offsets")] == [0, 0]
    reader.fetch(0)
    assert [read("losses"), read("lost.offsets")] == [2, 4]


class _Words:
    @hookimpl
    def streamfactory_decoder(self) -> Decoder:
        return Decoder(name="words", doc="Words.", spi_level=1, decoder=Words)


def test_bad_messages_are_counted(reader_of: Readers) -> None:
    author = Author(envelopes(b"a,b", b"!", b"c"), schema=envelope_schema())
    reader = reader_of(
        author,
        plugins=[_Words()],
        stream__script__decoder__class__name="words",
        decode__on__error="skip",
    )
    assert read("bad.messages") == 0
    reader.fetch(0)
    assert [read(n) for n in ("bad.messages", "messages", "rows")] == [1, 3, 3]


def batch(next_offset: int, latest: int | None) -> MessageBatch:
    answer = rows(0, 1).rows
    assert answer is not None
    state = BatchState.DATA
    return MessageBatch(PARTITION_0, answer, 0, next_offset, state, latest=latest)


def test_the_age_of_the_lag_is_that_of_the_oldest_message_not_read() -> None:
    clock = StandingClock()
    tally = ReadTally("s", PARTITION_0, Counters(), clock)

    def age() -> float | None:
        found = {s.metric.name: s.value for s in tally.gauges()}
        return found.get("read.lag.seconds")

    assert age() is None
    tally.observe(batch(5, None))
    assert age() is None  # the source does not know its end
    tally.observe(batch(5, 5))
    clock.time = 100
    assert age() == 0  # caught up, however long ago
    tally.observe(batch(5, 10))
    clock.time = 130
    assert age() == 30
    tally.observe(batch(6, 20))
    clock.time = 150
    assert age() == 50  # offset 6 was there at 100
    tally.observe(batch(12, 20))
    assert age() == 20  # offset 12 at 130
    tally.observe(batch(20, 20))
    assert age() == 0


def test_what_a_tally_remembers_is_bounded_and_never_makes_the_lag_younger() -> None:
    clock = StandingClock()
    tally = ReadTally("s", PARTITION_0, Counters(), clock)
    for second in range(1000):
        clock.time = float(second)
        tally.observe(batch(1, second + 2))
    assert len(tally._seen) <= 64
    samples = {s.metric.name: s.value for s in tally.gauges()}
    assert samples["read.lag.seconds"] == 999


def sink_of(path: Path) -> dict[str, str]:
    return {
        "streamType": "file",
        "stream.file.topic.name": "out",
        "stream.file.path": str(path),
    }


def written(name: str) -> float | None:
    return streamfactory.metrics().value(name, stream="file:out")


def test_a_sink_counts_rows_commits_and_repeats(tmp_path: Path) -> None:
    with streamfactory.open_sink(sink_of(tmp_path)) as sink:
        assert written("write.rows") == written("commit.epochs") == 0
        sink.put(TABLE, writer_id="w", epoch=0)
        assert written("write.rows") == 3
        assert written("write.bytes") == 24
        assert written("write.batches") == 1
        assert [written("commit.epochs"), written("commit.repeated.epochs")] == [1, 0]
        assert (written("commit.seconds") or 0) > 0
        assert (written("write.seconds") or 0) > 0
        sink.put(TABLE, writer_id="w", epoch=0)
        assert [written("commit.epochs"), written("commit.repeated.epochs")] == [1, 1]
        assert written("write.drained.rows") == 3
        assert written("commit.mismatches") == 0
        sink.put(TABLE.slice(1), writer_id="w", epoch=0)
        assert written("commit.mismatches") == 1
        assert written("commit.failures") == written("write.failures") == 0
        with pytest.raises(SchemaMismatch):
            sink.put(pa.table({"id": ["text"]}), writer_id="w", epoch=1)
    assert written("commit.epochs") == 1


def test_a_commit_that_fails_is_counted(tmp_path: Path) -> None:
    config = sink_of(tmp_path) | {"epoch.mismatch": "fail"}
    with streamfactory.open_sink(config) as sink:
        sink.put(TABLE, writer_id="w", epoch=0)
        with pytest.raises(streamfactory.MisuseError):
            sink.put(TABLE.slice(1), writer_id="w", epoch=0)
    assert written("commit.failures") == 1


def test_the_metrics_of_a_process_are_served(tmp_path: Path) -> None:
    from urllib.request import urlopen

    with streamfactory.open_sink(sink_of(tmp_path)) as sink:
        sink.put(TABLE, writer_id="w", epoch=0)
    with (
        streamfactory.serve_metrics("127.0.0.1:0") as endpoint,
        urlopen(endpoint.location, timeout=30) as answer,
    ):
        text = answer.read().decode()
    assert 'streamfactory_write_rows_total{stream="file:out"} 3.0' in text


def test_an_address_that_is_open_to_the_network_is_refused() -> None:
    with pytest.raises(streamfactory.ConfigError, match="open to the network"):
        streamfactory.serve_metrics("0.0.0.0:0")
    with pytest.raises(streamfactory.ConfigError, match="is not host:port"):
        streamfactory.serve_metrics("nonsense")
    with streamfactory.serve_metrics("127.0.0.1:0") as endpoint:
        taken = endpoint.location.removeprefix("http://").removesuffix("/metrics")
        with pytest.raises(streamfactory.ConfigError, match="cannot be served on"):
            streamfactory.serve_metrics(taken)


def test_partitions_of_a_stream_are_counted_apart() -> None:
    tallies = [
        ReadTally("s", Partition("t", n), Counters(rows=n), Clock()) for n in (1, 2)
    ]
    samples = [sample for tally in tallies for sample in tally.counters()]
    found = [s for s in samples if s.metric.name == "read.rows"]
    assert [(s.labels, s.value) for s in found] == [
        (("s", "t", "1"), 1),
        (("s", "t", "2"), 2),
    ]
