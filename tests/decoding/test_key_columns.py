"""Keys with a schema of their own: as columns of rows, read and written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.decoders.registries import Server, serving
from tests.specimens import Words

from streamfactory import open_sink
from streamfactory.spi import ConfigError, SchemaMismatch, Unsupported
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.decoding.conftest import Streams

AVRO = json.dumps(
    {"type": "record", "name": "k", "fields": [{"name": "number", "type": "long"}]}
)
JSON = {"decoder.class.name": "json", "decoder.prop.schema": "page string"}
ROWS: dict[str, list[Any]] = {
    "number": [1, 2, None, 1],
    "page": ["/a", "/b", "/c", None],
}


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.schemas.clear()
    running.subjects.clear()
    return running


def stream(streams: Streams, key: str, given: dict[str, str], **more: str) -> Any:
    """A stream of JSON values whose keys have a column ``number``."""
    own = {
        **JSON,
        "key.decoder.class.name": key,
        "key.decoder.columns": "true",
        **{f"key.decoder.prop.{name}": value for name, value in given.items()},
    }
    own = {f"stream.memory.{name}": value for name, value in own.items()}
    return streams.define("clicks", **own, producer__key__columns="number", **more)


def read(properties: Any, **more: Any) -> dict[str, list[Any]]:
    with open_stream(properties, **more) as opened:
        found: dict[str, list[Any]] = opened.to_reader().read_all().to_pydict()
    return found


def of_format(key: str, *, url: str | None, folder: Path) -> dict[str, str]:
    given = {} if url is None else {"schema.registry.rest.url": url}
    if key == "avro" and url is None:
        return {"schema": AVRO}
    if key == "protobuf":
        given["descriptor.file"] = _descriptors(folder)
    if key == "json" and url is None:
        return {"schema": "number bigint"}
    return given


def _descriptors(folder: Path) -> str:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="k.proto", syntax="proto3")
    message = file.message_type.add(name="Key")
    message.field.add(
        name="number", number=1, type=3, label=1, proto3_optional=True, oneof_index=0
    )
    message.oneof_decl.add(name="_number")
    path = folder / "keys.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return str(path)


@pytest.mark.parametrize("registry", [False, True], ids=["alone", "registry"])
@pytest.mark.parametrize("key", ["json", "avro", "protobuf"])
def test_columns_of_keys_are_read_as_they_were_written(
    streams: Streams, server: Server, tmp_path: Path, key: str, registry: bool
) -> None:
    streams.messages("clicks", [])
    given = of_format(key, url=server.url if registry else None, folder=tmp_path)
    properties = stream(streams, key, given)
    with open_sink(properties) as sink:
        sink.put(pa.table(ROWS))
    assert read(properties) == ROWS
    stored = streams.rows("clicks")
    assert [json.loads(row["value"]) for row in stored] == [
        {"page": page} for page in ROWS["page"]
    ]
    assert [row["key"] is None for row in stored] == [False, False, True, False]
    if registry:
        assert all(row["key"][0] == 0 for row in stored if row["key"] is not None)
        assert list(server.subjects) == ["clicks-key"]


def test_a_tombstone_has_the_columns_of_its_key(streams: Streams) -> None:
    streams.messages("clicks", [b'{"page":"/"}', None], keys=[b'{"number":7}'] * 2)
    properties = stream(streams, "json", {"schema": "number bigint"})
    assert read(properties) == {"number": [7, 7], "page": ["/", None]}
    assert read(properties, columns=["number"]) == {"number": [7, 7]}
    assert read(properties, columns=["page"]) == {"page": ["/", None]}


def test_the_key_itself_is_bytes_beside_its_columns(streams: Streams) -> None:
    streams.messages("clicks", [b"{}"], keys=[b'{"number":7}'])
    columns = {"metadata__columns": "true"}
    properties = stream(streams, "json", {"schema": "number bigint"}, **columns)
    found = read(properties)
    assert (found["number"], found["_key"]) == ([7], [b'{"number":7}'])


def test_a_bad_key_makes_its_message_bad(streams: Streams) -> None:
    keys = [b'{"number":1}', b"no JSON", b'{"number":3}']
    streams.messages("clicks", [b"{}"] * 3, keys=keys)
    policy = {"decode__on__error": "dead-letter"}
    properties = stream(streams, "json", {"schema": "number bigint"}, **policy)
    found = read(properties)
    assert found["number"] == [1, None, 3]
    codes = [error and error["code"] for error in found["_error"]]
    assert codes == [None, "key_malformed", None]


def test_columns_of_one_name_are_refused_unless_there_is_a_prefix(
    streams: Streams,
) -> None:
    streams.messages("clicks", [])
    given = {"schema": "page bigint"}
    with pytest.raises(ConfigError, match="both have a column 'page'"):
        read(stream(streams, "json", given))
    own = {"stream__memory__key__decoder__columns__prefix": "key_"}
    properties = stream(streams, "json", given, **own)
    properties["producer.key.columns"] = "key_page"
    rows = {"key_page": [1, 2], "page": ["/", None]}
    with open_sink(properties) as sink:
        sink.put(pa.table(rows))
    assert streams.rows("clicks")[0]["key"] == b'{"page":1}'
    assert read(properties) == rows


def test_keys_in_one_column_are_written_as_they_were_read(streams: Streams) -> None:
    """Without key.decoder.columns: ``_key`` is a value, or a struct."""
    streams.messages("clicks", [])
    more = {"metadata__columns": "true"}
    properties = stream(streams, "json", {"schema": "number bigint"}, **more)
    del properties["stream.memory.key.decoder.columns"]
    del properties["producer.key.columns"]
    rows = {"page": ["/a", "/b"], "_key": [7, None]}
    with open_sink(properties) as sink:
        sink.put(pa.table(rows))
        sink.put(pa.table({"page": ["/c"], "_key": [b'{"number":8}']}))
        sink.put(pa.table({"page": ["/d"], "_key": [{"number": 9}]}))
    assert read(properties)["_key"] == [7, None, 8, 9]
    stored = [row["key"] for row in streams.rows("clicks")]
    assert stored == [b'{"number":7}', None, b'{"number":8}', b'{"number":9}']


def test_key_columns_may_stay_in_the_values(streams: Streams) -> None:
    streams.messages("clicks", [])
    properties = stream(streams, "json", {"schema": "page string"})
    del properties["stream.memory.key.decoder.columns"]
    properties["producer.key.columns"] = "page"
    with open_sink(properties) as sink:
        sink.put(pa.table({"page": ["/"]}))
    [row] = streams.rows("clicks")
    assert (row["key"], row["value"]) == (b'{"page":"/"}', b'{"page":"/"}')


def test_rows_without_the_columns_of_the_key_are_refused(streams: Streams) -> None:
    streams.messages("clicks", [])
    properties = stream(streams, "json", {"schema": "number bigint"})
    with open_sink(properties) as sink, pytest.raises(SchemaMismatch) as caught:
        sink.put(pa.table({"page": ["/"]}))
    assert "the key column 'number' is not among the rows" in str(caught.value)
    del properties["producer.key.columns"]
    with open_sink(properties) as sink, pytest.raises(ConfigError) as config:
        sink.put(pa.table({"page": ["/"], "number": [1]}))
    assert config.value.remedy == "set producer.key.columns"


def test_a_format_that_only_reads_keys_is_refused(streams: Streams) -> None:
    """``words`` has no encoder."""
    streams.messages("clicks", [])
    properties = stream(streams, "words", {})
    with (
        open_sink(properties, plugins=streams.plugins) as sink,
        pytest.raises(Unsupported, match="cannot encode keys"),
    ):
        sink.put(pa.table({"page": ["/"], "number": [1]}))
    assert Words.opened == 0
