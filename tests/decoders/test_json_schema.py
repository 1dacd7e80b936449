"""JSON in the frame of a Schema Registry, with its JSON Schemas."""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.serialization import MessageField, SerializationContext
from tests.decoders.decoding import bad, complaints, decode, options, sources
from tests.decoders.registries import Server, serving

from streamfactory.decoders.avro.decoder import AvroEncoder
from streamfactory.decoders.json import streamfactory_decoder
from streamfactory.decoders.json.jsonschemas import (
    SchemaRefused,
    columns_of,
    schema_of,
)
from streamfactory.decoders.json.registered import (
    RegistryJsonDecoder,
    RegistryJsonEncoder,
)
from streamfactory.decoders.registry import Registry
from streamfactory.spi import ConfigError, SchemaMismatch, SchemaUnknown
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.decoding.keys import key_options
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PLUGIN = streamfactory_decoder()
SUBJECT = "clicks-value"
V1 = json.dumps(
    {
        "title": "Click",
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 0},
            "page": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        },
        "required": ["id"],
    }
)
V2 = V1.replace('"id": {', '"ms": {"type": "number"}, "id": {')
VALUE = SerializationContext("clicks", MessageField.VALUE)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def server(running: Server) -> Server:
    running.schemas.clear()
    running.subjects.clear()
    return running


def given(server: Server, **others: Any) -> dict[str, Any]:
    found = options(PLUGIN, others.pop("schema", None))
    found |= {key.replace("_", "."): value for key, value in others.items()}
    return {**found, "schema.registry.rest.url": server.url}


@contextmanager
def decoder(server: Server, **others: Any) -> Iterator[RegistryJsonDecoder]:
    with closing(RegistryJsonDecoder(given(server, **others), "clicks")) as made:
        yield made


def register(server: Server, text: str, subject: str = SUBJECT) -> int:
    return server.register(subject, {"schema": text, "schemaType": "JSON"})


def framed(number: int, row: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + json.dumps(row).encode()


def test_what_confluents_serializer_wrote_is_read_with_the_types_of_its_schema(
    server: Server,
) -> None:
    # Here: it compiles 38 grammars, which takes a second in each worker.
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    rows = [{"id": at, "page": f"/{at}" if at % 2 else None} for at in range(10)]
    with SchemaRegistryClient({"url": server.url}) as client:
        serializer = JSONSerializer(V1, client)
        payloads = [bytes(serializer(row, VALUE) or b"") for row in rows]
    with decoder(server) as made:
        decoded = decode(made, payloads)
        schema = made.schema()
    assert decoded.errors == []
    assert decoded.rows.to_pylist() == rows
    assert schema == pa.schema(
        [pa.field("id", pa.int64(), False), ("page", pa.string())]
    )


def test_messages_of_all_versions_are_rows_of_the_declared_schema(
    server: Server,
) -> None:
    one, two = register(server, V1), register(server, V2)
    payloads = [
        framed(two, {"id": 0, "ms": 1.5}),
        framed(one, {"id": 1, "page": "/"}),
        framed(two, {"id": 2, "ms": 2}),
    ]
    with decoder(server) as made:
        assert decode(made, payloads).rows["ms"].to_pylist() == [1.5, None, 2.0]
    with decoder(server, schema="id int, page string") as made:
        assert decode(made, payloads).rows.to_pylist() == [
            {"id": 0, "page": None},
            {"id": 1, "page": "/"},
            {"id": 2, "page": None},
        ]


def test_messages_are_validated_by_the_schema_that_they_name(server: Server) -> None:
    number = register(server, V1)
    invalid = [{"id": -1}, {"page": "/"}]
    payloads = [framed(number, row) for row in [{"id": 1}, *invalid, {"id": 2}]]
    with decoder(server, schema="id bigint") as made:
        decoded = decode(made, payloads)
    assert bad(decoded) == [(1, "schema"), (2, "schema")]
    assert sources(decoded) == [0, 3]
    with decoder(server, schema="id bigint", schema_registry_validate=False) as made:
        assert decode(made, payloads).errors == []


def test_frames_and_schemas_that_are_not_known_make_messages_bad(
    server: Server,
) -> None:
    number = register(server, V1)
    odd = register(server, '{"type": 1}')
    remote = register(server, '{"$ref": "http://127.0.0.1:9/schema.json"}')
    payloads = [
        framed(number, {"id": 1}),
        b'{"id": 1}',
        framed(99, {"id": 1}),
        framed(odd, {"id": 1}),
        framed(remote, {"id": 1}),
        framed(number, {"id": 1})[:-1],
        framed(number, {"id": 2}),
    ]
    with decoder(server, schema="id bigint") as made:
        decoded = decode(made, payloads)
    assert bad(decoded) == [
        (1, "framing"),
        (2, "unknown_schema_id"),
        (3, "schema"),
        (4, "schema"),
        (5, "malformed"),
    ]
    assert decoded.rows["id"].to_pylist() == [1, 2]


def test_a_subject_without_usable_schema_is_reported(server: Server) -> None:
    with pytest.raises(SchemaUnknown, match="no JSON Schema of subject 'clicks-value'"):
        RegistryJsonDecoder(given(server), "clicks")
    register(server, '{"type": "object"}')
    with pytest.raises(SchemaUnknown, match="has no columns"):
        RegistryJsonDecoder(given(server), "clicks")


COLUMNS = pa.schema(
    [
        pa.field("id", pa.int32(), False),
        ("ratio", pa.float32()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("flag", pa.bool_())])),
    ]
)


