"""Rule W8: which partition rows go to, and what travels beside them."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamfactory.spi import ContractBroken, SchemaMismatch, envelope_schema
from streamfactory.spi.ddl import type_text
from streamfactory.wiring.writing.routing import ROUTING, Router, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.wiring.writing.sink import Sink


def write(sink: Sink, rows: pa.RecordBatch, **context: Any) -> Any:
    """Write one epoch of one task; answers the counters."""
    with closing(sink.writer(rows.schema, **context)) as writer:
        writer.write(rows)
        message = writer.commit()
    with closing(sink.committer()) as committer:
        assert committer.commit(context.get("epoch", 0), [message])
    return writer.counters


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def partitions_of(key: pa.Array, count: int = 7) -> dict[int, int]:
    """Where each row goes, by its number; rows without a key go to 3."""
    rows = pa.record_batch({"n": range(len(key)), "key": key})
    router = Router(lambda _: count, 3, ["key"])
    parcel = unpack(rows, ROUTING)
    return {
        n: out.partition
        for out in router.route(parcel, router.key_of(parcel))
        for n in out.rows.column("n").to_pylist()
    }


PARTITIONS = {"stream.memory.partitions": "4"}


def test_rows_go_where_their_column_says_and_keep_their_order(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory(PARTITIONS)
    write(sink, batch(n=[1, 2, 3, 4, 5, 6], _partition=[3, 0, 3, 0, 3, 1]))
    assert contents() == {0: [2, 4], 1: [6], 2: [], 3: [1, 3, 5]}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (
            pa.array([0, None]),
            "column '_partition' has 1 nulls (stream 'memory:clicks')",
        ),
        (
            pa.array([0, 4]),
            (
                "column '_partition' has values 0 to 4 (stream 'memory:clicks'); "
                "use partitions 0 to 3"
            ),
        ),
        (
            pa.array([-1, 0]),
            (
                "column '_partition' has values -1 to 0 (stream 'memory:clicks'); "
                "use partitions 0 to 3"
            ),
        ),
    ],
)
def test_partition_that_cannot_be_is_refused_and_nothing_of_the_batch_taken(
    sink_factory: Callable[..., Sink],
    contents: Callable[..., dict[int, list[Any]]],
    values: pa.Array,
    complaint: str,
) -> None:
    sink = sink_factory(PARTITIONS)
    good, bad = batch(n=[1, 2], _partition=[0, 1]), batch(n=[3, 4], _partition=values)
    with closing(sink.writer(good.schema)) as writer:
        with pytest.raises(SchemaMismatch) as caught:
            writer.write(bad)
        writer.write(good)
        message = writer.commit()
    assert str(caught.value) == complaint
    assert message.summary.rows == 2
    with closing(sink.committer()) as committer:
        committer.commit(0, [message])
    assert contents() == {0: [1], 1: [2], 2: [], 3: []}


@pytest.mark.parametrize(
    "values", [pa.array(["x"]), pa.array([1.5]), pa.array([2**40]), pa.array([[1]])]
)
def test_partition_of_a_type_that_is_no_number_names_both_types(
    sink_factory: Callable[..., Sink], values: pa.Array
) -> None:
    rows = batch(n=[1], _partition=values)
    with closing(sink_factory(PARTITIONS).writer(rows.schema)) as writer:
        with pytest.raises(SchemaMismatch) as caught:
            writer.write(rows)
        assert caught.value.what.startswith(
            f"column '_partition' is {type_text(values.type)}, declared int: "
        )


def test_keys_choose_as_kafka_does_and_rows_without_key_go_home(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    keys = ["21", None, "foobar", "abc", "21", None]
    write(sink_factory(PARTITIONS), batch(n=[0, 1, 2, 3, 4, 5], _key=keys), task=6)
    # murmur2("21") is -973932308: & 0x7fffffff, % 4 is 0; "foobar" and "abc" likewise
    chosen = [(h & 0x7FFFFFFF) % 4 for h in (-973932308, -790332482, 479470107)]
    expected: dict[int, list[int]] = {0: [], 1: [], 2: [], 3: []}
    for n, key in enumerate(keys):
        home = 6 % 4
        place = home if key is None else chosen[["21", "foobar", "abc"].index(key)]
        expected[place].append(n)
    assert contents() == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(3),
        pa.dictionary(pa.int32(), pa.string()),
    ],
)
def test_a_key_is_the_same_key_in_every_type_of_text(kind: pa.DataType) -> None:
    keys = pa.array(["abc", "def", "xyz"]).cast(pa.binary()).cast(pa.binary(3))
    if not kind.equals(pa.binary(3)):
        plain = keys.cast(pa.binary()).cast(pa.string())
        keys = (
            plain.dictionary_encode()
            if pa.types.is_dictionary(kind)
            else plain.cast(kind)
        )
    assert keys.type.equals(kind)
    parcel = unpack(batch(n=[0, 1, 2], _key=keys), ROUTING)
    router = Router(lambda _: 97, 0)
    found = {
        row["n"]: out.partition
        for out in router.route(parcel, router.key_of(parcel))
        for row in out.rows.to_pylist()
    }
    plain = unpack(batch(n=[0, 1, 2], _key=["abc", "def", "xyz"]), ROUTING)
    assert found == {
        row["n"]: out.partition
        for out in router.route(plain, router.key_of(plain))
        for row in out.rows.to_pylist()
    }


@pytest.mark.parametrize(
    "values",
    [
        pa.array([-1, 0, None, 12345678901234567], pa.int64()),
        pa.array([0, 250, None, 1, 1], pa.uint8()),
        pa.array([1, None, 86_400], pa.timestamp("s", "UTC")),
        pa.array(["", "a", None, "ключ", "a" * 300]),
        pa.array([b"", b"\xff", None, b"\x00"], pa.large_binary()),
        pa.array([b"\xff\x00", None, b"ab"], pa.binary(2)),
        pa.array([0.0, -0.0, None, 1.5]),
        pa.array(["x", None, "y"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays([1, 0, None, 1], pa.array(["x", None])),
    ],
    ids=lambda values: str(values.type),
)
def test_keys_that_repeat_go_where_each_goes_alone(values: pa.Array) -> None:
    if pa.types.is_dictionary(values.type):
        many = values.take(pa.array([n % len(values) for n in range(3000)]))
    else:
        many = pa.concat_arrays([values] * (3000 // len(values)))
    alone = {n: partitions_of(values.slice(n, 1))[0] for n in range(len(values))}
    assert partitions_of(many) == {n: alone[n % len(values)] for n in range(len(many))}
    part = many.slice(5, 2500)
    expected = {n: alone[(n + 5) % len(values)] for n in range(2500)}
    assert partitions_of(part) == expected


def test_a_key_that_is_no_text_is_refused(sink_factory: Callable[..., Sink]) -> None:
    rows = batch(n=[1], _key=[17])
    with closing(sink_factory(PARTITIONS).writer(rows.schema)) as writer:
        with pytest.raises(SchemaMismatch) as caught:
            writer.write(rows)
        assert caught.value.what.startswith(
            "column '_key' is bigint, declared binary: "
        )


def test_key_columns_choose_where_there_is_no_key(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    options = {**PARTITIONS, "producer.key.columns": "name"}
    names = ["21", "foobar", "abc", None]
    write(sink_factory(options), batch(n=[0, 1, 2, 3], name=names), task=3)
    expected: dict[int, list[int]] = {0: [], 1: [], 2: [], 3: []}
    for n, h in enumerate((-973932308, -790332482, 479470107)):
        expected[(h & 0x7FFFFFFF) % 4].append(n)
    expected[3].append(3)
    assert contents() == expected


def test_several_key_columns_of_any_scalar_type_are_one_key() -> None:
    router = Router(lambda _: 1000, 0, ["text", "octets", "number", "day"])
    day = datetime(2026, 1, 2, tzinfo=UTC).date()
    rows = batch(text=["a"], octets=[b"\xff"], number=[7], day=[day])
    key = router.key_of(unpack(rows, ROUTING))
    assert key is not None
    assert key.to_pylist() == [b"a\0\xff\x007\x002026-01-02"]


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ({"n": [1]}, "the key column 'name' is not among the rows"),
        (
            {"name": [[1]]},
            "the key column 'name' has type array<bigint>, which cannot be a key",
        ),
    ],
)
def test_key_column_that_cannot_be_one_is_named(
    rows: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        Router(lambda _: 2, 0, ["name"]).key_of(unpack(batch(**rows), ROUTING))
    assert caught.value.what == complaint


@pytest.mark.parametrize("task", [0, 1, 5, 4_000_001])
def test_rows_without_key_go_to_task_modulo_partitions(
    sink_factory: Callable[..., Sink],
    contents: Callable[..., dict[int, list[Any]]],
    task: int,
) -> None:
    write(sink_factory(PARTITIONS), batch(n=[1, 2]), task=task)
    assert contents()[task % 4] == [1, 2]


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), max_size=60),
)
def test_routing_loses_nothing_and_keeps_order_within_partition_and_topic(
    places: list[tuple[int, int]],
) -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "n": pa.array(range(len(places)), pa.int64()),
            "_partition": pa.array([p for p, _ in places], pa.int32()),
            "_topic": pa.array([f"t{t}" for _, t in places], pa.string()),
            "_key": pa.array([str(n) for n in range(len(places))], pa.string()),
        }
    )
    parcel = unpack(rows, ROUTING | {"_topic"})
    found: dict[tuple[int, str], list[int]] = {}
    for out in Router(lambda _: 7, 0).route(parcel, parcel.special["_key"]):
        assert out.topic is not None
        assert (out.partition, out.topic) not in found
        numbers = out.rows.column("n").to_pylist()
        assert out.key is not None
        assert out.key.to_pylist() == [str(n) for n in numbers]
        found[out.partition, out.topic] = numbers
    expected: dict[tuple[int, str], list[int]] = {}
    for n, (p, t) in enumerate(places):
        expected.setdefault((p, f"t{t}"), []).append(n)
    assert found == expected


def test_each_topic_of_a_sink_has_its_own_number_of_partitions(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.carries = frozenset({"_topic"})
    script.counts = {"clicks": 1, "wide": 100, "narrow": 2}
    rows = batch(n=[1, 2, 3], _topic=["wide", "narrow", "wide"], _key=["abc"] * 3)
    with closing(scripted().writer(rows.schema)) as writer:
        writer.write(rows)
        writer.abort()
    assert [(o.topic, o.partition) for o in script.written] == [
        ("wide", 479470107 % 100),
        ("narrow", 479470107 % 2),
    ]
    assert [o.rows.column("n").to_pylist() for o in script.written] == [[1, 3], [2]]


def test_topic_that_is_null_is_refused(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.carries = frozenset({"_topic"})
    rows = batch(n=[1, 2], _topic=["wide", None])
    with (
        closing(scripted().writer(rows.schema)) as writer,
        pytest.raises(SchemaMismatch) as caught,
    ):
        writer.write(rows)
    assert caught.value.what == "column '_topic' has nulls"
    assert script.written == []


@pytest.mark.parametrize("name", ["_topic", "_headers", "_timestamp", "_offset"])
def test_column_that_routes_nothing_here_is_a_column_of_the_rows(
    sink_factory: Callable[..., Sink], name: str
) -> None:
    rows = batch(n=[1], **{name: ["mine"]})
    with sink_factory({"stream.memory.topic.name": "other"}) as sink:
        sink.put(rows)
        assert sink.schema == rows.schema
    sink = sink_factory()
    sink.put(batch(n=[1]))
    with pytest.raises(SchemaMismatch) as caught:
        sink.put(rows)
    assert caught.value.what == f"column {name!r} is not in the declared schema"
    assert caught.value.remedy == "write the columns of topic 'clicks': n bigint"


def test_messages_refuse_a_column_that_their_type_does_not_store(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.carries, script.schema = frozenset({"_key"}), envelope_schema()
    rows = pa.record_batch({"value": [b"1"], "_key": ["k"], "_topic": ["t"]})
    sink = scripted({"stream.scripted.decoder.class.name": "raw"})
    with pytest.raises(SchemaMismatch, match="_topic"):
        sink.writer(rows.schema)
    assert script.written == []


def test_a_time_without_zone_is_no_timestamp(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.carries, script.schema = frozenset({"_timestamp"}), envelope_schema()
    stamp = datetime(2026, 1, 2)  # noqa: DTZ001 - the point
    rows = pa.record_batch({"value": [b"1"], "_timestamp": [stamp]})
    sink = scripted({"stream.scripted.decoder.class.name": "raw"})
    with (
        closing(sink.writer(rows.schema)) as writer,
        pytest.raises(SchemaMismatch) as caught,
    ):
        writer.write(rows)
    assert caught.value.what == (
        "column '_timestamp' is timestamp_ntz, declared timestamp: "
        "a timestamp without time zone is not in UTC"
    )


def test_a_sink_without_partitions_breaks_the_contract(
    scripted: Callable[..., Sink], script: Any
) -> None:
    script.counts = {"clicks": 0}
    rows = batch(n=[1])
    with (
        closing(scripted().writer(rows.schema)) as writer,
        pytest.raises(ContractBroken) as caught,
    ):
        writer.write(rows)
    assert caught.value.what == "the topic 'clicks' has 0 partitions"


def test_epochs_of_a_writer_without_keys_go_to_the_partitions_in_turn(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory(PARTITIONS)
    for epoch in range(8):
        sink.put(batch(n=[epoch, epoch]), writer_id="w", epoch=epoch)
    partitions = list(contents().values())
    assert [len(partition) for partition in partitions] == [4, 4, 4, 4]
    assert sorted(partition[2] - partition[0] for partition in partitions) == [
        4,
        4,
        4,
        4,
    ]


def test_an_epoch_that_is_tried_again_goes_to_the_same_partitions(
    sink_factory: Callable[..., Sink],
) -> None:
    homes = set()
    for _ in range(5):
        sink = sink_factory(PARTITIONS)
        with closing(sink.writer(batch(n=[1]).schema, writer_id="w", epoch=7)) as one:
            routed = one._router.route(unpack(batch(n=[1]), ROUTING), None)
            homes.add(routed[0].partition)
    assert len(homes) == 1


def test_writers_and_anonymous_puts_are_spread_over_partitions(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory(PARTITIONS)
    for number in range(40):
        sink.put(batch(n=[number]), writer_id=f"w{number}", epoch=0)
    assert all(contents().values())
    for _ in range(400):
        if min(len(partition) for partition in contents().values()) > 20:
            break
        sink.put(batch(n=[0]))
    else:
        pytest.fail("rows of nobody are not spread")


def test_tasks_go_to_the_partition_of_their_number(
    sink_factory: Callable[..., Sink], contents: Callable[..., dict[int, list[Any]]]
) -> None:
    sink = sink_factory(PARTITIONS)
    for task in range(8):
        write(sink, batch(n=[task]), task=task, epoch=5)
    assert contents() == {0: [0, 4], 1: [1, 5], 2: [2, 6], 3: [3, 7]}
