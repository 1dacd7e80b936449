"""A Schema Registry on a real socket, and confluent-kafka's client on both sides."""

from __future__ import annotations

import base64
import io
import json
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import (
    ProtobufDeserializer,
    ProtobufSerializer,
)
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tests.decoders.decoding import bad, decode
from tests.decoders.registries import Server, serving
from tests.proving.ports import free_port

from streamfactory.decoders.avro.decoder import AvroDecoder, AvroEncoder
from streamfactory.decoders.protobuf.decoder import ProtobufDecoder, ProtobufEncoder
from streamfactory.decoders.registry import REGISTRY_OPTIONS
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    NotAuthorized,
    PermanentError,
    SchemaUnknown,
    StreamTimeout,
    TransientError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUBJECT = "clicks-value"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as held:
        yield held


@pytest.fixture
def client(server: Server) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.url}) as made:
        yield made


def options(server: Server, **others: Any) -> dict[str, Any]:
    found = {
        "schema.registry.rest.url": server.url,
        "schema.registry.timeout.millis": 5000,
        "schema.registry.max.retries": 0,
    }
    return found | {key.replace("_", "."): value for key, value in others.items()}


@contextmanager
def avro(server: Server, **others: Any) -> Iterator[AvroDecoder]:
    with closing(AvroDecoder(options(server, **others), "clicks")) as made:
        yield made


def record(*fields: dict[str, Any], name: str = "click") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


ID = {"name": "id", "type": "long"}
V1 = record(ID)
V2 = record(ID, {"name": "page", "type": "string", "default": "/"})