def test_the_schema_of_columns_has_these_columns() -> None:
    assert columns_of(schema_of(COLUMNS, "row")) == COLUMNS


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"type": "string"}, "not a schema of objects"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "several types"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "other documents"),
        ({"properties": {"a": {"$ref": "#/no"}}}, "leads nowhere"),
        ({"properties": {"a": {"$ref": "#"}}}, "recursive"),
        ({"properties": {"a": {"type": "object"}}}, "no properties"),
        ({"properties": {"a": {}}}, "not one that columns have"),
        ({"properties": {"a": True}}, "several types, or none"),
        ({"properties": {"a": {"type": 1}}}, "not one that columns have"),
        ({"properties": {"a": {"type": [{"a": 1}]}}}, "inconsistent"),
        ({"properties": {"a": {"oneOf": 1}}}, "inconsistent"),
        ({"properties": {"a": {"type": "string"}}, "required": 1}, "inconsistent"),
    ],
)
def test_schemas_without_columns_are_refused(schema: Any, what: str) -> None:
    with pytest.raises(SchemaRefused, match=what):
        columns_of(json.dumps(schema))


def test_types_are_followed_through_references_and_null() -> None:
    schema = {
        "definitions": {"word": {"type": ["null", "string"]}},
        "properties": {
            "a": {"$ref": "#/definitions/word"},
            "b": {"enum": ["x", "y"]},
            "c": {"type": "array", "items": {"$ref": "#/definitions/word"}},
        },
        "required": ["a", "b"],
    }
    found = columns_of(json.dumps(schema))
    assert found.types == [pa.string(), pa.string(), pa.list_(pa.string())]
    assert [field.nullable for field in found] == [True, False, True]


def test_what_is_encoded_is_registered_and_read_by_confluents_client(
    server: Server,
) -> None:
    # Here: it compiles 38 grammars, which takes a second in each worker.
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer

    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "page": ["/", None]})
    with closing(RegistryJsonEncoder(given(server), "clicks")) as encoder:
        payloads = encoder.encode(rows).to_pylist()
    registered = server.schemas[server.subjects[SUBJECT][0]]
    assert registered["schemaType"] == "JSON"
    read = JSONDeserializer(registered["schema"])
    assert [read(payload, VALUE) for payload in payloads] == rows.to_pylist()
    with decoder(server) as made:
        assert decode(made, payloads).rows.to_pylist() == rows.to_pylist()


