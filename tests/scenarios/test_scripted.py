"""What happened where a source misbehaved: its moves are scripted. Apache Pinot's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from tests.proving.timing import fastest
from tests.specimens import (
    PARTITION_0,
    TOPIC,
    Author,
    Dictionary,
    envelopes,
    rows,
    sparse,
)

from streamfactory.spi import (
    BatchState,
    ConnectionFailed,
    DecodeError,
    ErrorBudgetExceeded,
    Fetched,
    Finished,
    IncarnationChanged,
    OffsetOutOfRange,
    PartialMetadata,
    Partition,
    PartitionInfo,
    PartitionVanished,
    PermanentError,
    Position,
    StreamTimeout,
    envelope_schema,
)

WORDS = {"stream.script.decoder.class.name": "words"}


def words(author: Author, **options: str) -> Any:
    """The stream through the decoder of words; dots are written ``__``."""
    author.schema = envelope_schema()
    given = {key.replace("__", "."): value for key, value in options.items()}
    return author.open(plugins=[Dictionary()], options=WORDS | given)


# --- transactions and compaction ------------------------------------------------------


def test_aborted_messages_do_not_wedge_a_reader() -> None:
    """apache/pinot #9896, #18337, #18669: seeking back over them, for ever."""
    aborted = [Fetched(None, n, held_from=0) for n in (500, 900)]
    author = Author(*aborted, rows(900, 2))
    source = author.source()
    reader = source.reader(PARTITION_0)
    assert [reader.fetch(0).next_offset for _ in range(3)] == [500, 900, 902]
    assert author.starts == [0, 500, 900]
    reader.close()
    source.close()


def test_control_records_at_the_tail_let_a_reader_reach_the_end() -> None:
    """apache/pinot #17962, #19267, #12318: an empty batch that moved on was ignored."""
    author = Author(rows(0, 3), Fetched(None, 5, latest=5), latest=5)
    with author.open() as stream:
        assert sum(batch.num_rows for batch in stream) == 3
        assert stream.position[PARTITION_0] == 5
        assert stream.lag() == {PARTITION_0: 0}


def test_gap_of_a_transaction_is_no_alarm() -> None:
    """apache/pinot #14716, #19161: false alarms of loss under read_committed."""
    author = Author(sparse(4, 9), Fetched(None, 12), latest=12)
    with author.open() as stream:
        assert [b.first_offset for b in stream] == [4]
        assert stream.counters.losses == []


def test_rows_that_retention_took_are_reported_though_it_looks_like_a_gap() -> None:
    """apache/pinot #14716, #19161: and the true alarm is not lost among them."""
    author = Author(rows(0, 2), sparse(9), latest=10)
    with author.open() as stream:
        assert next(iter(stream)).num_rows == 2
        author.bounds(8, 10)
        with pytest.raises(OffsetOutOfRange) as caught:
            next(iter(stream))
    assert (caught.value.offset, caught.value.earliest) == (2, 8)


# --- batches without rows -------------------------------------------------------------


def test_batches_wholly_filtered_move_the_position() -> None:
    """apache/pinot #7927, #9014: re-read for days after each restart."""
    author = Author(envelopes(b"", b""), envelopes(b"", start=2), latest=3)
    with words(author) as stream:
        assert list(stream) == []
        assert stream.position[PARTITION_0] == 3
        assert stream.counters.messages == 3
        assert stream.lag() == {PARTITION_0: 0}


def test_tombstones_alone_are_rows_and_move_the_position() -> None:
    """apache/pinot #8929: a batch of nulls only; deletes could not be expressed."""
    author = Author(envelopes(None, None), latest=2)
    with words(author, metadata__columns="true") as stream:
        table = pa.table(stream)
        assert table.column("_key").to_pylist() == [b"k0", b"k1"]
        assert table.column("word").null_count == 2
        assert stream.position[PARTITION_0] == 2


def test_filtered_batches_count_against_the_lag() -> None:
    """apache/pinot #10418, #10983: delay computed from rows alone stood still."""
    author = Author(Fetched(None, 700, latest=1000, unfiltered_count=700))
    source = author.source()
    batch = source.reader(PARTITION_0).fetch(0)
    assert (batch.lag, batch.unfiltered_count) == (300, 700)
    source.close()


# --- one message, many rows -----------------------------------------------------------


