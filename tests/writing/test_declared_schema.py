"""The declared schema of a stream is what every writer creates its topic with."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.spi import SchemaMismatch
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.wiring.writing.sink import Sink

DDL = "zip string, n int"
DECLARED = pa.schema([("zip", pa.string()), ("n", pa.int32())])
WRITTEN = [{"zip": "00501", "n": 7}]


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Flight server."""
    with streamfactory.serve(path=str(tmp_path_factory.mktemp("flight"))) as server:
        yield server.location


@pytest.fixture(params=["file", "memory", "flight"])
def stream(
    request: pytest.FixtureRequest, tmp_path: Path, properties: dict[str, str]
) -> dict[str, str]:
    """The properties of a stream without a topic, which declares its columns."""
    if request.param == "memory":
        return {**properties, "schema": DDL}
    if request.param == "file":
        return {
            "streamType": "file",
            "stream.file.path": str(tmp_path / "topics"),
            "stream.file.topic.name": "t",
            "schema": DDL,
        }
    return {
        "streamType": "flight",
        "stream.flight.location": request.getfixturevalue("location"),
        "stream.flight.topic.name": uuid.uuid4().hex,
        "schema": DDL,
    }


def stored(stream: dict[str, str]) -> pa.Table:
    """The rows of the topic, read without the declaration."""
    bare = {key: value for key, value in stream.items() if key != "schema"}
    with streamfactory.open(bare) as opened:
        return opened.to_reader().read_all()


def test_a_topic_is_created_with_the_declared_types(stream: dict[str, str]) -> None:
    with streamfactory.open_sink(stream) as sink:
        sink.put(pa.table({"n": [7], "zip": ["00501"]}))
    found = stored(stream)
    assert found.schema.equals(DECLARED)
    assert found.to_pylist() == WRITTEN


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"zip": ["00501"], "n": [7], "more": [1]}),
        pa.table({"zip": [501], "n": [7]}),
        pa.table({"zip": ["00501"], "n": [2**40]}),
    ],
    ids=["unknown column", "other type", "value out of range"],
)
def test_rows_that_do_not_fit_create_nothing_else(
    stream: dict[str, str], rows: pa.Table
) -> None:
    with streamfactory.open_sink(stream) as sink:
        with pytest.raises(SchemaMismatch) as caught:
            sink.put(rows)
        assert caught.value.stream is not None
        sink.put(pa.table({"n": [7], "zip": ["00501"]}))
    assert stored(stream).to_pylist() == WRITTEN


def test_publish_reads_text_as_the_declared_types(
    stream: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("zip,n\n00501,7\n")
    streamfactory.publish(stream, str(tmp_path / "a.csv"))
    found = stored(stream)
    assert found.schema.equals(DECLARED)
    assert found.to_pylist() == WRITTEN


def test_publish_with_another_schema_is_refused(
    stream: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("zip,n\n00501,7\n")
    with pytest.raises(SchemaMismatch):
        streamfactory.publish(stream, str(tmp_path / "a.csv"), schema="zip int, n int")


def test_copy_creates_its_target_with_the_declared_types(
    stream: dict[str, str], tmp_path: Path
) -> None:
    source = {
        "streamType": "file",
        "stream.file.path": str(tmp_path / "source"),
        "stream.file.topic.name": "s",
    }
    with streamfactory.open_sink(source) as sink:
        sink.put(pa.table({"zip": ["00501"], "n": [7]}))
    streamfactory.copy(source, stream, writer_id="w")
    found = stored(stream)
    assert found.schema.equals(DECLARED)
    assert found.to_pylist() == WRITTEN


@pytest.mark.parametrize("stream", ["file", "flight"], indirect=True)
def test_administration_creates_the_topic_with_the_declared_types(
    stream: dict[str, str],
) -> None:
    with open_admin(stream) as admin:
        admin.create(admin.declared)
        assert admin.schema().equals(DECLARED)


def test_the_declared_types_bind_the_rows_of_encoded_messages(
    properties: dict[str, str], sink_factory: Callable[..., Sink]
) -> None:
    encoding = {"stream.memory.decoder.class.name": "json", "schema": DDL}
    raw = {**properties, "stream.memory.decoder.class.name": "raw"}
    with streamfactory.open_sink(raw) as first:
        first.put(pa.table({"value": pa.array([b"{}"])}))
    sink = sink_factory(encoding)
    with pytest.raises(SchemaMismatch, match="zip"):
        sink.put(pa.table({"zip": [501], "n": [7]}))
    sink.put(pa.table({"zip": ["00501"], "n": [7]}))
    with streamfactory.open({**properties, **encoding}) as opened:
        assert opened.to_reader().read_all().to_pylist()[1:] == WRITTEN


AVRO = """{"type": "record", "name": "r", "fields": [{"name": "o", "type":
{"type": "record", "name": "o", "fields": [{"name": "a", "type": "long"}]}}]}"""


@pytest.mark.parametrize(
    ("decoder", "schema"), [("arrow", "o struct<a:bigint>"), ("avro", AVRO)]
)
def test_the_schema_of_messages_binds_fields_at_every_depth(
    decoder: str, schema: str, properties: dict[str, str]
) -> None:
    stream = {
        **properties,
        "stream.memory.decoder.class.name": decoder,
        "stream.memory.decoder.prop.schema": schema,
    }
    with streamfactory.open_sink(stream) as sink:
        for value, path in (({"a": 1, "b": 2}, "o.b"), ({"A": 1}, "o.A")):
            with pytest.raises(SchemaMismatch, match=f"'{path}' is not in"):
                sink.put(pa.table({"o": [value]}))
        with pytest.raises(SchemaMismatch, match=r"'o\.a' is string, declared bigint"):
            sink.put(pa.table({"o": [{"a": "12"}]}))
        sink.put(pa.table({"o": [{"a": 1}]}))
    assert stored(stream).to_pylist() == [{"o": {"a": 1}}]


NESTED = "o struct<a:bigint>, l array<struct<a:bigint>>"


@pytest.mark.parametrize(
    ("row", "path"),
    [
        ({"o": {"a": 1, "b": 2}}, "o.b"),
        ({"o": {"A": 1}}, "o.A"),
        ({"l": [{"a": 1}, {"a": 1, "b": None}]}, "l.item.b"),
        ({"x": 1}, "x"),
    ],
)
def test_keys_of_python_rows_that_the_topic_lacks_are_refused(
    tmp_path: Path, row: dict[str, Any], path: str
) -> None:
    stream = {
        "streamType": "file",
        "stream.file.path": str(tmp_path),
        "stream.file.topic.name": "t",
        "schema": NESTED,
    }
    fine = {"o": {"a": 1}, "l": [{"a": 2}]}
    with streamfactory.open_sink(stream) as sink:
        sink.put([fine])
        for rows in ([row], [fine, row], {name: [one] for name, one in row.items()}):
            with pytest.raises(SchemaMismatch, match=f"'{path}' is not in"):
                sink.put(rows)
    assert stored(stream).to_pylist() == [fine]


def test_a_check_shows_where_topic_and_declaration_differ(
    stream: dict[str, str],
) -> None:
    with streamfactory.open_sink(stream) as sink:
        sink.put(pa.table({"n": [7], "zip": ["00501"]}))
    with streamfactory.open(stream) as same:
        assert "differs" not in str(same.preview())
    with streamfactory.open({**stream, "schema": "zip int, n int"}) as other:
        assert "'zip' is string, not int" in str(other.preview())
