"""D1 to D4: from messages to rows, whatever the decoder does."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.specimens import PARTITION_0, Author, Dictionary, decoding, envelopes

from streamfactory.spi import (
    BadMessage,
    ConnectionFailed,
    ContractBroken,
    Decoded,
    DecodeError,
    ErrorBudgetExceeded,
    SchemaMismatch,
    UntranslatedError,
    envelope_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import Fetched, MessageBatch

WORD = pa.schema([pa.field("word", pa.string(), nullable=False)])


def words(*found: str | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(found, pa.string())], schema=WORD)


def read(
    *answers: Fetched, dictionary: Dictionary | None = None, **options: Any
) -> MessageBatch:
    author = Author(*answers, schema=envelope_schema())
    with_words: dict[str, Any] = {
        "stream__script__decoder__class__name": "words",
        **options,
    }
    source = author.source(plugins=[dictionary or Dictionary()], **with_words)
    reader = source.reader(PARTITION_0)
    try:
        return reader.fetch(0)
    finally:
        reader.close()
        source.close()


def odd(answer: Callable[[pa.Array], Decoded], *values: bytes | None) -> MessageBatch:
    return read(envelopes(*values), dictionary=decoding(answer))


def cells(batch: MessageBatch) -> list[tuple[int, str | None]]:
    assert batch.offsets is not None
    rows = batch.rows.column("word").to_pylist()
    return list(zip(batch.offsets.to_pylist(), rows, strict=True))


# --- rows -----------------------------------------------------------------------------


def test_message_becomes_none_to_many_rows_in_order() -> None:
    batch = read(envelopes(b"a", b"b,c,d", b"", b"e"))
    assert cells(batch) == [(0, "a"), (1, "b"), (1, "c"), (1, "d"), (3, "e")]
    assert (batch.first_offset, batch.next_offset) == (0, 4)
    assert batch.unfiltered_count == 4


def test_tombstone_is_a_row_of_nulls_whatever_the_decoder_says() -> None:
    batch = read(envelopes(b"a", None, b"b,c", None, None))
    expected = [(0, "a"), (1, None), (2, "b"), (2, "c"), (3, None), (4, None)]
    assert cells(batch) == expected


def test_tombstones_alone_are_rows_too() -> None:
    assert cells(read(envelopes(None, None))) == [(0, None), (1, None)]


def test_decoder_sees_no_null_and_its_own_headers() -> None:
    seen: list[Any] = []

    def answer(values: pa.Array) -> Decoded:
        seen.append(values.to_pylist())
        return Decoded(words("x", "y"))

    batch = odd(answer, b"1", None, b"2")
    assert seen == [[b"1", b"2"]]
    assert cells(batch) == [(0, "x"), (1, None), (2, "y")]


def test_columns_may_be_null_as_tombstones_need_it() -> None:
    assert read(envelopes(b"a")).rows.schema.field("word").nullable


def test_key_timestamp_and_headers_are_copied_to_every_row() -> None:
    headers = [("a", b"1"), ("a", b"2")]
    batch = read(
        envelopes(b"a,b", b"", None, b"c", headers=headers),
        metadata__columns="true",
        includeHeaders="true",
    )
    assert batch.rows.schema.names == [
        *("word", "_topic", "_partition", "_offset"),
        *("_timestamp", "_key", "_headers"),
    ]
    columns = batch.rows.to_pydict()
    assert columns["word"] == ["a", "b", None, "c"]
    assert columns["_offset"] == [0, 0, 2, 3]
    assert columns["_key"] == [b"k0", b"k0", b"k2", b"k3"]
    assert [t.microsecond for t in columns["_timestamp"]] == [0, 0, 2000, 3000]
    both = [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]
    assert columns["_headers"] == [both] * 4


def test_batch_of_filtered_messages_moves_on_and_counts_them() -> None:
    batch = read(envelopes(b"", b"", b""))
    assert (batch.num_rows, batch.next_offset) == (0, 3)
    assert batch.unfiltered_count == 3


@given(
    values=st.lists(
        st.sampled_from([b"a", b"a,b", b"", b"!", None]), min_size=1, max_size=30
    ),
    policy=st.sampled_from(["skip", "null"]),
)
def test_rows_keep_the_order_of_their_messages(
    values: list[bytes | None], policy: str
) -> None:
    expected: list[tuple[int, str | None]] = []
    for offset, value in enumerate(values):
        if value is None or (value == b"!" and policy == "null"):
            expected.append((offset, None))
        elif value != b"!":
            expected += [(offset, w.decode()) for w in value.split(b",") if w]
    batch = read(envelopes(*values), decode__on__error=policy)
    found = cells(batch) if batch.num_rows else []
    assert found == expected


# --- bad messages ---------------------------------------------------------------------


def test_bad_message_fails_with_its_place() -> None:
    with pytest.raises(DecodeError) as caught:
        read(envelopes(b"a", b"b!", b"c"))
    error = caught.value
    assert error.what == ("a message cannot be decoded: malformed: message 1 shouts")
    assert (error.partition, error.offset) == (PARTITION_0, 1)


def test_failed_message_is_read_again_not_skipped() -> None:
    answer = envelopes(b"a", b"b!", b"c", b"d")
    author = Author(answer, answer, schema=envelope_schema())
    source = author.source(
        plugins=[Dictionary()], stream__script__decoder__class__name="words"
    )
    reader = source.reader(PARTITION_0)
    for _ in range(2):
        with pytest.raises(DecodeError) as caught:
            reader.fetch(0, max_rows=2)
        assert caught.value.offset == 1
    assert author.starts == [0, 0]
    assert reader.counters.messages == reader.counters.bad_messages == 0
    reader.close()
    source.close()


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("skip", [(0, "a"), (2, "c")]), ("null", [(0, "a"), (1, None), (2, "c")])],
)
def test_bad_message_is_skipped_or_made_null(
    policy: str, expected: list[tuple[int, str | None]]
) -> None:
    batch = read(envelopes(b"a", b"b!", b"c"), decode__on__error=policy)
    assert cells(batch) == expected
    assert batch.unfiltered_count == 3


def test_place_of_a_bad_message_counts_tombstones() -> None:
    with pytest.raises(DecodeError) as caught:
        read(envelopes(None, b"a", None, b"b!"))
    assert caught.value.offset == 3


def test_budget_allows_so_many_and_shows_the_first() -> None:
    good = read(envelopes(b"!", b"a", b"!"), decode__on__error="skip", max__errors="2")
    assert cells(good) == [(1, "a")]
    with pytest.raises(ErrorBudgetExceeded) as caught:
        read(envelopes(b"!", b"a", b"!"), decode__on__error="skip", max__errors="1")
    assert caught.value.what == (
        "2 of 3 messages are bad: offset 0: malformed: message 0 shouts; "
        "offset 2: malformed: message 2 shouts"
    )


def test_budget_holds_over_all_batches_of_a_reader() -> None:
    author = Author(*[envelopes(b"!", start=n) for n in range(4)])
    author.schema = envelope_schema()
    source = author.source(
        plugins=[Dictionary()],
        stream__script__decoder__class__name="words",
        decode__on__error="skip",
        max__errors="2",
    )
    reader = source.reader(PARTITION_0)
    assert [reader.fetch(n).next_offset for n in range(2)] == [1, 2]
    with pytest.raises(ErrorBudgetExceeded) as caught:
        reader.fetch(2)
    assert caught.value.offset == 2
    assert reader.counters.bad_messages == 2
    reader.close()
    source.close()


@pytest.mark.parametrize(("count", "over"), [(999, False), (1000, True)])
def test_ratio_means_nothing_before_a_thousand_messages(count: int, over: bool) -> None:
    values = [b"!"] * 20 + [b"a"] * (count - 20)
    options: dict[str, Any] = {"decode__on__error": "skip", "max__error__ratio": "0.01"}
    if not over:
        assert read(envelopes(*values), **options).num_rows == count - 20
        return
    with pytest.raises(ErrorBudgetExceeded) as caught:
        read(envelopes(*values), **options)
    assert caught.value.what.startswith("20 of 1000 messages are bad: offset 0: ")
    assert caught.value.what.count("malformed") == 10


# --- decoders that break the contract -------------------------------------------------


def test_decoder_that_raises_is_named_and_its_text_stays_here() -> None:
    def answer(_: pa.Array) -> Decoded:
        msg = "payload of a customer"
        raise ValueError(msg)

    with pytest.raises(UntranslatedError) as caught:
        odd(answer, b"a")
    error = caught.value
    assert error.what == "the decoder raised ValueError, which rule D1 forbids"
    assert isinstance(error.__cause__, ValueError)
    assert b"customer" not in pickle.dumps(error)


def test_decoder_whose_registry_is_away_says_so_itself() -> None:
    def answer(_: pa.Array) -> Decoded:
        msg = "the registry is away"
        raise ConnectionFailed(msg)

    with pytest.raises(ConnectionFailed) as caught:
        odd(answer, b"a")
    assert caught.value.partition == PARTITION_0


def sourced(count: int, *source: int | None) -> Decoded:
    return Decoded(words(*["w"] * count), pa.array(source, pa.int32()))


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (Decoded(words("w")), "1 rows for 3 messages, 0 of them bad"),
        (
            Decoded(words("w", "w", "w"), errors=[BadMessage(0, "x", "y")]),
            "3 rows for 3 messages, 1 of them bad",
        ),
        (sourced(1, 0, 1), "1 rows have 2 sources, 0 null"),
        (sourced(2, 0, None), "2 rows have 2 sources, 1 null"),
        (sourced(1, 3), "the sources are not ascending within 0 to 2"),
        (sourced(1, -1), "the sources are not ascending within 0 to 2"),
        (sourced(3, 0, 2, 1), "the sources are not ascending within 0 to 2"),
        (
            Decoded(words(), pa.array([], pa.int32()), [BadMessage(3, "x", "y")]),
            "the bad messages are not distinct indices below 3",
        ),
        (
            Decoded(words(), pa.array([], pa.int32()), [BadMessage(-1, "x", "y")]),
            "the bad messages are not distinct indices below 3",
        ),
        (
            Decoded(words(), pa.array([], pa.int32()), [BadMessage(1, "x", "y")] * 2),
            "the bad messages are not distinct indices below 3",
        ),
        (
            Decoded(words("w"), pa.array([1], pa.int32()), [BadMessage(1, "x", "y")]),
            "a message is bad and has rows",
        ),
    ],
)
def test_answer_that_contradicts_itself_is_refused(answer: Decoded, what: str) -> None:
    with pytest.raises(ContractBroken) as caught:
        odd(lambda _: answer, b"a", b"b", b"c")
    assert caught.value.what == f"rule D1: {what}"
    assert caught.value.partition == PARTITION_0


def test_rows_of_another_schema_name_the_column() -> None:
    other = pa.record_batch({"word": pa.array([7], pa.int64())})
    for values in ([b"a"], [b"a", None]):
        with pytest.raises(SchemaMismatch) as caught:
            odd(lambda _: Decoded(pa.record_batch({"verse": ["x"]})), *values)
        assert caught.value.what == "column 'verse' is not in the declared schema"
        with pytest.raises(SchemaMismatch) as caught:
            odd(lambda _: Decoded(other), *values)
        what = "column 'word' is bigint, declared string: values are not converted to"
        assert caught.value.what.startswith(what)


def test_column_that_the_decoder_left_out_is_null() -> None:
    two = pa.schema([*WORD, pa.field("length", pa.int32(), nullable=False)])
    dictionary = decoding(lambda _: Decoded(words("a")), two)
    batch = read(envelopes(b"a", None), dictionary=dictionary)
    assert batch.rows.to_pylist() == [
        {"word": "a", "length": None},
        {"word": None, "length": None},
    ]