def test_without_registration_rows_have_to_be_valid_by_the_latest_schema(
    server: Server,
) -> None:
    never = {"schema_registry_auto_register": False}
    with (
        closing(RegistryJsonEncoder(given(server, **never), "clicks")) as encoder,
        pytest.raises(ConfigError, match="no JSON Schema to write with"),
    ):
        encoder.encode(pa.RecordBatch.from_pydict({"id": [1]}))
    number = register(server, V1)
    with closing(RegistryJsonEncoder(given(server, **never), "clicks")) as encoder:
        values = encoder.encode(pa.RecordBatch.from_pydict({"id": [1]}))
        assert values.to_pylist() == [b"\0\0\0\0" + bytes([number]) + b'{"id":1}']
        with pytest.raises(SchemaMismatch, match="row 1 is not valid"):
            encoder.encode(pa.RecordBatch.from_pydict({"id": [1, -1]}))
    assert server.subjects == {SUBJECT: [number]}


def test_the_kit_passes_with_a_registry(server: Server) -> None:
    number = register(server, V1)

    class Harness:
        several = False

        def options(self) -> Mapping[str, str]:
            subject = {"schema.registry.subject": SUBJECT}
            return {"schema.registry.rest.url": server.url, **subject}

        def message(self, numbers: Sequence[int]) -> bytes:
            return framed(number, {"id": numbers[0], "page": "/"})

        def numbers(self, rows: pa.RecordBatch) -> list[int]:
            return list(rows.column("id").to_pylist())

        def undeclared(self, at: int) -> bytes:
            return framed(number, {"id": at, "more": 1})

        def bad(self) -> Mapping[str, bytes]:
            return {"invalid": framed(number, {"id": -1}), "no frame": b"{}"}

    assert complaints(PLUGIN, Harness) == []


# --- subjects -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("topic", "clicks-value"),
        ("record", "shop.Click"),
        ("topic-record", "clicks-shop.Click"),
    ],
)
def test_subjects_are_named_by_the_strategy(
    server: Server, strategy: str, subject: str
) -> None:
    found = given(
        server,
        schema_registry_subject_strategy=strategy,
        schema_registry_record="shop.Click",
    )
    with closing(Registry(found, "clicks")) as registry:
        assert registry.subject == subject
    found["schema.registry.subject"] = "mine"
    with closing(Registry(found, "clicks")) as registry:
        assert registry.subject == "mine"


def test_a_writer_takes_the_name_of_the_record_from_its_schema(server: Server) -> None:
    fields = [{"name": "id", "type": "long"}]
    schema = {"type": "record", "name": "Click", "namespace": "shop", "fields": fields}
    found = given(server, schema_registry_subject_strategy="record")
    encoder = AvroEncoder({**found, "schema": json.dumps(schema)}, "clicks")
    with closing(encoder):
        encoder.encode(pa.RecordBatch.from_pydict({"id": [1]}))
    assert list(server.subjects) == ["shop.Click"]


def test_a_reader_without_the_name_of_the_record_is_refused(server: Server) -> None:
    found = given(server, schema_registry_subject_strategy="record")
    with pytest.raises(ConfigError, match="needs the record's name"):
        RegistryJsonDecoder(found, "clicks")


@pytest.mark.parametrize(
    ("given", "subject"),
    [
        ({}, "clicks-key"),
        ({"schema.registry.subject": "mine"}, "mine"),
        ({"schema.registry.subject.strategy": "record"}, None),
    ],
)
def test_keys_have_a_subject_of_their_own(
    given: dict[str, str], subject: str | None
) -> None:
    prefix = "stream.memory.key.decoder."
    properties = {
        "streamType": "memory",
        "stream.memory.topic.name": "clicks",
        "stream.memory.decoder.class.name": "json",
        f"{prefix}class.name": "json",
    } | {f"{prefix}prop.{key}": value for key, value in given.items()}
    found = configure(from_mapping(properties), default_manager(), use="read")
    options = key_options(PLUGIN, found.config)
    assert options.get("schema.registry.subject") == subject
