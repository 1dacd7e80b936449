"""Dead letters through again: rows to their sink, messages to their topic."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.decoding.conftest import HEADER
from tests.specimens import Dictionary, Words
from tests.transfer.test_bars import Bar, notebook

from streamfactory.arrowlog import Epoch
from streamfactory.cli.printing import JsonPrinter
from streamfactory.cli.replay import replay_command
from streamfactory.spi import (
    BadMessage,
    ConfigError,
    CorruptData,
    DecodeContext,
    Decoded,
    SchemaMismatch,
    StreamTimeout,
    Summary,
)
from streamfactory.spi.hooks import DECODERS
from streamfactory.transfer.copies import open_copy
from streamfactory.transfer.jobs import replay_dead_letters
from streamfactory.transfer.ledger import TAG
from streamfactory.transfer.replaying import Replayed, find_outstanding, open_replay
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.writing.diverting import Diversion

if TYPE_CHECKING:
    from tests.decoding.conftest import Streams

ROUTED: dict[str, str] = {
    "stream__memory__decoder__class__name": "words",
    "decode__on__error": "dead-letter",
    "dead__letter__stream": "dead",
}
RAW: dict[str, str] = {"stream__memory__decoder__class__name": "raw"}


class Patient(Words):
    """Understands those that shout, but not those that ask."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        given = values.to_pylist()
        bad = [at for at, value in enumerate(given) if b"?" in value]
        calm = pa.array([v.replace(b"!", b"").replace(b"?", b"") for v in given])
        found = super().decode(calm, context)
        assert found.source is not None
        good = pa.array([at not in bad for at in found.source.to_pylist()], pa.bool_())
        return Decoded(
            found.rows.filter(good),
            found.source.filter(good),
            [BadMessage(at, "asks", "it asks") for at in bad],
        )


class Forgiving(Words):
    """Understands all."""

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        calm = [v.strip(b"?!") for v in values.to_pylist()]
        return super().decode(pa.array(calm), context)


def decoded_by(streams: Streams, decoder: type[Words]) -> None:
    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(Dictionary(decoder))


@pytest.fixture
def letters(streams: Streams) -> Streams:
    """Three dead letters of two partitions, one of which asks and shouts."""
    streams.messages("from", [b"a", b"b,c!", b"d"], [b"e?!", b"f!"])
    streams.define("from", **ROUTED)
    streams.define("to")
    streams.define("dead")
    with open_copy("from", "to", plugins=streams.plugins) as copy:
        copy.run(threading.Event())
    assert len(streams.rows("dead")) == 3
    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(Dictionary(Patient))
    return streams


def replayed(streams: Streams, to: str = "to", of: str | None = None) -> Replayed:
    get = Catalogue().get
    of_ = None if of is None else get(of)
    with open_replay(
        get("dead"), get(to), get, of=of_, plugins=streams.plugins
    ) as replay:
        return replay.run(threading.Event())


def words(streams: Streams, topic: str = "to") -> list[str]:
    return sorted(row["word"] for row in streams.rows(topic))