def written(schema: str, number: int, row: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()


# --- Avro ---------------------------------------------------------------------------


def test_what_confluents_serializer_wrote_is_read(
    server: Server, client: SchemaRegistryClient
) -> None:
    serializer = AvroSerializer(client, V2)
    where = SerializationContext("clicks", MessageField.VALUE)
    rows = [{"id": at, "page": f"/{at}"} for at in range(100)]
    payloads = [bytes(serializer(row, where) or b"") for row in rows]
    with avro(server) as decoder:
        decoded = decode(decoder, payloads)
    assert decoded.rows.to_pylist() == rows
    assert decoded.source is None


def test_messages_of_several_schemas_are_rows_of_the_latest(server: Server) -> None:
    one = server.register(SUBJECT, {"schema": V1})
    two = server.register(SUBJECT, {"schema": V2})
    payloads = [
        written(V1, one, {"id": at})
        if at % 3
        else written(V2, two, {"id": at, "page": "/x"})
        for at in range(1000)
    ]
    with avro(server) as decoder:
        decoded = decode(decoder, payloads)
    assert decoded.rows.to_pylist() == [
        {"id": at, "page": "/" if at % 3 else "/x"} for at in range(1000)
    ]
    # Each schema is asked for once, and the latest one.
    assert sorted(server.asked) == [
        f"GET /schemas/ids/{one}",
        f"GET /schemas/ids/{two}",
        f"GET /subjects/{SUBJECT}/versions/latest",
    ]


def test_a_schema_of_our_own_says_what_rows_are(server: Server) -> None:
    two = server.register(SUBJECT, {"schema": V2})
    with avro(server, schema=V1) as decoder:
        decoded = decode(decoder, [written(V2, two, {"id": 7, "page": "/"})])
    assert decoded.rows.to_pylist() == [{"id": 7}]
    assert server.asked == [f"GET /schemas/ids/{two}"]


def test_schemas_with_references_are_read(
    server: Server, client: SchemaRegistryClient
) -> None:
    page = record({"name": "path", "type": "string"}, name="page")
    client.register_schema("page", Schema(page, "AVRO"))
    outer = record(ID, {"name": "page", "type": ["null", "page"]})
    reference = SchemaReference("page", "page", 1)
    number = client.register_schema(SUBJECT, Schema(outer, "AVRO", [reference]))
    flat = record(ID, {"name": "page", "type": ["null", json.loads(page)]})
    row = {"id": 1, "page": {"path": "/"}}
    with avro(server) as decoder:
        decoded = decode(decoder, [written(flat, number, row)])
    assert decoded.rows.to_pylist() == [row]


def test_an_unknown_id_is_a_bad_message_until_it_is_registered(server: Server) -> None:
    one = server.register(SUBJECT, {"schema": V1})
    good = written(V1, one, {"id": 1})
    payloads = [good, written(V1, 99, {"id": 2}), good]
    with avro(server) as decoder:
        decoded = decode(decoder, payloads)
        assert decoded.rows.to_pylist() == [{"id": 1}, {"id": 1}]
        [error] = decoded.errors
        assert (error.message, error.code) == (1, "unknown_schema_id")
        assert error.what == "the Schema Registry has no Avro schema with the id 99"
        decode(decoder, payloads)
        assert server.asked.count("GET /schemas/ids/99") == 1


def test_messages_without_a_frame_are_bad(server: Server) -> None:
    one = server.register(SUBJECT, {"schema": V1})
    good = written(V1, one, {"id": 1})
    payloads = [good, b"", b"\0\0\0", b"\x01" + good[1:], b'{"id": 1}', good]
    with avro(server) as decoder:
        decoded = decode(decoder, payloads)
    assert [error.message for error in decoded.errors] == [1, 2, 3, 4]
    assert {error.code for error in decoded.errors} == {"framing"}
    assert decoded.source is not None
    assert decoded.source.to_pylist() == [0, 5]


def test_what_was_written_with_a_schema_that_does_not_fit_is_bad(
    server: Server,
) -> None:
    server.register(SUBJECT, {"schema": V1})
    odd = record({"name": "id", "type": "string"})
    number = server.register("other", {"schema": odd})
    tree = record({"name": "next", "type": ["null", "click"]})
    deep = server.register("tree", {"schema": tree})
    with avro(server, schema=V1) as decoder:
        decoded = decode(
            decoder,
            [written(odd, number, {"id": "x"}), b"\0" + deep.to_bytes(4) + b"\0"],
        )
    assert [error.code for error in decoded.errors] == ["schema", "schema"]
    first, second = (error.what for error in decoded.errors)
    assert first == (
        f"schema {number} cannot be resolved to the declared schema: "
        "the writer's type string cannot be read as long"
    )
    assert "is recursive" in second


def test_a_schema_of_another_kind_is_unknown(server: Server) -> None:
    number = server.register("p", {"schema": "syntax", "schemaType": "PROTOBUF"})
    with avro(server, schema=V1) as decoder:
        [error] = decode(decoder, [b"\0" + number.to_bytes(4) + b"\2"]).errors
    assert error.code == "unknown_schema_id"


def test_what_is_encoded_is_registered_and_read_by_confluents_client(
    server: Server, client: SchemaRegistryClient
) -> None:
    rows = pa.record_batch({"id": [1, 2], "page": ["/", None]})
    with closing(AvroEncoder(options(server), "clicks")) as encoder:
        payloads = encoder.encode(rows).to_pylist()
    found = client.get_latest_version(SUBJECT)
    assert found.schema_id is not None
    parsed = fastavro.parse_schema(json.loads(found.schema.schema_str or ""))
    assert payloads[0][:5] == b"\0" + found.schema_id.to_bytes(4, "big")
    read = [
        fastavro.schemaless_reader(io.BytesIO(payload[5:]), parsed, None)
        for payload in payloads
    ]
    assert read == rows.to_pylist()
    with avro(server) as decoder:
        assert decode(decoder, payloads).rows.to_pylist() == rows.to_pylist()


def test_a_schema_is_looked_up_where_it_may_not_be_registered(server: Server) -> None:
    rows = pa.record_batch({"id": [1]})
    given = options(server, schema=V1, schema_registry_auto_register=False)
    with closing(AvroEncoder(given, "clicks")) as encoder:
        with pytest.raises(ConfigError) as caught:
            encoder.encode(rows)
        assert "the schema is not registered under subject 'clicks-value'" in str(
            caught.value
        )
        server.register(SUBJECT, {"schema": V1})
        assert encoder.encode(rows).to_pylist() == [b"\0\0\0\0\1\2"]


# --- the registry itself ------------------------------------------------------------


def test_a_registry_that_is_not_there_is_an_error_of_the_connection(
    server: Server,
) -> None:
    server.url = f"http://127.0.0.1:{free_port()}"
    with avro(server, schema=V1) as decoder, pytest.raises(ConnectionFailed) as caught:
        decode(decoder, [b"\0\0\0\0\1\2"])
    assert "could not return schema 1: ConnectError" in str(caught.value)
    assert caught.value.retryable


def test_a_slow_registry_is_an_error_in_time(server: Server) -> None:
    def wait(_: str) -> None:
        server.stop.wait(30)

    server.answer = wait
    given = {"schema": V1, "schema_registry_timeout_millis": 200}
    with avro(server, **given) as decoder, pytest.raises(StreamTimeout) as caught:
        decode(decoder, [b"\0\0\0\0\1\2"])
    assert "the request timed out" in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"schema": 5},
        {"schema": ["a"]},
        {"schemaType": 1},
        {"references": [{"name": "a", "subject": 5, "version": 1}]},
        {"references": [{"name": "a", "subject": "b", "version": "1"}]},
        {"id": "7"},
    ],
)
def test_an_answer_with_a_member_of_another_type_is_refused(
    server: Server, wrong: dict[str, Any]
) -> None:
    answer = {"subject": SUBJECT, "version": 1, "id": 7, "schema": V1, **wrong}
    server.answer = lambda _: (200, json.dumps(answer).encode())
    with avro(server) as decoder, pytest.raises(ConnectionFailed) as caught:
        decode(decoder, [b"\0\0\0\0\7\2"])
    assert "the response is not that of a Schema Registry" in caught.value.what


