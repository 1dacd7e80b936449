"""Decoders and encoders with Apicurio Registry, by its Confluent interface."""

from __future__ import annotations

import io
import json
import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import (
    ProtobufDeserializer,
    ProtobufSerializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.decoders.apicurio import shared_registry
from tests.decoders.debezium_events import payload
from tests.decoders.decoding import decode, options
from tests.decoders.test_debezium_avro import ID, NAME, envelope
from tests.kafka.jars import Unavailable
from tests.proving.shared import this_run
from tests.proving.skipping import skip_or_fail

from streamfactory.spi import PermanentError
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.spi import MessageDecoder, MessageEncoder

pytestmark = [pytest.mark.long("starts a registry in Java"), pytest.mark.network]
ROWS = pa.RecordBatch.from_pydict({"id": [1, 2], "page": ["/", None]})


@pytest.fixture(scope="session")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of the registry, which all tests of a run share."""
    try:
        return shared_registry(this_run(tmp_path_factory))
    except Unavailable as reason:
        skip_or_fail(str(reason))


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex}"


def given(name: str, url: str, **others: Any) -> dict[str, Any]:
    found = options(default_manager().decoder(name))
    found |= {key.replace("_", "."): value for key, value in others.items()}
    return {**found, "schema.registry.rest.url": url}


def decoder(name: str, url: str, topic: str, **others: Any) -> MessageDecoder:
    found = default_manager().decoder(name).decoder
    assert found is not None
    return found(given(name, url, **others), topic)


def encoder(name: str, url: str, topic: str, **others: Any) -> MessageEncoder:
    found = default_manager().decoder(name).encoder
    assert found is not None
    return found(given(name, url, **others), topic)


@pytest.mark.parametrize("name", ["avro", "json"])
@pytest.mark.parametrize(
    "strategy",
    [
        {},
        {"schema_registry_subject_strategy": "record"},
        {"schema_registry_subject_strategy": "topic-record"},
    ],
    ids=["topic", "record", "topic-record"],
)
def test_what_is_written_is_read(
    apicurio: str, topic: str, name: str, strategy: dict[str, str]
) -> None:
    if strategy:
        strategy = {**strategy, "schema_registry_record": f"r{topic}"}
    with closing(encoder(name, apicurio, topic, **strategy)) as writing:
        values = writing.encode(ROWS)
    with closing(decoder(name, apicurio, topic, **strategy)) as reading:
        decoded = decode(reading, values)
    assert not decoded.errors
    assert decoded.rows.to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("name", ["avro", "json"])
def test_schemas_evolve_in_a_stream(apicurio: str, topic: str, name: str) -> None:
    first = ROWS.select(["id"])
    with closing(encoder(name, apicurio, topic)) as writing:
        old = writing.encode(first)
    with closing(encoder(name, apicurio, topic)) as writing:
        new = writing.encode(ROWS)
    with closing(decoder(name, apicurio, topic)) as reading:
        decoded = decode(reading, pa.concat_arrays([old, new]))
    assert not decoded.errors
    assert decoded.rows["page"].to_pylist() == [None, None, "/", None]


def message_type() -> Any:
    file = descriptor_pb2.FileDescriptorProto(
        name="click.proto", package="shop", syntax="proto3"
    )
    message = file.message_type.add(name="Click")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="page", number=2, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = pool.FindMessageTypeByName("shop.Click")
    return message_factory.GetMessageClass(found)


def test_what_confluents_protobuf_serializer_wrote_is_read(
    apicurio: str, topic: str
) -> None:
    kind = message_type()
    with SchemaRegistryClient({"url": apicurio}) as client:
        serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        where = SerializationContext(topic, MessageField.VALUE)
        values = [bytes(serializer(kind(id=n, page="/"), where) or b"") for n in (1, 2)]
    with closing(decoder("protobuf", apicurio, topic)) as reading:
        decoded = decode(reading, values)
    assert decoded.rows.to_pylist() == [{"id": 1, "page": "/"}, {"id": 2, "page": "/"}]


@pytest.mark.parametrize("strategy", ["topic", "record", "topic-record"])
def test_protobuf_that_is_written_is_read_here_and_by_confluents_client(
    apicurio: str, topic: str, tmp_path: Path, strategy: str
) -> None:
    kind = message_type()
    file = descriptor_pb2.FileDescriptorProto()
    kind.DESCRIPTOR.file.CopyToProto(file)
    path = tmp_path / "click.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    named = {"schema_registry_subject_strategy": strategy}
    named |= {} if strategy == "topic" else {"schema_registry_record": f"r{topic}"}
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "page": ["/", ""]})
    own = {"descriptor_file": str(path), **named}
    with closing(encoder("protobuf", apicurio, topic, **own)) as writing:
        values = writing.encode(rows)
    with closing(decoder("protobuf", apicurio, topic, **named)) as reading:
        decoded = decode(reading, values)
    assert not decoded.errors
    assert decoded.rows.to_pylist() == rows.to_pylist()
    where = SerializationContext(topic, MessageField.VALUE)
    with SchemaRegistryClient({"url": apicurio}) as client:
        read = ProtobufDeserializer(kind, {"use.deprecated.format": False}, client)
        found = [read(value, where) for value in values.to_pylist()]
    assert [(one.id, one.page) for one in found] == [(1, "/"), (2, "")]


def test_an_incompatible_schema_is_refused(
    apicurio: str, topic: str, rule: Callable[[str], None]
) -> None:
    with closing(encoder("avro", apicurio, topic)) as writing:
        writing.encode(ROWS)
    rule(f"{topic}-value")
    other = pa.RecordBatch.from_pydict({"id": ["text"]})
    with (
        closing(encoder("avro", apicurio, topic)) as writing,
        pytest.raises(PermanentError, match="register or find the schema"),
    ):
        writing.encode(other)


@pytest.fixture
def rule(apicurio: str) -> Callable[[str], None]:
    """Sets the rule of a subject."""

    def require(subject: str) -> None:
        with SchemaRegistryClient({"url": apicurio}) as client:
            client.set_compatibility(subject, "BACKWARD")

    return require


def test_change_events_are_read(apicurio: str, topic: str) -> None:
    schema = envelope(ID, NAME)
    with SchemaRegistryClient({"url": apicurio}) as client:
        number = client.register_schema(f"{topic}-value", Schema(schema, "AVRO"))
    out = io.BytesIO()
    event = payload("d", before={"id": 1, "name": "n"})
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), event)
    value = b"\0" + number.to_bytes(4, "big") + out.getvalue()
    with closing(decoder("debezium", apicurio, topic, format="avro")) as reading:
        [row] = decode(reading, [value]).rows.to_pylist()
    assert (row["id"], row["name"], row["_change"]) == (1, "n", "delete")
