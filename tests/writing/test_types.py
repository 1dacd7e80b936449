"""What becomes of the rows' types."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from streamfactory.spi import SchemaMismatch
from streamfactory.wiring.core.canonical import canonical_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.arrowlog import MemoryLogStore
    from streamfactory.wiring.writing.sink import Sink

BERLIN = pa.timestamp("us", tz="Europe/Berlin")
UTC_TIME = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("kind", "canonical"),
    [
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (BERLIN, UTC_TIME),
        (pa.timestamp("us"), pa.timestamp("us")),
        (pa.large_list(pa.large_string()), pa.list_(pa.string())),
        (pa.list_view(pa.string_view()), pa.list_(pa.string())),
        (pa.large_list_view(BERLIN), pa.list_(UTC_TIME)),
        (pa.list_(pa.large_string(), 1), pa.list_(pa.string(), 1)),
        (pa.map_(pa.large_string(), BERLIN), pa.map_(pa.string(), UTC_TIME)),
        (pa.dictionary(pa.int8(), pa.large_string()), pa.string()),
        (
            pa.struct([pa.field("a", pa.large_list(BERLIN), nullable=False)]),
            pa.struct([pa.field("a", pa.list_(UTC_TIME), nullable=False)]),
        ),
        (pa.decimal128(9, 2), pa.decimal128(9, 2)),
    ],
)
def test_types_are_made_few_at_every_depth(
    kind: pa.DataType, canonical: pa.DataType
) -> None:
    field = pa.field("a", kind, nullable=False, metadata={"x": "y"})
    found = canonical_schema(pa.schema([field], metadata={"pandas": "{}"}))
    assert found.equals(
        pa.schema([pa.field("a", canonical, nullable=False)]), check_metadata=True
    )


def test_rows_are_stored_in_canonical_types(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    stamp = datetime(2026, 7, 1, 12, tzinfo=UTC)
    rows = pa.RecordBatch.from_arrays(
        [
            pa.array(["a"], pa.large_string()),
            pa.array([stamp], BERLIN),
            pa.array([["b"]], pa.large_list(pa.string_view())),
            pa.array(["c"]).dictionary_encode(),
        ],
        names=["text", "time", "list", "word"],
    )
    sink = sink_factory()
    with closing(sink.writer(rows.schema)) as writer:
        writer.write(rows)
        message = writer.commit()
    with closing(sink.committer()) as committer:
        committer.commit(0, [message])
    log = topics.open("clicks")
    assert [str(kind) for kind in log.schema.types] == [
        "string",
        "timestamp[us, tz=UTC]",
        "list<item: string>",
        "dictionary<values=string, indices=int32, ordered=0>",
    ]
    found = log.read(0, 0, max_rows=10, max_bytes=1000).rows
    assert found is not None
    assert found.to_pylist() == [
        {"text": "a", "time": stamp, "list": ["b"], "word": "c"}
    ]


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ({"n": pa.list_(pa.int64())}, "column 'n' is array<bigint>, declared bigint"),
        ({"n": pa.int64(), "x": pa.int64()}, "column 'x' is not in the declared sch"),
    ],
)
def test_writer_of_another_schema_is_refused_before_its_first_row(
    sink_factory: Callable[..., Sink],
    topics: MemoryLogStore,
    schema: dict[str, pa.DataType],
    complaint: str,
) -> None:
    topics.create("clicks", pa.schema({"n": pa.int64(), "name": pa.string()}))
    with pytest.raises(SchemaMismatch) as caught:
        sink_factory().writer(pa.schema(schema))
    assert caught.value.what.startswith(complaint)
    assert caught.value.stream == "memory:clicks"


def test_rows_of_another_schema_name_the_column_and_both_types(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    topics.create("clicks", pa.schema({"n": pa.int32()}))
    with closing(sink_factory().writer(pa.schema({"n": pa.int64()}))) as writer:
        with pytest.raises(SchemaMismatch) as caught:
            writer.write(pa.RecordBatch.from_pydict({"n": [2**40]}))
        assert caught.value.what.startswith("column 'n' is bigint, declared int: ")
        writer.write(pa.RecordBatch.from_pydict({"n": [7]}))
        assert writer.commit().summary.rows == 1


def test_a_sink_notices_that_its_topic_was_made_meanwhile(
    sink_factory: Callable[..., Sink], topics: MemoryLogStore
) -> None:
    sink = sink_factory()
    assert sink.schema is None
    topics.create("clicks", pa.schema({"n": pa.int32()}))
    with closing(sink.writer(pa.schema({"n": pa.int64()}))) as writer:
        assert writer.context.schema == pa.schema({"n": pa.int32()})
