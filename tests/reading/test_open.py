"""`open()`: context manager, iterator, Arrow stream, position, counters, following."""

from __future__ import annotations

import threading
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.specimens import (
    PARTITION_0,
    SCHEMA,
    Author,
    Dictionary,
    envelopes,
    ids,
    rows,
)

import streamfactory
from streamfactory.arrowlog import Epoch
from streamfactory.backends.memory import message_schema, store
from streamfactory.spi import (
    BatchState,
    ClosedError,
    ConfigError,
    ConnectionFailed,
    Failed,
    Fetched,
    GuaranteeRefused,
    Partition,
    PartitionInfo,
    Position,
    SchemaMismatch,
    StreamError,
    Summary,
    TopicNotFound,
    Unsupported,
    envelope_schema,
)
from streamfactory.wiring.config.definition import from_mapping

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reading.conftest import Background

    from streamfactory.arrowlog import MemoryLog
    from streamfactory.wiring.streams.stream import Stream

    Backgrounds = Callable[[Callable[[], object]], Background]

WITH_WORDS = {"stream.script.decoder.class.name": "words"}


class Clicks:
    """A topic in memory, and how to open it."""

    def __init__(self, partitions: int = 1, schema: pa.Schema = SCHEMA) -> None:
        self.store = uuid.uuid4().hex
        self.log: MemoryLog = store(self.store).create("clicks", schema, partitions)

    @property
    def properties(self) -> dict[str, str]:
        return {
            "streamType": "memory",
            "stream.memory.topic.name": "clicks",
            "stream.memory.store": self.store,
            "metadata.refresh.millis": "10",
        }

    def add(self, *numbers: int, partition: int = 0) -> None:
        stage = self.log.stage(uuid.uuid4().hex)
        stage.append(partition, ids(*numbers))
        self.log.commit(Epoch(None, 0, [stage.seal()], Summary()))

    def open(self, **how: Any) -> Stream:
        return streamfactory.open(self.properties, **how)


@pytest.fixture
def clicks() -> Clicks:
    return Clicks()


def numbers(stream: Any) -> list[int]:
    return [n for batch in stream for n in batch.rows.column("id").to_pylist()]


# --- reading --------------------------------------------------------------------------


def test_stream_is_a_context_manager_and_an_iterator(clicks: Clicks) -> None:
    clicks.add(1, 2, 3)
    with clicks.open() as stream:
        assert repr(stream) == "<Stream 'memory:clicks' of type 'memory'>"
        assert stream.schema == SCHEMA
        assert numbers(stream) == [1, 2, 3]
        assert numbers(stream) == []
        assert stream.counters.rows == stream.counters.messages == 3
        assert stream.lag() == {Partition("clicks", 0): 0}
    with pytest.raises(ClosedError):
        stream.next_batch(0)


def test_empty_stream_has_a_schema_and_no_batches(clicks: Clicks) -> None:
    with clicks.open() as stream:
        assert list(stream) == []
        assert pa.table(stream).schema == SCHEMA


def test_stream_is_whatever_takes_arrow_streams(clicks: Clicks) -> None:
    for chunk in ([1, 2], [3], [4, 5, 6]):
        clicks.add(*chunk)
    expected = pa.table({"id": pa.array(range(1, 7))}).cast(SCHEMA)
    with clicks.open() as stream:
        assert stream.to_reader().read_all() == expected
    with clicks.open() as stream:
        assert pa.table(stream) == expected
    with clicks.open() as stream:
        assert pa.RecordBatchReader.from_stream(stream).read_all() == expected


def test_arrow_reader_takes_rows_whose_schema_has_metadata() -> None:
    tagged = ids(1, 2).replace_schema_metadata({"tag": "x"})
    author = Author(Fetched(tagged, 2), latest=2)
    with author.open() as stream:
        assert pa.table(stream).schema.equals(SCHEMA, check_metadata=True)


def test_error_within_an_arrow_stream_keeps_its_words() -> None:
    author = Author(rows(0, 2), Fetched(pa.record_batch({"x": [1]}), 3), latest=4)
    with author.open() as stream, pytest.raises(Exception, match="column 'x' is not"):
        pa.table(stream)


def test_columns_come_in_the_order_wanted() -> None:
    wide = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])
    row = pa.record_batch([[1], ["x"], [True]], schema=wide)
    for columns in (["c", "a"], ["b"]):
        author = Author(Fetched(row, 1), latest=1, schema=wide)
        with author.open(columns=columns) as stream:
            table = pa.table(stream)
        assert table.schema.names == columns
        assert table.to_pylist() == [{n: row.to_pylist()[0][n] for n in columns}]


