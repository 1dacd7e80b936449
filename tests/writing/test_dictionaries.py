"""Dictionary columns: kept where the sink keeps them, decoded first where not."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.specimens import PARTITION_0, Author, decoding, envelopes

import streamfactory
from streamfactory.conversion.conform import conform
from streamfactory.spi import Decoded, SchemaMismatch, envelope_schema
from streamfactory.spi.ddl import type_text
from streamfactory.wiring.core.canonical import canonical_schema
from streamfactory.wiring.streams.opening import open_sink
from streamfactory.wiring.testing.faults import Faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.writing.conftest import Script

    from streamfactory.arrowlog import MemoryLogStore
    from streamfactory.wiring.writing.sink import Sink

SMALL = pa.dictionary(pa.int8(), pa.string())
WORD = pa.dictionary(pa.int32(), pa.string())
WIDE = pa.dictionary(pa.int32(), pa.large_string())
RANK = pa.dictionary(pa.int8(), pa.string(), ordered=True)
NUMBER = pa.dictionary(pa.int32(), pa.int64())
SHORT = pa.dictionary(pa.int32(), pa.int32())
SINGLE = pa.dictionary(pa.int32(), pa.float32())
BERLIN = pa.timestamp("us", tz="Europe/Berlin")
UTC_TIME = pa.timestamp("us", tz="UTC")


def deep(kind: pa.DataType) -> pa.DataType:
    """A type as it is nested in every kind of nest."""
    lists = pa.list_(pa.struct([pa.field("a", kind), pa.field("n", pa.int64())]))
    return pa.struct([pa.field("l", lists), pa.field("m", pa.map_(pa.string(), kind))])


NESTED: list[Any] = [
    {"l": [{"a": "x", "n": 1}, {"a": None, "n": 2}], "m": [("k", "y")]},
    None,
    {"l": [{"a": "x", "n": 3}], "m": []},
]


def words(*values: str | None) -> pa.RecordBatch:
    """A column of words, and one with words inside."""
    nested = [NESTED[index % len(NESTED)] for index in range(len(values))]
    inside = pa.array(nested, deep(pa.string())).cast(deep(WORD))
    return pa.record_batch({"word": pa.array(values).cast(WORD), "deep": inside})


def one(values: list[Any], have: pa.DataType) -> pa.RecordBatch:
    if pa.types.is_dictionary(have):
        plain = pa.array(values, have.value_type).dictionary_encode()
        column = pa.DictionaryArray.from_arrays(
            plain.indices.cast(have.index_type), plain.dictionary, ordered=have.ordered
        )
        return pa.record_batch({"x": column})
    return pa.record_batch({"x": pa.array(values, have)})


def wanting(kind: pa.DataType, *, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("x", kind, nullable=nullable)])


# --- canonical types ------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        (SMALL, SMALL),
        (WIDE, WORD),
        (RANK, RANK),
        (
            pa.dictionary(pa.uint32(), pa.string_view()),
            pa.dictionary(pa.uint32(), pa.string()),
        ),
        (pa.dictionary(pa.int32(), BERLIN), pa.dictionary(pa.int32(), UTC_TIME)),
        (pa.large_list(WIDE), pa.list_(WORD)),
        (pa.list_(WIDE, 2), pa.list_(WORD, 2)),
        (deep(WIDE), deep(WORD)),
        (pa.large_string(), pa.string()),
    ],
    ids=str,
)
def test_dictionaries_stay_at_every_depth_where_they_are_kept(
    kind: pa.DataType, kept: pa.DataType
) -> None:
    schema = pa.schema([pa.field("x", kind, nullable=False)])
    found = canonical_schema(schema, dictionaries=True)
    assert found == pa.schema([pa.field("x", kept, nullable=False)])


def test_dictionaries_are_decoded_at_every_depth_where_they_are_not() -> None:
    found = canonical_schema(pa.schema({"x": deep(WIDE), "y": RANK}))
    assert found == pa.schema({"x": deep(pa.string()), "y": pa.string()})


# --- through a sink -------------------------------------------------------------


@pytest.mark.parametrize("faulty", [False, True])
def test_memory_keeps_dictionaries_and_answers_them_to_readers(
    sink_factory: Callable[..., Sink],
    topics: MemoryLogStore,
    properties: dict[str, str],
    *,
    faulty: bool,
) -> None:
    sink = sink_factory(wrap=Faults().around_producers) if faulty else sink_factory()
    parts = [words("a", None, "b"), words("c", "b")]
    for epoch, rows in enumerate(parts):
        assert sink.put(rows, writer_id="w", epoch=epoch)
    assert topics.open("clicks").schema == parts[0].schema
    with streamfactory.open(properties) as stream:
        assert stream.schema == parts[0].schema
        table = stream.to_reader().read_all()
    assert table == pa.Table.from_batches(parts)
    with streamfactory.open({**properties, "metadata.columns": "true"}) as stream:
        found = stream.to_reader().read_all()
    assert found.schema.field("word").type == WORD
    assert found["word"].to_pylist() == ["a", None, "b", "c", "b"]
    assert found["_offset"].to_pylist() == [0, 1, 2, 3, 4]


def test_an_author_who_keeps_none_meets_none(
    scripted: Callable[..., Sink], script: Script
) -> None:
    rows = words("a", None, "b")
    with closing(scripted().writer(rows.schema)) as writer:
        schema = writer.context.schema
        writer.write(rows)
        writer.abort()
    plain = {"word": pa.string(), "deep": deep(pa.string())}
    assert schema == pa.schema(plain)
    (outgoing,) = script.written
    assert outgoing.rows.schema == schema
    assert outgoing.rows.to_pylist() == rows.to_pylist()


def test_an_encoder_meets_none(
    sink_factory: Callable[..., Sink],
    contents: Callable[..., dict[int, list[Any]]],
    encoders: Any,
) -> None:
    options = {"stream.memory.decoder.class.name": "shouting"}
    rows = pa.record_batch({"n": pa.array([1, 2]).dictionary_encode()})
    sink = sink_factory(options, plugins=encoders)
    with closing(sink.writer(rows.schema)) as writer:
        encoder: Any = writer._encoder
        writer.write(rows)
        message = writer.commit()
    with closing(sink.committer()) as committer:
        committer.commit(0, [message])
    assert encoder.schema == pa.schema({"n": pa.int64()})
    assert contents("value") == {0: [b"1:None!", b"2:None!"]}


@pytest.mark.parametrize("kind", [pa.string(), WIDE, SMALL], ids=str)
def test_later_rows_become_what_the_topic_holds(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore, kind: pa.DataType
) -> None:
    topics.create("clicks", wanting(WORD))
    assert sink_factory().put(one(["a", None, "a"], kind))
    found = topics.open("clicks").read(0, 0, max_rows=9, max_bytes=2**20).rows
    assert found is not None
    assert found.schema == wanting(WORD)
    assert found.column(0).to_pylist() == ["a", None, "a"]


def test_a_topic_of_plain_words_takes_dictionaries(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    topics.create("clicks", wanting(pa.string()))
    assert sink_factory().put(one(["a", None, "a"], SMALL))
    found = topics.open("clicks").read(0, 0, max_rows=9, max_bytes=2**20).rows
    assert found == one(["a", None, "a"], pa.string())


# --- casts ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "have", "want"),
    [
        (["a", None, "b"], WIDE, WORD),
        (["a", None, "b"], SMALL, WORD),
        (["a", None, "b"], RANK, WORD),
        (["a", None, "b"], WORD, pa.string_view()),
        (["a", None, "b"], pa.string_view(), WORD),
        (["a"], RANK, pa.dictionary(pa.int8(), pa.large_string(), ordered=True)),
        ([1, None, 1], pa.int64(), NUMBER),
        ([1, None, 1], pa.int8(), NUMBER),
        ([1, None, 1], NUMBER, SHORT),
        ([1, None, 1], NUMBER, pa.int8()),
        ([1.5, None], pa.float64(), SINGLE),
        ([None], pa.null(), NUMBER),
        ([["a"], None, ["b", None]], pa.list_(pa.string()), pa.large_list(WORD)),
        (NESTED, deep(pa.string()), deep(WORD)),
        ([[1.5], None], pa.list_(pa.float64()), pa.list_(pa.float32())),
        (
            [[("k", 1.5)], None, [("l", None)]],
            pa.map_(pa.string(), pa.float64()),
            pa.map_(pa.string(), pa.float32()),
        ),
    ],
    ids=str,
)
def test_casts_from_and_to_dictionaries_keep_every_value(
    values: list[Any], have: pa.DataType, want: pa.DataType
) -> None:
    rows = one(values, have)
    found = conform(rows, wanting(want))
    found.validate(full=True)
    assert found.schema == wanting(want)
    assert found.column(0).to_pylist() == values
    back = conform(found.slice(1), wanting(want))
    assert back.column(0).to_pylist() == values[1:]


def test_rows_of_equal_dictionary_types_are_the_same_rows() -> None:
    rows = words("a", None)
    assert conform(rows, rows.schema) is rows


def test_a_wider_dictionary_keeps_its_indices() -> None:
    words = pa.array(["a", "b", "c"], pa.large_string())
    given = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], pa.int32()), words)
    column = conform(pa.record_batch({"x": given}), wanting(WORD)).column(0)
    assert column.indices.to_pylist() == [1, 0, 1]
    assert column.dictionary.to_pylist() == ["a", "b", "c"]


@pytest.mark.parametrize("want", [SHORT, pa.dictionary(pa.int8(), pa.int64())], ids=str)
def test_values_that_no_row_has_hinder_no_cast(want: pa.DataType) -> None:
    rows = one([*range(300), 2**40], NUMBER).slice(150, 3)
    assert conform(rows, wanting(want)).column(0).to_pylist() == [150, 151, 152]


@pytest.mark.parametrize(
    ("values", "have", "want", "reason"),
    [
        ([*"abc"], pa.string(), RANK, "the order of its values is unknown"),
        ([*"abc"], SMALL, RANK, "the order of its values is unknown"),
        (["1"], WORD, pa.int64(), "text is not parsed"),
        (["1"], pa.string(), NUMBER, "text is not parsed"),
        (
            [1],
            NUMBER,
            pa.dictionary(pa.int32(), UTC_TIME),
            "a number is not a timestamp",
        ),
        ([2**40], NUMBER, SHORT, "Integer value 1099511627776 not in range"),
        ([2**40], pa.int64(), SHORT, "Integer value 1099511627776 not in range"),
        ([*map(str, range(300))], WORD, SMALL, "Integer value 128 not in range"),
        ([0.1], pa.float64(), SINGLE, "some values have more digits"),
        (
            [0.1],
            pa.dictionary(pa.int32(), pa.float64()),
            pa.float32(),
            "some values have more digits",
        ),
    ],
    ids=str,
)
def test_casts_that_lose_something_name_the_column_and_both_types(
    values: list[Any], have: pa.DataType, want: pa.DataType, reason: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        conform(one(values, have), wanting(want))
    kinds = f"{type_text(have)}, declared {type_text(want)}"
    what = f"column 'x' is {kinds}: {reason}"
    assert caught.value.what.startswith(what)


def test_a_null_among_the_values_of_a_dictionary_is_a_null() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["a", None]))
    rows = pa.record_batch({"x": column})
    assert column.null_count == 0
    for kind in (column.type, WORD, pa.string()):
        with pytest.raises(SchemaMismatch) as caught:
            conform(rows, wanting(kind, nullable=False))
        assert caught.value.what == "column 'x' is not nullable, but has 2 nulls"


# --- decoders -------------------------------------------------------------------


def test_a_decoder_may_answer_dictionaries_and_tombstones_are_nulls_among_them() -> (
    None
):
    def answer(values: pa.Array) -> Decoded:
        return Decoded(words(*(value.as_py().decode() for value in values)))

    schema = words().schema
    author = Author(envelopes(b"b", None, b"a", b"b"), schema=envelope_schema())
    source = author.source(
        plugins=[decoding(answer, schema)], stream__script__decoder__class__name="words"
    )
    with closing(source), closing(source.reader(PARTITION_0)) as reader:
        rows = reader.fetch(0).rows
    assert rows.schema == schema
    assert rows.column("word").to_pylist() == ["b", None, "a", "b"]
    assert rows.column("deep").to_pylist() == [NESTED[0], None, None, NESTED[2]]


def test_a_dictionary_column_routes_as_its_values_do() -> None:
    plain = pa.array([b"\xff", b"a", None], pa.binary())
    with open_sink(
        {
            "streamType": "memory",
            "stream.memory.store": uuid.uuid4().hex,
            "stream.memory.topic.name": "t",
            "producer.key.columns": "k",
        }
    ) as sink:
        assert sink.put(pa.table({"k": plain.dictionary_encode()}))