def test_rows_of_one_message_are_never_parted() -> None:
    """apache/pinot #16211, #10903, #5430, #7947, #8017: one message, many rows."""
    author = Author(envelopes(b"a,b,c", b"d,e"), latest=2)
    with words(author, batch__rows="1") as stream:
        found = [batch.rows.column("word").to_pylist() for batch in stream]
    assert found == [["a", "b", "c"], ["d", "e"]]


def test_one_switch_puts_key_and_headers_on_every_row() -> None:
    """apache/pinot #7004, #9224, #13268: it had to be discovered, and was partial."""
    author = Author(envelopes(b"a,b", headers=[("trace", b"\x00")]), latest=1)
    with words(author, stream__script__metadata__populate="true") as stream:
        table = pa.table(stream)
    assert table.column("_key").to_pylist() == [b"k0", b"k0"]
    header = [{"key": "trace", "value": b"\x00"}]
    assert table.column("_headers").to_pylist() == [header] * 2
    assert table.column("_offset").to_pylist() == [0, 0]


def test_binary_keys_stay_binary() -> None:
    """apache/pinot #7239, #17899, #17927: keys were read as text, and spoiled."""
    key = b"\xff\x00\xfe"
    answer = envelopes(b"a")
    assert answer.rows is not None
    spoiled = answer.rows.set_column(0, "key", pa.array([key], pa.binary()))
    author = Author(Fetched(spoiled, 1), latest=1)
    with words(author, metadata__columns="true") as stream:
        assert pa.table(stream).column("_key").to_pylist() == [key]


# --- poison ---------------------------------------------------------------------------


def test_poison_stops_with_its_place_by_default() -> None:
    """apache/pinot #9163, #17071: dropped silently, unless stopOnDecodeError."""
    author = Author(envelopes(b"a", b"!", b"b"), latest=3)
    with words(author) as stream, pytest.raises(DecodeError) as caught:
        list(stream)
    assert (caught.value.partition, caught.value.offset) == (PARTITION_0, 1)
    assert caught.value.what.endswith("malformed: message 1 shouts")
    assert stream.position[PARTITION_0] == 0


@pytest.mark.parametrize(
    ("policy", "found"), [("skip", ["a", "b"]), ("null", ["a", None, "b"])]
)
def test_poison_is_skipped_or_kept_as_null_and_counted(
    policy: str, found: list[str | None]
) -> None:
    """apache/pinot #9045, #9511, #4070, #13722: skip, or quarantine."""
    author = Author(envelopes(b"a", b"!", b"b"), latest=3)
    with words(author, decode__on__error=policy) as stream:
        assert pa.table(stream).column("word").to_pylist() == found
        assert stream.counters.bad_messages == 1


def test_poison_beyond_a_budget_stops_and_shows_the_first_of_it() -> None:
    """apache/pinot #16226, #9511: "message just not there, no errors"."""
    author = Author(envelopes(b"!", b"a", b"!", b"!"), latest=4)
    options = {"decode__on__error": "skip", "max__errors": "2"}
    with words(author, **options) as stream, pytest.raises(ErrorBudgetExceeded) as e:
        list(stream)
    assert e.value.what == (
        "3 of 4 messages are bad: offset 0: malformed: message 0 shouts; "
        "offset 2: malformed: message 2 shouts; "
        "offset 3: malformed: message 3 shouts"
    )


# --- partitions -----------------------------------------------------------------------


def test_half_an_answer_is_not_the_end_of_the_other_half() -> None:
    """apache/pinot #19116, #15608: a partial list reads as end of life."""
    author = Author()
    other = Partition(TOPIC, 1)
    author.infos.append(PartitionInfo(other, 0, 5))
    with author.open(follow=True, options={"metadata.refresh.millis": "1"}) as stream:
        author.refusals.extend([PartialMetadata("one broker is away")] * 3)
        assert stream.next_batch(0.2) is None
        author.infos[1] = PartitionInfo(other, 0, None)
        with pytest.raises(PartialMetadata) as caught:
            stream.next_batch(5)
        assert caught.value.partition == other
        assert set(stream.position) == {PARTITION_0, other}