def test_metadata_columns_are_added_behind_the_rows() -> None:
    author = Author(rows(7, 2), latest=9)
    author.bounds(7, 9)
    with author.open(options={"metadata.columns": "true"}) as stream:
        assert pa.table(stream).to_pylist() == [
            {"id": n, "_topic": "script", "_partition": 0, "_offset": n} for n in (7, 8)
        ]


def test_columns_of_the_source_that_look_like_ours_stay_its_own() -> None:
    own = pa.schema([("_offset", pa.string()), ("_key", pa.int8())])
    row = pa.record_batch([["mine"], [5]], schema=own)
    author = Author(Fetched(row, 1), latest=1, schema=own)
    with author.open() as stream:
        assert pa.table(stream).to_pylist() == [{"_offset": "mine", "_key": 5}]
    author = Author(Fetched(row, 1), latest=1, schema=own)
    with author.open(options={"metadata.columns": "true"}) as stream:
        assert pa.table(stream).to_pylist() == [
            {"_offset": "mine", "_key": 5, "_topic": "script", "_partition": 0}
        ]


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        ([], "no columns are selected"),
        (["id", "id"], "column 'id' is selected twice"),
        (["ID"], "column 'ID' does not exist; available are id"),
    ],
)
def test_columns_that_cannot_be_are_refused(columns: list[str], what: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Author().open(columns=columns)
    assert caught.value.what == what


@pytest.mark.parametrize("options", [{}, {"metadata.columns": "true"}])
def test_undeclared_column_is_reported(options: dict[str, str]) -> None:
    wide = pa.record_batch({"id": [1], "extra": [2]})
    author = Author(Fetched(wide, 1), latest=1)
    with author.open(options=options) as stream, pytest.raises(SchemaMismatch) as e:
        list(stream)
    assert e.value.what == "column 'extra' is not in the declared schema"


# --- envelopes ------------------------------------------------------------------------


def test_envelopes_pass_undecoded_by_raw() -> None:
    author = Author(envelopes(b"a", None), latest=2, schema=envelope_schema())
    with author.open(options={"stream.script.decoder.class.name": "raw"}) as stream:
        table = pa.table(stream)
    assert table.schema == envelope_schema()
    assert table.column("value").to_pylist() == [b"a", None]


def test_decoder_is_required_for_envelopes() -> None:
    with pytest.raises(ConfigError) as caught:
        Author(schema=envelope_schema()).open()
    assert caught.value.what == (
        "this stream has undecoded messages, but no decoder is configured"
    )
    assert caught.value.remedy == (
        "set stream.script.decoder.class.name; use raw to read them undecoded"
    )


def test_decoder_is_refused_for_typed_rows() -> None:
    with pytest.raises(ConfigError) as caught:
        Author().open(options=WITH_WORDS, plugins=[Dictionary()])
    assert caught.value.what == (
        "this stream has typed rows, so the decoder 'words' cannot be used"
    )


def test_messages_of_memory_are_decoded() -> None:
    clicks = Clicks(schema=message_schema())
    row = pa.RecordBatch.from_pylist([{"value": b"a,b"}], schema=message_schema())
    stage = clicks.log.stage("one")
    stage.append(0, row)
    clicks.log.commit(Epoch(None, 0, [stage.seal()], Summary()))
    with clicks.open(options={"stream.memory.decoder.class.name": "raw"}) as stream:
        assert pa.table(stream).column("value").to_pylist() == [b"a,b"]


# --- position -------------------------------------------------------------------------


@given(
    chunks=st.lists(st.lists(st.integers(1, 9), max_size=6), max_size=8),
    stops=st.lists(st.integers(0, 3), max_size=4),
    most=st.integers(1, 5),
)
def test_position_continues_without_gap_or_overlap(
    chunks: list[list[int]], stops: list[int], most: int
) -> None:
    clicks, expected = Clicks(partitions=3), {n: [] for n in range(3)}  # type: ignore[var-annotated]
    for turn, chunk in enumerate(chunks):
        if chunk:
            clicks.add(*chunk, partition=turn % 3)
            expected[turn % 3] += chunk
    found: dict[int, list[int]] = {n: [] for n in range(3)}
    position = Position()
    for stop in [*stops, None]:
        start = Position.from_json(position.to_json())
        with clicks.open(start=start, options={"batch.rows": str(most)}) as stream:
            for turn, batch in enumerate(stream):
                found[batch.partition.id] += batch.rows.column("id").to_pylist()
                if turn == stop:
                    break
            position = stream.position
    assert found == expected


def test_start_by_time_reads_messages_at_or_after_it(clicks: Clicks) -> None:
    clicks.add(1, 2)
    time.sleep(0.01)
    begun = datetime.now(UTC)
    clicks.add(3)
    with clicks.open(start=begun) as stream:
        assert numbers(stream) == [3]


# --- following ------------------------------------------------------------------------


def test_follower_reads_what_comes_until_it_is_closed(
    clicks: Clicks, background: Backgrounds
) -> None:
    clicks.add(1)
    stream = clicks.open(follow=True, start="earliest")
    found: list[int] = []
    seen = threading.Event()

    def follow() -> None:
        for batch in stream:
            found.extend(batch.rows.column("id").to_pylist())
            if len(found) == 4:
                seen.set()

    following = background(follow)
    clicks.add(2, 3)
    clicks.log.grow(2)
    clicks.add(4, partition=1)
    assert seen.wait(120)
    begun = time.monotonic()
    stream.close()
    following.join(120)
    assert following.error is None
    assert following.ended - begun < 60  # a stream that follows has no end
    assert sorted(found) == [1, 2, 3, 4]


def test_closing_half_a_batch_stream_is_never_taken_for_its_end(
    background: Backgrounds,
) -> None:
    author = Author(rows(0, 3))
    stream = author.open()
    reading = background(lambda: pa.table(stream))
    assert author.blocked.wait(120)
    stream.close()
    reading.join(120)
    assert "closed" in str(reading.error)
    assert reading.result is None
    assert author.open_consumers == 0


def test_iterating_after_close_is_reported(clicks: Clicks) -> None:
    for follow in (True, False):
        stream = clicks.open(follow=follow)
        stream.close()
        stream.close()
        for use in (lambda s=stream: next(iter(s)), stream.lag, stream.commit):
            with pytest.raises(ClosedError):
                use()


def test_torn_stream_is_an_error_behind_its_last_rows() -> None:
    torn = Fetched(None, 2, state=BatchState.END_OF_PARTITION, end=Failed("torn"))
    author = Author(rows(0, 2), torn, latest=None)
    found: list[int] = []
    with author.open() as stream, pytest.raises(ConnectionFailed) as caught:
        found += [n for batch in stream for n in batch.rows.column(0).to_pylist()]
    assert caught.value.what == "the stream broke off: torn"
    assert (caught.value.partition, caught.value.offset) == (PARTITION_0, 2)


# --- opening --------------------------------------------------------------------------


def test_topic_that_is_not_there_is_reported() -> None:
    properties = {
        "streamType": "memory",
        "stream.memory.topic.name": "nowhere",
        "stream.memory.store": uuid.uuid4().hex,
    }
    with pytest.raises(TopicNotFound):
        streamfactory.open(properties)


def test_stream_of_the_catalogue_is_opened_by_name(
    clicks: Clicks, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    clicks.add(5)
    text = "\n".join(f'"{k}" = "{v}"' for k, v in clicks.properties.items())
    (tmp_path / "mine.toml").write_text(f'name = "mine"\n[properties]\n{text}\n')
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(tmp_path))
    with streamfactory.open("mine") as stream:
        assert numbers(stream) == [5]
    with streamfactory.open(from_mapping(clicks.properties)) as stream:
        assert numbers(stream) == [5]


def test_guarantee_that_cannot_be_given_is_refused() -> None:
    with pytest.raises(GuaranteeRefused) as caught:
        Author(latest=None).open(options={"guarantee": "exactly-once"})
    assert caught.value.what.startswith(
        "guarantee=exactly-once is required, but this source has "
    )


def test_commit_without_a_group_is_refused(clicks: Clicks) -> None:
    with clicks.open() as stream, pytest.raises(Unsupported) as caught:
        stream.commit()
    assert caught.value.remedy == "store `position`, or set consumer.type=highlevel"


def test_opening_that_fails_leaves_nothing_open() -> None:
    author = Author()
    author.infos = [PartitionInfo(PARTITION_0, 9, 5)]
    before = threading.active_count()
    with pytest.raises(StreamError):
        author.open()
    assert (author.made, threading.active_count()) == ([], before)