def test_a_schema_with_too_many_references_is_refused(server: Server) -> None:
    def answer(path: str) -> tuple[int, bytes]:
        number = len(server.asked)
        reference = {"name": "a", "subject": f"s{number}", "version": number}
        found = {"subject": path, "version": 1, "id": 7, "schema": V1}
        return 200, json.dumps(found | {"references": [reference]}).encode()

    server.answer = answer
    with (
        avro(server) as decoder,
        pytest.raises(ConfigError, match="too many references"),
    ):
        decoder.schema()


@pytest.mark.parametrize(
    ("status", "body", "kind", "what"),
    [
        (
            200,
            b"<html>",
            ConnectionFailed,
            "the response is not that of a Schema Registry",
        ),
        (200, b"[]", ConnectionFailed, "the response is not that of a Schema Registry"),
        (200, b"{}", None, "unknown_schema_id"),
        (500, b"{}", TransientError, "HTTP 500"),
        (503, b"down", TransientError, "HTTP 503"),
        (403, b"{}", NotAuthorized, "HTTP 403"),
        (422, b'{"error_code": 42201}', PermanentError, "HTTP 422, code 42201"),
        (404, b"<html>", None, "unknown_schema_id"),
    ],
)
def test_answers_of_a_registry_are_errors_of_the_tree(
    server: Server, status: int, body: bytes, kind: Any, what: str
) -> None:
    server.answer = lambda _: (status, body)
    with avro(server, schema=V1) as decoder:
        if kind is None:
            [error] = decode(decoder, [b"\0\0\0\0\1\2"]).errors
            assert error.code == what
            return
        with pytest.raises(kind) as caught:
            decode(decoder, [b"\0\0\0\0\1\2"])
    assert what in str(caught.value)