def test_fewer_partitions_are_reported_not_forgotten() -> None:
    """apache/pinot #6539, #15028: a decrease of partitions."""
    author = Author()
    author.infos.append(PartitionInfo(Partition(TOPIC, 1), 0, 5))
    with author.open(follow=True, options={"metadata.refresh.millis": "1"}) as stream:
        assert stream.next_batch(0) is None
        del author.infos[1]
        with pytest.raises(PartitionVanished) as caught:
            stream.next_batch(5)
    assert caught.value.partition == Partition(TOPIC, 1)


def test_ids_of_partitions_may_be_any_numbers() -> None:
    """apache/pinot #15952, #5647: ids of 65,000 met a design of id times 10,000."""
    far = [Partition(TOPIC, number) for number in (3, 10_000, 65_001, 2**31 - 1)]
    author = Author()
    author.infos = [PartitionInfo(partition, 0, 1) for partition in far]
    author.always = lambda start, end, limits: rows(start, 1)
    with author.open() as stream:
        assert sorted(batch.partition for batch in stream) == far
        position = stream.position
    assert dict(position) == dict.fromkeys(far, 1)
    assert Position.from_json(position.to_json()) == position


def test_shard_that_ends_with_records_gives_them_first() -> None:
    """apache/pinot #17209, #15608, #15563: the last batch of a shard has records."""
    author = Author(
        rows(0, 2, state=BatchState.END_OF_PARTITION),
        Fetched(None, 2, state=BatchState.END_OF_PARTITION),
        latest=None,
    )
    with author.open() as stream:
        assert [batch.num_rows for batch in stream] == [2]
        assert stream.ends == {PARTITION_0: Finished()}


# --- time and errors ------------------------------------------------------------------


def test_throttled_reader_is_not_taken_for_caught_up() -> None:
    """apache/pinot #9863, #13649: throttled shards reported no delay."""
    author = Author(Fetched(None, 5, state=BatchState.THROTTLED))
    source = author.source()
    batch = source.reader(PARTITION_0).fetch(5, timeout=0)
    assert (batch.state, batch.lag) == (BatchState.THROTTLED, None)
    source.close()


def test_unknown_lag_is_no_number() -> None:
    """apache/pinot #10983, #14074, #14127: zero, or all, where nothing was known."""
    author = Author(rows(0, 3), latest=None)
    with author.open() as stream:
        assert stream.next_batch(1) is not None
        assert stream.lag() == {PARTITION_0: None}


def test_timeout_is_the_callers_whatever_the_source_takes_for_one() -> None:
    """apache/pinot #14638: timeouts were shorter, or longer, than set."""

    def fetch() -> None:
        source = Author(StreamTimeout("slow"), StreamTimeout("slow")).source()
        assert source.reader(PARTITION_0).fetch(0, timeout=0.3).num_rows == 0
        source.close()

    assert 0.29 <= fastest(fetch, 0.46) <= 0.46


def test_passing_trouble_does_not_leave_a_partition_dead() -> None:
    """apache/pinot #4627, #6308, #6854, #7874, #11165, #11314: dead until the hour."""
    author = Author(
        ConnectionFailed("reset"), rows(0, 2), OSError("?"), rows(2, 2), latest=4
    )
    author.translate = lambda error: ConnectionFailed(str(error))
    with author.open() as stream:
        assert sum(batch.num_rows for batch in stream) == 4
        assert stream.counters.retries == 2
        assert stream.counters.recreated == 2
    assert author.open_consumers == 0


def test_permanent_trouble_is_reported_at_once() -> None:
    """apache/pinot #15897, #11314: tried again and again, or logged and forgotten."""
    author = Author(PermanentError("the topic was frozen"))
    with author.open() as stream, pytest.raises(PermanentError) as caught:
        list(stream)
    assert len(author.calls) == 1
    assert str(caught.value) == (
        "the topic was frozen (stream 'script:script', partition script-0, offset 0)"
    )


def test_idle_consumer_is_recreated_and_a_recreated_topic_is_detected() -> None:
    """apache/pinot #7874, #7100: a reader that waits for ever on what is gone."""
    author = Author()
    author.bounds(0, 50, "a")
    options = {"stream.script.idle.timeout.millis": "100"}
    start = Position({PARTITION_0: 50}, {PARTITION_0: "a"})
    with author.open(follow=True, start=start, options=options) as stream:
        assert stream.next_batch(0.05) is None
        author.bounds(0, 60, "b")
        with pytest.raises(IncarnationChanged) as caught:
            stream.next_batch(5)
    assert (caught.value.expected, caught.value.found) == ("a", "b")
