"""Rows of changes as messages of their keys: upserts, and tombstones for deletes."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.spi import ConfigError, SchemaMismatch
from streamfactory.wiring.writing.changes import apply_changes
from streamfactory.wiring.writing.routing import ROUTING, Router, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.wiring.writing.sink import Sink

KEYED = {"producer.change.column": "_change", "producer.key.columns": "id"}
JSON = {
    "stream.memory.messages": "true",
    "stream.memory.decoder.class.name": "json",
    **KEYED,
}
KINDS = ["insert", "update_before", "update_after", "delete"]


def changes(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": [1, 1, 1, 2], "word": ["a", "a", "b", "c"], "_change": KINDS, **columns}
    )


def written(sink: Sink, rows: pa.RecordBatch) -> Any:
    with closing(sink.writer(rows.schema)) as writer:
        writer.write(rows)
        message = writer.commit()
        with closing(sink.committer()) as committer:
            committer.commit(0, [message])
        return writer.written


def messages(properties: dict[str, str]) -> list[tuple[bytes, Any]]:
    raw = {**properties, "stream.memory.decoder.class.name": "raw"}
    raw["stream.memory.messages"] = "true"
    with streamfactory.open(raw) as stream:
        return [
            (row["key"], None if row["value"] is None else json.loads(row["value"]))
            for batch in stream
            for row in batch.rows.to_pylist()
        ]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_delete_is_a_tombstone_and_a_before_image_is_not_written(
    sink_factory: Callable[..., Sink], properties: dict[str, str], kind: pa.DataType
) -> None:
    rows = changes(_change=pa.array(KINDS, kind))
    (counts,) = written(sink_factory(JSON), rows)
    assert messages(properties) == [
        (b"1", {"id": 1, "word": "a"}),
        (b"1", {"id": 1, "word": "b"}),
        (b"2", None),
    ]
    assert (counts.writes, counts.upserts, counts.deletes) == (3, 2, 1)


def test_kinds_may_be_a_dictionary_and_a_key_column_of_the_rows_is_the_key(
    sink_factory: Callable[..., Sink], properties: dict[str, str]
) -> None:
    kinds = pa.array(KINDS).dictionary_encode()
    keys = pa.array([b"k1", b"k1", b"k1", b"k2"])
    written(sink_factory(JSON), changes(_change=kinds, _key=keys))
    assert [key for key, _ in messages(properties)] == [b"k1", b"k1", b"k2"]


def test_a_tombstone_without_a_kind_is_a_delete_of_its_key(
    sink_factory: Callable[..., Sink], properties: dict[str, str]
) -> None:
    """As Debezium writes it after the event of each delete."""
    kinds = ["insert", "insert", "delete", None]
    keys, dead = [b"k1", b"k2", b"k1", b"k2"], [False, False, False, True]
    rows = changes(_change=kinds, _key=keys, _tombstone=dead)
    written(sink_factory(JSON), rows)
    assert [(key, row is None) for key, row in messages(properties)] == [
        (b"k1", False),
        (b"k2", False),
        (b"k1", True),
        (b"k2", True),
    ]


def test_keys_that_repeat_in_a_large_batch_are_stored_without_a_dictionary() -> None:
    ids = [n % 3 for n in range(3000)]
    rows = changes(id=ids, word=["a"] * len(ids), _change=["insert"] * len(ids))
    router = Router(lambda _: 2, 0, ["id"])
    routed = router.key_of(unpack(rows, ROUTING))
    assert routed is not None
    assert pa.types.is_dictionary(routed.type)
    key = apply_changes(unpack(rows, ROUTING), "_change", router)[0].special["_key"]
    assert key.type == pa.binary()
    assert key.to_pylist() == [str(one).encode() for one in ids]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        (
            {"_change": ["insert", None, "insert", "insert"]},
            "column '_change' has None, which is no kind of change",
        ),
        (
            {"_change": ["insert", "upsert", "insert", "insert"]},
            "column '_change' has 'upsert', which is no kind of change",
        ),
        ({"_change": [1, 2, 3, 4]}, "column '_change' is bigint, kinds of changes are"),
        ({"id": [None, 1, None, 2]}, "2 changes have no key"),
    ],
)
def test_changes_without_kind_or_key_are_refused_and_none_is_written(
    sink_factory: Callable[..., Sink],
    properties: dict[str, str],
    columns: dict[str, Any],
    complaint: str,
) -> None:
    sink, rows = sink_factory(JSON), changes(**columns)
    with (
        closing(sink.writer(rows.schema)) as writer,
        pytest.raises(SchemaMismatch, match=complaint),
    ):
        writer.write(rows)


@pytest.mark.parametrize(
    ("options", "dropped", "complaint"),
    [
        (KEYED, (), "requires a stream of messages with keys"),
        (
            {key: text for key, text in JSON.items() if "key.columns" not in key},
            (),
            "requires the key of each row.*set producer.key.columns",
        ),
        (JSON, ("_change",), "the rows have no column '_change'"),
    ],
)
def test_what_cannot_be_written_as_changes_is_refused_before_any_row(
    sink_factory: Callable[..., Sink],
    options: dict[str, str],
    dropped: tuple[str, ...],
    complaint: str,
) -> None:
    rows = changes().drop_columns(list(dropped)) if dropped else changes()
    with pytest.raises((ConfigError, SchemaMismatch), match=complaint):
        sink_factory(options).check(rows.schema)