def test_a_name_and_a_password_are_sent_and_shown_nowhere(server: Server) -> None:
    server.user = "reader:PLANTED"
    server.register(SUBJECT, {"schema": V1})
    given = {"schema_registry_basic_auth_user_info": "reader:PLANTED"}
    with avro(server, **given) as decoder:
        assert decode(decoder, [b"\0\0\0\0\1\2"]).rows.to_pylist() == [{"id": 1}]
    given = {"schema_registry_basic_auth_user_info": "reader:PLANTEDwrong"}
    with avro(server, **given) as decoder, pytest.raises(NotAuthorized) as caught:
        decoder.schema()
    assert "HTTP 401" in str(caught.value)
    assert "PLANTED" not in f"{caught.value}{caught.value.__cause__}{caught.value!r}"


def test_a_subject_without_a_schema_is_reported_with_a_remedy(server: Server) -> None:
    with avro(server) as decoder, pytest.raises(SchemaUnknown) as caught:
        decoder.schema()
    assert "the Schema Registry has no subject 'clicks-value'" in str(caught.value)


def test_passwords_are_declared_as_secrets() -> None:
    secret = {option.key for option in REGISTRY_OPTIONS if option.secret}
    named = {o.key for o in REGISTRY_OPTIONS if "password" in o.key or "user" in o.key}
    assert secret == named
    assert len(secret) == 4


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:8081", "is not a list of URLs"),
        ("http://u:p@host", "contains a user name and a password"),
        ("http://a:1,", "is not a list of URLs"),
    ],
)
def test_what_is_no_url_is_refused(url: str, why: str) -> None:
    option = next(o for o in REGISTRY_OPTIONS if o.key == "schema.registry.rest.url")
    assert option.parse("http://a:1, https://b/x") == "http://a:1, https://b/x"
    with pytest.raises(ValueError) as caught:
        option.parse(url)
    assert why in str(caught.value)


def test_another_registry_is_asked_where_one_is_down(server: Server) -> None:
    one = server.register(SUBJECT, {"schema": V1})
    server.url = f"http://127.0.0.1:{free_port()},{server.url}"
    with avro(server) as decoder:
        found = decode(decoder, [written(V1, one, {"id": 5})])
    assert found.rows.to_pylist() == [{"id": 5}]


# --- protobuf -----------------------------------------------------------------------

LONG = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
ONE = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL


@pytest.fixture
def messages() -> dict[str, Any]:
    """Messages of a file, by their name: one, one within, and a second."""
    file = descriptor_pb2.FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3"
    )
    for name in ("Click", "Order"):
        made = file.message_type.add(name=name)
        made.field.add(name="id", number=1, type=LONG, label=ONE)
    line = file.message_type[1].nested_type.add(name="Line")
    line.field.add(name="count", number=1, type=LONG, label=ONE)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"shop.{name}")
        )
        for name in ("Click", "Order", "Order.Line")
    }


def as_the_registry_gives_it(server: Server) -> None:
    """A registry gives a descriptor where it is asked for the serialized form."""
    for held in server.schemas.values():
        base64.b64decode(held["schema"], validate=True)


@pytest.mark.parametrize("name", ["Click", "Order", "Order.Line"])
def test_what_confluents_protobuf_serializer_wrote_is_read(
    server: Server, client: SchemaRegistryClient, messages: dict[str, Any], name: str
) -> None:
    made = messages[name]
    serializer = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    where = SerializationContext("clicks", MessageField.VALUE)
    key = "count" if name == "Order.Line" else "id"
    payloads = [bytes(serializer(made(**{key: at}), where)) for at in range(50)]
    as_the_registry_gives_it(server)
    given = options(server, message=f"shop.{name}")
    with closing(ProtobufDecoder(given, "clicks")) as decoder:
        decoded = decode(decoder, payloads)
        assert decoded.rows.to_pylist() == [{key: at} for at in range(50)]
    with closing(ProtobufEncoder(given, "clicks")) as encoder:
        assert encoder.encode(decoded.rows).to_pylist() == payloads