def test_a_notebook_shows_the_rows_of_a_replay_in_a_bar(
    letters: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    monkeypatch.setattr(Bar, "made", [], raising=False)
    done = replay_dead_letters("dead", "to", plugins=letters.plugins)
    shown = [(bar.desc, bar.n, bar.closed) for bar in Bar.made]
    assert shown == [("replay dead", done.rows, True)]
    assert done.rows


def test_letters_become_the_rows_of_their_stream(letters: Streams) -> None:
    done = replayed(letters)
    assert (done.rows, done.again, done.others, done.complete) == (3, 1, 0, True)
    assert words(letters) == ["a", "b", "c", "d", "f"]


def test_letters_are_not_replayed_into_their_own_topic(letters: Streams) -> None:
    with pytest.raises(ConfigError, match="topic 'dead' is both read and written"):
        replayed(letters, "dead", "from")
    assert len(letters.rows("dead")) == 3


def test_what_is_bad_again_stays_with_what_is_wrong_now(letters: Streams) -> None:
    replayed(letters)
    *before, last = letters.rows("dead")
    (first,) = [row for row in before if row["value"] == b"e?!"]
    assert (first["error_code"], last["error_code"]) == ("malformed", "asks")
    *headers, tag = last["headers"]
    assert headers == first["headers"]
    assert tag["key"] == TAG
    for row in (first, last):
        for changing in ("error_code", "error_message", "failed_at", "headers"):
            del row[changing]
    assert first == last


def test_next_replay_meets_only_what_was_bad_again(letters: Streams) -> None:
    replayed(letters)
    done = replayed(letters)
    assert (done.rows, done.again) == (0, 1)
    decoded_by(letters, Forgiving)
    done = replayed(letters)
    assert (done.rows, done.again) == (1, 0)
    assert words(letters) == ["a", "b", "c", "d", "e", "f"]
    assert replayed(letters).rows == 0


def crash_between_letters_and_rows(
    letters: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kill a replay behind its second commit of letters, whose rows are not committed.

    The first commit is that of the start.
    """
    commit, calls = Diversion.commit, []

    def die(diversion: Diversion, position: Any) -> None:
        commit(diversion, position)
        calls.append(position)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(Diversion, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            replayed(letters)


def test_crash_between_letters_and_rows_repeats_neither(
    letters: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_between_letters_and_rows(letters, monkeypatch)
    assert len(letters.rows("dead")) == 4
    assert words(letters) == ["a", "d"]
    replayed(letters)
    assert words(letters) == ["a", "b", "c", "d", "f"]


def test_letter_that_failed_again_is_one_message_in_another_target(
    letters: Streams,
) -> None:
    for _ in range(3):
        assert replayed(letters).again == 1
    assert len(letters.rows("dead")) == 6
    decoded_by(letters, Forgiving)
    letters.define("second")
    letters.create("second", pa.schema({"word": pa.string()}))
    assert replayed(letters, to="second") == Replayed(4, 0, 0, 3, 1)
    assert words(letters, "second") == ["b", "c", "e", "f"]
    assert replayed(letters, to="second").rows == 0
    assert replayed(letters).rows == 1
    assert words(letters) == ["a", "b", "c", "d", "e", "f"]


def test_failure_in_one_replay_concerns_no_other(letters: Streams) -> None:
    letters.define("second")
    letters.create("second", pa.schema({"word": pa.string()}))
    decoded_by(letters, Forgiving)
    replayed(letters, to="second")
    decoded_by(letters, Patient)
    assert replayed(letters).again == 1
    decoded_by(letters, Forgiving)
    assert replayed(letters, to="second").rows == 0
    assert words(letters, "second") == ["b", "c", "e", "f"]


def test_letter_that_two_copies_wrote_counts_once(letters: Streams) -> None:
    letters.define("second")
    decoded_by(letters, Words)
    with open_copy("from", "second", plugins=letters.plugins) as copy:
        copy.run(threading.Event())
    assert len(letters.rows("dead")) == 6
    decoded_by(letters, Forgiving)
    assert replayed(letters).rows == 4
    assert words(letters) == ["a", "b", "c", "d", "e", "f"]


def test_tag_of_a_replay_is_no_header_of_the_message(letters: Streams) -> None:
    replayed(letters)
    letters.messages("pile", [])
    letters.define("pile", **RAW)
    replayed(letters, to="pile")
    assert [row["headers"] for row in letters.rows("pile")] == [[HEADER]] * 3


def outstanding(streams: Streams, to: str = "to") -> tuple[int, int, list[bytes]]:
    get, values = Catalogue().get, []
    found = find_outstanding(
        get("dead"),
        get(to),
        get,
        on_letters=lambda _partition, rows, _offsets, due: values.extend(
            rows.filter(due).column("value").to_pylist()
        ),
        plugins=streams.plugins,
    )
    assert found is not None
    assert len(values) == found.unresolved
    return found.unresolved, found.resolved, values


def test_outstanding_letters_are_those_of_the_next_replay(letters: Streams) -> None:
    assert outstanding(letters) == (3, 0, [b"b,c!", b"e?!", b"f!"])
    for _ in range(2):
        replayed(letters)
        assert outstanding(letters) == (1, 2, [b"e?!"])
    assert outstanding(letters, "from") == (3, 0, [b"b,c!", b"e?!", b"f!"])
    decoded_by(letters, Forgiving)
    replayed(letters)
    assert outstanding(letters) == (0, 3, [])


@pytest.mark.parametrize("then", [Patient, Forgiving, Words])
def test_crash_and_another_decoder_lose_and_repeat_nothing(
    then: type[Words], letters: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash_between_letters_and_rows(letters, monkeypatch)
    decoded_by(letters, then)
    replayed(letters)
    assert len(words(letters)) == len(set(words(letters)))
    decoded_by(letters, Forgiving)
    replayed(letters)
    assert words(letters) == ["a", "b", "c", "d", "e", "f"]
    assert replayed(letters) == Replayed()


def test_messages_go_back_to_their_topic_as_they_were(letters: Streams) -> None:
    done = replayed(letters, to="from")
    assert (done.rows, done.again) == (3, 0)
    back = letters.rows("from")
    values = Counter(row["value"] for row in back)
    assert values == {b"a": 1, b"d": 1, b"b,c!": 2, b"e?!": 2, b"f!": 2}
    twice = [row for row in back if row["value"] == b"b,c!"]
    assert twice[0]["key"] == twice[1]["key"] == b"k1"
    assert twice[1]["headers"] == [{"key": "kind", "value": b"test"}]
    assert replayed(letters, to="from").rows == 0


def test_raw_stream_takes_the_messages_of_all_streams(letters: Streams) -> None:
    letters.messages("pile", [])
    letters.define("pile", **RAW)
    assert replayed(letters, to="pile").rows == 3
    assert sorted(r["value"] for r in letters.rows("pile")) == [b"b,c!", b"e?!", b"f!"]


def test_dead_letters_of_other_streams_are_kept_and_reported(letters: Streams) -> None:
    letters.messages("more", [b"x!"])
    letters.define("more", **ROUTED)
    letters.define("others")
    letters.plugins.unregister(DECODERS, "words")
    letters.plugins.register(Dictionary())
    with open_copy("more", "others", plugins=letters.plugins) as copy:
        copy.run(threading.Event())
    letters.plugins.unregister(DECODERS, "words")
    letters.plugins.register(Dictionary(Patient))
    done = replayed(letters)
    assert (done.rows, done.others) == (3, 1)
    assert replayed(letters, to="others", of="more").rows == 1
    assert words(letters, "others") == ["x"]


def test_rows_get_the_metadata_columns_that_their_stream_has(
    letters: Streams,
) -> None:
    letters.define("from", metadata__columns="true", **ROUTED)
    letters.define("wide")
    fields = [("word", pa.string()), ("_offset", pa.int64())]
    letters.create("wide", pa.schema(fields))
    replayed(letters, to="wide")
    found = [(row["word"], row["_offset"]) for row in letters.rows("wide")]
    assert sorted(found) == [("b", 1), ("c", 1), ("f", 1)]


def test_no_letter_is_nothing_to_do(streams: Streams) -> None:
    streams.create("dead", DEAD_LETTER_SCHEMA)
    streams.define("dead")
    streams.define("to")
    assert replayed(streams) == Replayed()


def test_stream_of_other_rows_has_no_letters(streams: Streams) -> None:
    streams.create("dead", pa.schema({"value": pa.binary()}))
    streams.define("dead")
    streams.define("to")
    with pytest.raises(SchemaMismatch) as caught:
        replayed(streams)
    assert (
        caught.value.what
        == "the stream does not contain dead letters: column 'key' is missing"
    )


@pytest.mark.parametrize("of", [None, "from"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("topic", None), ("topic", ""), ("partition", -1), ("offset", None)],
)
def test_rows_that_are_no_letters_are_refused_where_they_are(
    name: str, value: Any, of: str | None, letters: Streams
) -> None:
    found = letters.rows("dead")
    found[1][name] = value
    fields = [field.with_nullable(True) for field in DEAD_LETTER_SCHEMA]
    log = letters.create("others", pa.schema(fields))
    stage = log.stage("a")
    stage.append(0, pa.RecordBatch.from_pylist(found, schema=pa.schema(fields)))
    log.commit(Epoch(None, 0, [stage.seal()], Summary()))
    letters.define("others")
    get = Catalogue().get
    of_ = None if of is None else get(of)
    with (
        pytest.raises(CorruptData, match=f"its {name} is {value!r}") as caught,
        open_replay(
            get("others"), get("to"), get, of=of_, plugins=letters.plugins
        ) as replay,
    ):
        replay.run(threading.Event())
    assert caught.value.offset == 1


def test_stream_without_a_decoder_cannot_take_its_letters(letters: Streams) -> None:
    letters.define("from", **RAW)
    with pytest.raises(ConfigError) as caught:
        replayed(letters)
    assert caught.value.what == (
        "dead letters cannot be replayed: their original stream has no decoder"
    )


def test_command_reports_what_happened_to_the_dead_letters(
    letters: Streams, capsys: pytest.CaptureFixture[str]
) -> None:
    letters.messages("pile", [])
    letters.define("pile", **RAW)
    status = replay_command.main(
        ["dead", "--to", "pile", "--json"], standalone_mode=False, obj=JsonPrinter()
    )
    assert int(status) == 0
    assert '"rows": 3' in capsys.readouterr().out


class Counting(Words):
    """``1,2,x`` is three rows, the last of which has no number."""

    def schema(self) -> pa.Schema:
        return pa.schema([pa.field("number", pa.string(), nullable=False)])

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        found, source = [], []
        for at, value in enumerate(values.to_pylist()):
            for part in value.decode().split(","):
                found.append(self.number(part))
                source.append(at)
        rows = pa.record_batch({"number": pa.array(found, pa.string())})
        return Decoded(rows, pa.array(source, pa.int32()))

    def number(self, text: str) -> str | None:
        return text if text.isdigit() else None


class CountingBetter(Counting):
    """It knows ``y``, too."""

    def number(self, text: str) -> str | None:
        return "25" if text == "y" else super().number(text)


def test_only_the_rows_that_were_bad_go_through_again(streams: Streams) -> None:
    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(Dictionary(Counting))
    streams.messages("from", [b"1,x,y,2", b"3", b"y,4"])
    streams.define("from", schema__contract="discard_row", **ROUTED)
    streams.define("to")
    streams.define("dead")
    with open_copy("from", "to", plugins=streams.plugins) as copy:
        copy.run(threading.Event())
    numbers = [row["number"] for row in streams.rows("to")]
    assert numbers == ["1", "2", "3", "4"]
    places = [(row["offset"], row["ordinal"]) for row in streams.rows("dead")]
    assert places == [(0, 1), (0, 2), (2, 0)]
    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(Dictionary(CountingBetter))
    done = replayed(streams)
    assert (done.rows, done.again) == (2, 1)
    numbers = [row["number"] for row in streams.rows("to")]
    assert numbers == ["1", "2", "3", "4", "25", "25"]
    *_, again = streams.rows("dead")
    assert (again["offset"], again["ordinal"]) == (0, 1)


def test_rows_of_a_letter_that_fail_again_are_letters_each(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Whole(Counting):
        def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
            rows = pa.record_batch({"number": pa.array([], pa.string())})
            bad = [BadMessage(at, "bad", "bad") for at in range(len(values))]
            return Decoded(rows, pa.array([], pa.int32()), bad)

    class All(Counting):
        def number(self, text: str) -> str | None:
            return text

    decoded_by(streams, Whole)
    streams.messages("from", [b"1,x,y,2"])
    streams.define("from", schema__contract="discard_row", **ROUTED)
    streams.define("to")
    streams.define("dead")
    streams.create("to", pa.schema({"number": pa.string()}))
    with open_copy("from", "to", plugins=streams.plugins) as copy:
        copy.run(threading.Event())
    decoded_by(streams, Counting)
    commit, calls = Diversion.commit, []

    def die(diversion: Diversion, position: Any) -> None:
        commit(diversion, position)
        calls.append(position)
        if len(calls) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as crash:
        crash.setattr(Diversion, "commit", die)
        with pytest.raises(KeyboardInterrupt):
            replayed(streams)
    decoded_by(streams, CountingBetter)  # before the rows were committed
    replayed(streams)
    ordinals = [row["ordinal"] for row in streams.rows("dead")]
    assert ordinals == [None, 1, 2, 1]
    assert [row["number"] for row in streams.rows("to")] == ["1", "2", "25"]
    decoded_by(streams, All)
    replayed(streams)
    assert [row["number"] for row in streams.rows("to")] == ["1", "2", "25", "x"]
    streams.define("second")
    streams.create("second", pa.schema({"number": pa.string()}))
    replayed(streams, to="second")
    assert [row["number"] for row in streams.rows("second")] == ["1", "x", "y", "2"]


def test_message_of_several_bad_rows_goes_back_once(streams: Streams) -> None:
    streams.plugins.unregister(DECODERS, "words")
    streams.plugins.register(Dictionary(Counting))
    streams.messages("from", [b"x,1,x"])
    streams.define("from", schema__contract="discard_row", **ROUTED)
    streams.define("to")
    streams.define("dead")
    with open_copy("from", "to", plugins=streams.plugins) as copy:
        copy.run(threading.Event())
    assert len(streams.rows("dead")) == 2
    assert replayed(streams, to="from").rows == 1
    assert [row["value"] for row in streams.rows("from")] == [b"x,1,x"] * 2


def test_looking_for_outstanding_letters_ends_when_asked(letters: Streams) -> None:
    get, calls, allowed = Catalogue().get, 0, 1000
    msg = "too many letters"

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls > allowed:
            raise StreamTimeout(msg)

    def look() -> None:
        find_outstanding(
            get("dead"), get("to"), get, check=check, plugins=letters.plugins
        )

    look()
    assert calls >= 2  # for what was processed, and for the letters
    for most in range(calls):
        calls, allowed = 0, most
        with pytest.raises(StreamTimeout, match=msg):
            look()
