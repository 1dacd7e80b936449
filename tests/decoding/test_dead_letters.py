"""D3: bad messages are kept as evidence, with the range that they are of."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from streamfactory.spark.deadletters import dead_letter_expressions
from streamfactory.spi import (
    ConfigError,
    ErrorBudgetExceeded,
    GuaranteeRefused,
    SchemaMismatch,
)
from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.decoding.deadletters import (
    DEAD_LETTER_SCHEMA,
    Origin,
    split_rows,
)
from streamfactory.wiring.streams.stream import open_stream
from streamfactory.wiring.testing.faults import Faults
from streamfactory.wiring.writing.diverting import Diversion

if TYPE_CHECKING:
    from pathlib import Path

    from tests.decoding.conftest import Streams

    from streamfactory.transfer.copying import Copied
    from streamfactory.wiring.streams.stream import Stream

WORDS: dict[str, str] = {
    "stream__memory__decoder__class__name": "words",
    "decode__on__error": "dead-letter",
}
ROUTED = {**WORDS, "dead__letter__stream": "dead"}


def copied(streams: Streams, faults: Any = (None, None), **how: Any) -> Copied:
    with open_copy("from", "to", plugins=streams.plugins, faults=faults, **how) as copy:
        return copy.run(threading.Event())


@pytest.fixture
def words(streams: Streams) -> Streams:
    """Two partitions with a bad message each, a sink, and a place for dead letters."""
    streams.messages("from", [b"a,b", b"b!", None, b"c"], [b"d", b"e", b"f!"])
    streams.define("from", **ROUTED)
    streams.define("to")
    streams.define("dead")
    return streams


# --- copy -----------------------------------------------------------------------------


def test_copy_keeps_all_that_is_known_of_a_bad_message(words: Streams) -> None:
    done = copied(words)
    assert [row["word"] for row in words.rows("to")] == ["a", "b", None, "c", "d", "e"]
    assert (done.rows, done.dead_letters) == (6, 2)
    letters = words.rows("dead")
    first = letters[0]
    assert datetime.fromisoformat(first.pop("failed_at")).tzinfo is not None
    assert first.pop("incarnation") == letters[1]["incarnation"]
    assert first == {
        "value": b"b!",
        "key": b"k1",
        "headers": [{"key": "kind", "value": b"test"}],
        "topic": "from",
        "partition": 0,
        "offset": 1,
        "ordinal": None,
        "timestamp": None,
        "error_code": "malformed",
        "error_message": "message 1 shouts",
        "decoder": "words",
        "decoder_version": None,
        "stream": "from",
    }
    assert [(r["partition"], r["offset"]) for r in letters] == [(0, 1), (1, 2)]


def test_messages_that_are_all_bad_are_committed_too(streams: Streams) -> None:
    streams.messages("from", [b"a!", b"b!"])
    streams.define("from", **ROUTED)
    streams.define("to")
    streams.define("dead")
    assert (copied(streams).dead_letters, copied(streams).dead_letters) == (2, 0)
    assert len(streams.rows("dead")) == 2


def test_copy_into_a_stream_of_messages_encodes_none_of_the_bad(
    words: Streams,
) -> None:
    words.define("dead", stream__memory__decoder__class__name="raw")
    words.messages("dead", [])
    with pytest.raises(ConfigError) as caught:
        copied(words)
    assert str(caught.value) == (
        "stream 'dead' has undecoded messages, but dead letters are rows (stream "
        "'from'); "
        "set an encoder there, or use a stream of typed rows"
    )


def test_crash_between_the_two_commits_repeats_no_letter(
    words: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Diversion.commit

    def die(diversion: Diversion, position: Any) -> None:
        commit(diversion, position)
        raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(Diversion, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            copied(words)
    # the letters that were taken before the first position was stored are none
    assert words.rows("to") == []
    with monkeypatch.context() as crash:
        calls: list[object] = []

        def die_late(diversion: Diversion, position: Any) -> None:
            commit(diversion, position)
            calls.append(position)
            if len(calls) == 2:
                raise KeyboardInterrupt

        crash.setattr(Diversion, "commit", die_late)
        with pytest.raises(KeyboardInterrupt):
            copied(words)
    assert words.rows("to") == []
    assert len(words.rows("dead")) == 2
    assert copied(words).dead_letters == 0
    assert len(words.rows("to")) == 6
    assert len(words.rows("dead")) == 2


@pytest.mark.parametrize("seed", range(5))
def test_faults_lose_no_row_and_no_letter_and_repeat_none(
    streams: Streams, seed: int
) -> None:
    values = [b"w%d" % n if n % 3 else b"w%d!" % n for n in range(60)]
    streams.messages("from", values[:30], values[30:])
    streams.define("from", batch__rows="5", retry__initial__millis="1", **ROUTED)
    small = {"realtime__segment__flush__threshold__rows": "5"}
    streams.define("to", retry__max__attempts="50", **small)
    streams.define("dead", retry__max__attempts="50", **small)
    faults = Faults(seed=seed, fail=0.05, drop=0.2)
    copied(streams, (None, faults))
    assert faults.injected["drop"]
    rows = Counter(row["word"].encode() for row in streams.rows("to"))
    assert rows == Counter(value for value in values if b"!" not in value)
    letters = Counter(row["value"] for row in streams.rows("dead"))
    assert letters == Counter(value for value in values if b"!" in value)


def test_copy_without_a_place_for_dead_letters_is_refused(words: Streams) -> None:
    words.define("from", **WORDS)
    with pytest.raises(ConfigError) as caught:
        copied(words)
    assert str(caught.value) == (
        "decode.on.error=dead-letter requires dead.letter.stream (stream 'from'); set "
        "dead.letter.stream to a stream's name"
    )


def test_stream_cannot_take_its_own_dead_letters(words: Streams) -> None:
    words.define("from", **WORDS, dead__letter__stream="from")
    with pytest.raises(ConfigError) as caught:
        copied(words)
    assert caught.value.what == "a stream cannot be its own dead.letter.stream"


def test_stream_that_holds_something_else_is_refused_before_a_row_is_read(
    words: Streams,
) -> None:
    words.create("dead", pa.schema({"id": pa.int64()}))
    with pytest.raises(SchemaMismatch) as caught:
        copied(words)
    assert caught.value.what.startswith("columns 'value', 'key', ")
    assert caught.value.what.endswith(" are not in the declared schema")
    assert caught.value.stream == "dead"


def test_guarantee_of_a_copy_is_that_of_its_dead_letters_too(
    words: Streams, tmp_path: Path
) -> None:
    words.define("from", **ROUTED, guarantee="exactly-once")
    file = {"streamType": "file", "stream.file.path": str(tmp_path / "topics")}
    file |= {"stream.file.topic.name": "to"}
    with pytest.raises(GuaranteeRefused) as caught:
        open_copy("from", file, plugins=words.plugins)
    assert "not durable" in caught.value.what


# --- groups ---------------------------------------------------------------------------


@pytest.fixture
def group(words: Streams, tmp_path: Path) -> Streams:
    """The same, read as a group."""
    words.define(
        "from",
        **ROUTED,
        stream__memory__consumer__type="highlevel",
        group__id="g",
        checkpoint__location=str(tmp_path / "checkpoints"),
        startingOffsets="earliest",
    )
    return words


def member(streams: Streams) -> Stream:
    return open_stream("from", plugins=streams.plugins)


def read(stream: Stream, rows: int) -> list[str]:
    found: list[str] = []
    while len(found) < rows:
        batch = stream.next_batch(30)
        assert batch is not None
        assert batch.rows.schema.names == ["word"]
        found += batch.rows.column("word").to_pylist()
    return found


def test_group_commits_dead_letters_with_its_checkpoint(group: Streams) -> None:
    with member(group) as stream:
        read(stream, 6)
        assert stream.next_batch(0.1) is None
        assert group.rows("dead") == []
        stream.commit()
        assert [row["value"] for row in group.rows("dead")] == [b"b!", b"f!"]
        stream.commit()
    with member(group) as stream:
        assert stream.next_batch(0.1) is None
        stream.commit()
    assert len(group.rows("dead")) == 2


def test_letters_of_what_a_group_did_not_commit_come_once_all_the_same(
    group: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with member(group) as stream:
        read(stream, 6)
    assert group.rows("dead") == []
    with member(group) as stream, monkeypatch.context() as crash:
        read(stream, 6)
        assert stream.next_batch(0.1) is None
        crash.setattr(FileCheckpointStore, "save", die)
        with pytest.raises(KeyboardInterrupt):
            stream.commit()
    assert len(group.rows("dead")) == 2
    with member(group) as stream:
        assert len(read(stream, 6)) == 6
        stream.commit()
    assert len(group.rows("dead")) == 2


# --- rows with evidence ---------------------------------------------------------------


def test_bad_messages_are_rows_if_the_reader_does_not_commit(words: Streams) -> None:
    words.define("from", **WORDS, metadata__columns="true", includeHeaders="true")
    with open_stream("from", plugins=words.plugins) as stream:
        table = pa.Table.from_batches([batch.rows for batch in stream], stream.schema)
    partition = table.filter(pa.compute.equal(table["_partition"], 0)).to_pydict()
    assert partition["word"] == ["a", "b", None, None, "c"]
    assert partition["_offset"] == [0, 0, 1, 2, 3]
    shouts = {"code": "malformed", "message": "message 1 shouts"}
    assert partition["_error"] == [None, None, shouts, None, None]
    assert partition["_raw"] == [None, None, b"b!", None, None]


def test_rows_with_evidence_become_the_letters_that_a_copy_keeps(
    words: Streams,
) -> None:
    copied(words)
    words.define("from", **WORDS, metadata__columns="true", includeHeaders="true")
    with open_stream("from", plugins=words.plugins) as stream:
        (rows,) = (
            pa.Table.from_batches([batch.rows for batch in stream], stream.schema)
            .combine_chunks()
            .to_batches()
        )
    good, letters = split_rows(rows, Origin("from", "words", None))
    assert letters.schema.equals(DEAD_LETTER_SCHEMA)
    later = {"failed_at", "incarnation"}
    assert [
        {k: v for k, v in row.items() if k not in later}
        for row in sorted(letters.to_pylist(), key=lambda r: r["partition"])
    ] == [
        {k: v for k, v in row.items() if k not in later} for row in words.rows("dead")
    ]
    kept = [name for name in rows.schema.names if name not in ("_error", "_raw")]
    assert good.schema.names == kept
    assert good.num_rows == 6


def test_letters_need_the_metadata_columns(words: Streams) -> None:
    words.define("from", **WORDS)
    with open_stream("from", plugins=words.plugins) as stream:
        schema = stream.schema
    for need in (
        lambda: dead_letter_expressions(schema, Origin("from", "words", None)),
        lambda: split_rows(
            pa.RecordBatch.from_pylist([], schema=schema), Origin("from", "words", None)
        ),
    ):
        with pytest.raises(ConfigError) as caught:
            need()
        assert caught.value.what == "dead letters require the column '_topic'"


def test_stream_without_bad_messages_has_the_columns_all_the_same(
    streams: Streams,
) -> None:
    streams.messages("from", [b"a", b"b"])
    streams.define("from", **WORDS)
    with open_stream("from", plugins=streams.plugins) as stream:
        (batch,) = list(stream)
    assert batch.rows.to_pydict() == {
        "word": ["a", "b"],
        "_error": [None, None],
        "_raw": [None, None],
    }


# --- budgets --------------------------------------------------------------------------


def test_budget_is_that_of_one_round_of_a_copy(streams: Streams) -> None:
    values = [b"w!" if n % 5 == 0 else b"w" for n in range(100)]
    streams.messages("from", values)
    streams.define("from", batch__rows="10", max__errors="2", **ROUTED)
    streams.define("to", realtime__segment__flush__threshold__rows="8")
    streams.define("dead")
    assert copied(streams).dead_letters == 20


def test_budget_stops_a_round_and_keeps_what_was_committed_before(
    streams: Streams,
) -> None:
    streams.messages("from", [b"a"] * 10 + [b"b!"] * 5 + [b"c"])
    streams.define("from", batch__rows="10", max__errors="3", **ROUTED)
    streams.define("to", realtime__segment__flush__threshold__rows="10")
    streams.define("dead")
    with pytest.raises(ErrorBudgetExceeded) as caught:
        copied(streams)
    assert caught.value.what.startswith(
        "5 of 6 messages are bad: offset 10: malformed: message 0 shouts; offset 11: "
    )
    assert len(streams.rows("to")) == 10
    assert streams.rows("dead") == []


def test_decoder_that_leads_two_streams_keeps_their_letters_apart(
    words: Streams,
) -> None:
    words.messages("more", [b"x!"])
    words.define("more", **ROUTED)
    words.define("others")
    copied(words)
    with open_copy("more", "others", plugins=words.plugins) as copy:
        copy.run(threading.Event())
    found = [(row["stream"], row["value"]) for row in words.rows("dead")]
    assert found == [("from", b"b!"), ("from", b"f!"), ("more", b"x!")]