def test_a_message_of_another_type_is_bad(
    server: Server, client: SchemaRegistryClient, messages: dict[str, Any]
) -> None:
    made = messages["Click"]
    serializer = ProtobufSerializer(made, client, {"use.deprecated.format": False})
    good = bytes(
        serializer(made(id=7), SerializationContext("clicks", MessageField.VALUE))
        or b""
    )
    long_form = good[:5] + b"\x02\x00" + good[6:]
    other = good[:5] + b"\x02\x02" + good[6:]
    given = options(server, message="shop.Click")
    with closing(ProtobufDecoder(given, "clicks")) as decoder:
        decoded = decode(decoder, [good, other, long_form, good[:5], b"\0\0\0\0\x63\0"])
    assert decoded.rows.to_pylist() == [{"id": 7}, {"id": 7}]
    assert decoded.source is not None
    assert decoded.source.to_pylist() == [0, 2]
    assert bad(decoded) == [
        (1, "schema"),
        (3, "schema"),
        (4, "unknown_schema_id"),
    ]


def test_imported_files_are_fetched_by_their_references(
    server: Server, client: SchemaRegistryClient
) -> None:
    inner = descriptor_pb2.FileDescriptorProto(name="x", package="a", syntax="proto3")
    inner.message_type.add(name="In").field.add(
        name="n", number=1, type=LONG, label=ONE
    )
    outer = descriptor_pb2.FileDescriptorProto(
        name="y", package="a", syntax="proto3", dependency=["in.proto"]
    )
    outer.message_type.add(name="Out").field.add(
        name="i", number=1, type=MESSAGE, label=ONE, type_name=".a.In"
    )
    texts = [
        base64.b64encode(file.SerializeToString()).decode() for file in (inner, outer)
    ]
    client.register_schema("in", Schema(texts[0], "PROTOBUF"))
    reference = SchemaReference("in.proto", "in", 1)
    number = client.register_schema(SUBJECT, Schema(texts[1], "PROTOBUF", [reference]))
    payload = b"\0" + number.to_bytes(4, "big") + b"\0" + b"\x0a\x02\x08\x05"
    with closing(ProtobufDecoder(options(server), "clicks")) as decoder:
        assert decode(decoder, [payload]).rows.to_pylist() == [{"i": {"n": 5}}]


def test_a_registry_without_serialized_schemas_is_reported(server: Server) -> None:
    text = 'syntax = "proto3"; message Click { int64 id = 1; }'
    server.register(SUBJECT, {"schema": text, "schemaType": "PROTOBUF"})
    decoder = ProtobufDecoder(options(server), "clicks")
    with closing(decoder), pytest.raises(ConfigError) as caught:
        decoder.schema()
    assert "it must support format=serialized" in str(caught.value)


def test_a_descriptor_file_is_registered_and_read_by_confluents_client(
    server: Server,
    client: SchemaRegistryClient,
    messages: dict[str, Any],
    tmp_path: Path,
) -> None:
    made = messages["Order"]
    file = descriptor_pb2.FileDescriptorProto()
    made.DESCRIPTOR.file.CopyToProto(file)
    path = tmp_path / "shop.desc"
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    path.write_bytes(files.SerializeToString())
    given = options(server, message="shop.Order") | {"descriptor.file": str(path)}
    rows = pa.record_batch({"id": [1, 2]})
    refused = given | {"schema.registry.auto.register": False}
    with closing(ProtobufEncoder(refused, "clicks")) as encoder:
        with pytest.raises(ConfigError) as caught:
            encoder.encode(rows)
        assert "is not registered under subject 'clicks-value'" in str(caught.value)
    with closing(ProtobufEncoder(given, "clicks")) as encoder:
        payloads = encoder.encode(rows).to_pylist()
    deserializer = ProtobufDeserializer(made, {"use.deprecated.format": False}, client)
    where = SerializationContext("clicks", MessageField.VALUE)
    assert [deserializer(payload, where).id for payload in payloads] == [1, 2]
