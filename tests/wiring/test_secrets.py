"""Which keys are taken for secrets, and what becomes of their values."""

from __future__ import annotations

import ctypes
import json
import pickle
import re
import tempfile
from pathlib import Path

import confluent_kafka
import pytest
from tests.proving.commands import command_of

from streamfactory.spi import ConfigError, StreamConfig
from streamfactory.spi.config import Setting
from streamfactory.spi.masking import mask_userinfo, mask_value
from streamfactory.wiring.config.configure import configure, inspect
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.config.describing import effective
from streamfactory.wiring.options.masking import looks_secret
from streamfactory.wiring.options.vocabulary import FRAMEWORK_OPTIONS
from streamfactory.wiring.plugins.manager import PluginManager, default_manager

SECRET = [
    # Kafka's Java client
    "sasl.jaas.config",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.truststore.password",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.client.credentials.client.secret",
    # librdkafka
    "sasl.password",
    "ssl.key.pem",
    "sasl.oauthbearer.client.secret",
    # schema registries
    "basic.auth.user.info",
    "schema.registry.basic.auth.user.info",
    "bearer.auth.token",
    "schema.registry.ssl.keystore.password",
    # Kinesis and AWS
    "secretKey",
    "accessKey",
    "aws_secret_access_key",
    "aws.session.token",
    # Pulsar
    "authenticationToken",
    "authParams",
    # ZeroMQ, Flight, object stores, and what people make up
    "curve.secretkey",
    "tls.private.key",
    "privateKey",
    "api.key",
    "apiKey",
    "x-api-key",
    "API_KEY",
    "account.key",
    "credentials",
    "my_token",
    "db.passwd",
    "userPassword",
    "PASSWORD",
]
HARMLESS = [
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.kerberos.service.name",
    "sasl.kerberos.keytab",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.method",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.assertion.private.key.file",
    "security.protocol",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.pem",
    "ssl.certificate.location",
    "ssl.cipher.suites",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "enable.ssl.certificate.verification",
    "bootstrap.servers",
    "group.id",
    "client.id",
    "key",
    "key.deserializer",
    "message.key",
    "partition.key",
    "primary.key",
    "producer.key.columns",
    "tokenizer",
    "monkey",
    "keyspace",
    "compass.mode",
    "max.poll.records",
]


@pytest.mark.parametrize("key", SECRET)
def test_key_of_a_secret_is_seen(key: str) -> None:
    assert looks_secret(key)
    assert looks_secret(f"stream.kafka.consumer.prop.{key}")


@pytest.mark.parametrize("key", HARMLESS)
def test_key_that_is_no_secret_is_shown(key: str) -> None:
    assert not looks_secret(key)
    assert not looks_secret(f"stream.kafka.consumer.prop.{key}")


KAFKA = {"streamType": "pulsar", "stream.pulsar.topic.name": "clicks"}
PROP = "stream.pulsar.consumer.prop"


def test_literal_secret_is_a_warning_and_a_reference_is_none() -> None:
    definition = from_mapping(
        {
            **KAFKA,
            f"{PROP}.sasl.password": "hunter2",
            f"{PROP}.ssl.key.password": "${env:KEY_PASSWORD}",
            f"{PROP}.sasl.mechanism": "PLAIN",
        }
    )
    result = inspect(definition, PluginManager({}))
    assert [str(problem) for problem in result.problems][1:] == [
        (
            f"{PROP}.sasl.password: contains a literal secret; write ${{env:NAME}} "
            "or ${file:PATH} [argument]"
        )
    ]
    assert result.config is not None
    assert "hunter2" not in repr(result.config)
    # What is passed through is not known to be harmless: its value is never shown.
    assert "sasl.mechanism=***" in repr(result.config)


def test_literal_secret_is_refused_on_spark() -> None:
    definition = from_mapping({**KAFKA, f"{PROP}.sasl.password": "hunter2"})
    with pytest.raises(ConfigError) as caught:
        configure(definition, PluginManager({}), use="spark")
    assert str(caught.value) == (
        "1 problem in the configuration\n"
        f"  {PROP}.sasl.password: contains a literal secret; write ${{env:NAME}} or "
        "${file:PATH} [argument]"
    )


@pytest.mark.parametrize(
    "properties",
    [
        {f"{PROP}.sasl.password": "hunter2", f"{PROP}.SASL.password": "hunter2"},
        {"sasl.password": "hunter2"},
        {"stream.pulsar.consumer.sasl.password": "hunter2"},
        {"stream.kafka.consumer.prop.sasl.jaas.config": "hunter2"},
        {f"{PROP}.sasl.password": "${vault:hunter}", "api.key": "hunter2"},
        {"maxOffsetsPerTrigger": "${env:PLANTED}"},
    ],
)
def test_planted_secret_is_in_no_problem(
    properties: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", "hunter2")
    definition = from_mapping({**KAFKA, **properties})
    result = inspect(definition, PluginManager({}))
    assert result.problems
    assert "hunter2" not in "\n".join(str(problem) for problem in result.problems)


# --- values that nobody declared a secret, and still hold one ---------------------

KAFKA_STREAM = {
    "streamType": "kafka",
    "stream.kafka.topic.name": "clicks",
    "stream.kafka.broker.list": "localhost:9092",
    "stream.kafka.decoder.class.name": "json",
    "stream.kafka.connection.timeout.millis": "100",
}
FILE_STREAM = {"streamType": "file", "stream.file.path": "streams"}
AVRO = {**KAFKA_STREAM, "stream.kafka.decoder.class.name": "avro"}
PLANTED = [
    {**KAFKA_STREAM, "sasl.pasword": "hunter2"},
    {**KAFKA_STREAM, "stream.kafka.sasl.pasword": "hunter2"},
    {**KAFKA_STREAM, "stream.kafka.unheard.of": "hunter2"},
    {**KAFKA_STREAM, "stream.kafka.consumer.prop.sasl.pasword": "hunter2"},
    {**KAFKA_STREAM, "kafka.sasl.pasword": "hunter2"},
    {**KAFKA_STREAM, "stream.kafka.broker.list": "alice:hunter2@localhost:9092"},
    {**KAFKA_STREAM, "stream.kafka.topic.name": "https://alice:hunter2@h/\n"},
    {**KAFKA_STREAM, "stream.kafka.decoder.prop.hunger": "hunter2"},
    {**KAFKA_STREAM, "stream.meta.api.key": "hunter2"},
    {**KAFKA_STREAM, "stream.kafka.consumer.prop.sasl.password": "${hunter2}"},
    {
        **KAFKA_STREAM,
        "stream.kafka.consumer.prop.sasl.oauthbearer.token.endpoint.url": (
            "https://alice:hunter2@login.example.com/token"
        ),
    },
    {
        **AVRO,
        "stream.kafka.decoder.prop.schema.registry.rest.url": (
            "https://alice:hunter2@registry:8081"
        ),
    },
    {**FILE_STREAM, "stream.file.path": "s3://KEY:hunter2@bucket/streams"},
    {**FILE_STREAM, "stream.file.path": "s3://KEY:ab/hunter2+c@bucket/streams"},
    {
        **FILE_STREAM,
        "stream.file.path": "s3://bucket",
        "stream.file.storage.endpoint": "http://KEY:hunter2@localhost:1",
    },
]


@pytest.mark.parametrize("properties", PLANTED)
@pytest.mark.parametrize("use", ["read", "write", "spark", None])
def test_planted_secret_is_in_no_text_of_a_configuration(
    properties: dict[str, str], use: str | None
) -> None:
    definition = from_mapping(properties)
    result = inspect(definition, default_manager(), use=use)
    texts = [str(problem) for problem in result.problems]
    texts += [repr(result.problems), repr(definition), repr(result)]
    if result.config is not None:
        texts += [repr(result.config), repr(dict(result.config.settings))]
        texts += map(repr, effective(result.config))
    assert "hunter2" not in "\n".join(texts)


@pytest.mark.parametrize("properties", PLANTED)
def test_planted_secret_reaches_no_pickle_for_spark(
    properties: dict[str, str],
) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(from_mapping(properties), default_manager(), use="spark")
    assert b"hunter2" not in pickle.dumps(caught.value)


@pytest.mark.parametrize("properties", PLANTED)
@pytest.mark.parametrize("form", [[], ["--json", "--verbose"]])
def test_planted_secret_is_in_no_output_of_a_command(
    properties: dict[str, str],
    form: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "clicks.json"
    path.write_text(json.dumps({"properties": properties}))
    for words in (["validate", "--effective"], ["tail"]):
        outcome = command_of(capsys)(*words, path, *form)
        assert "hunter2" not in outcome.out + outcome.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://KEY:secret@bucket/a", "s3://***@bucket/a"),
        ("s3://KEY:a/b+c@bucket/a", "s3://***@bucket/a"),
        ("https://token@host", "https://***@host"),
        ("https://a:p@ss@host/x@y", "https://***@host/x@y"),
        ("https://host:8081/x@y", "https://host:8081/x@y"),
        ("https://host/a:b@c", "https://host/a:b@c"),
        ("x https://a:b@h, http://c:d@h y", "x https://***@h, http://***@h y"),
        ("abfs://box@account.host/a", "abfs://box@account.host/a"),
        ("abfs://box:key@account.host/a", "abfs://***@account.host/a"),
        ("no://one", "no://one"),
        ("://" * 100_000, "://" * 100_000),
        ("://a:b" * 10_000, "://a:b" * 10_000),
    ],
)
def test_credentials_of_urls_are_masked_in_any_text(text: str, shown: str) -> None:
    assert mask_userinfo(text) == shown
    assert mask_value(text) == shown


# --- values from references, whatever their option --------------------------------

CANARY = "canary-q7x9"
FORMS = ["${env:PLANTED}", "127.0.0.1:1/${file:planted}", "${env:PLANTED}:22,b"]
STARTS: dict[str, dict[str, str]] = {
    "memory": {"stream.memory.topic.name": "clicks"},
    "kafka": KAFKA_STREAM,
    "file": {"stream.file.path": "nowhere", "stream.file.topic.name": "clicks"},
    "flight": {
        "stream.flight.location": "grpc://127.0.0.1:1",
        "stream.flight.topic.name": "clicks",
        "stream.flight.connection.timeout.millis": "50",
    },
    "delta": {"stream.delta.path": "nowhere"},
}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A value, in the environment and in a file of the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PLANTED", CANARY)
    Path("planted").write_text(f"{CANARY}\n")


@pytest.mark.parametrize(
    "type_name",
    [
        "file",
        "flight",
        "kafka",
        "memory",
        "delta",
        "iceberg",
        "hudi",
        "socket",
        "zeromq",
    ],
)
@pytest.mark.parametrize("use", ["read", "write", "spark", None])
def test_value_from_a_reference_is_in_no_text_of_a_configuration(
    type_name: str, use: str | None, planted: None
) -> None:
    plugins = default_manager()
    backend = plugins.backend(type_name)
    own = [f"stream.{type_name}.{option.key}" for option in backend.options]
    base = {"streamType": type_name, **STARTS.get(type_name, {})}
    for key in [*FRAMEWORK_OPTIONS, *own, f"stream.{type_name}.no.such.key"]:
        for form in FORMS:
            definition = from_mapping({**base, key: form})
            result = inspect(definition, plugins, use=use)
            texts = [str(problem) for problem in result.problems]
            texts += [repr(result.problems), repr(definition), repr(result)]
            if result.config is not None:
                texts += [result.config.name, repr(dict(result.config.settings))]
                texts += map(repr, effective(result.config))
                assert CANARY not in result.config.mask(f"a {CANARY} and {CANARY!r}")
            assert CANARY not in "\n".join(texts), (key, form)


@pytest.mark.parametrize("type_name", ["file", "flight", "delta", "memory"])
def test_value_from_a_reference_is_in_no_output_of_a_command(
    type_name: str, planted: None, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = default_manager().backend(type_name)
    words = [["check"], ["schema"], ["lag"], ["tail"], ["validate", "--effective"]]
    keys = [o.key for o in backend.options if o.required] + ["topic.name", "location"]
    for key in dict.fromkeys([*keys, "path"]):
        base = {"streamType": type_name, **STARTS[type_name]}
        properties = {**base, f"stream.{type_name}.{key}": "x/${env:PLANTED}"}
        Path("clicks.json").write_text(json.dumps({"properties": properties}))
        for form in words:
            for extra in ([], ["--json", "--verbose"]):
                outcome = command_of(capsys)(*form, "clicks.json", *extra)
                assert CANARY not in outcome.out + outcome.err, (key, form)


def test_parts_of_a_list_from_a_reference_are_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOSTS", "internal-1:9092, internal-2:9092")
    config = inspect(
        from_mapping({**KAFKA_STREAM, "stream.kafka.broker.list": "${env:HOSTS}"}),
        default_manager(),
        use="read",
    ).config
    assert config is not None
    assert (
        config.mask("no route to internal-2, port 9092") == "no route to ***, port 9092"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("alice:secret@host:9092", "***@host:9092"),
        ("h:1,alice:secret@h:2", "h:1,***@h:2"),
        ("10:30@noon", "***@noon"),
        ("clicks@eu", "clicks@eu"),
        ("a:b" * 100_000, "a:b" * 100_000),
    ],
)
def test_credentials_alone_are_masked_in_values(text: str, shown: str) -> None:
    assert mask_value(text) == shown


def test_errors_of_a_stream_hide_the_credentials_of_its_urls() -> None:
    url = "https://alice:hun%23ter2@host"
    setting = Setting("url", "stream.x.url", url, url, "argument")
    held = StreamConfig("clicks", "x", {"url": setting})
    text = "login of alice:hun#ter2 at host failed: hun%23ter2, hun#ter2"
    assert held.mask(text) == "login of *** at host failed: ***, ***"


def test_every_property_of_the_client_is_known() -> None:
    known = default_manager().backend("kafka").client_keys
    assert librdkafka_keys() <= known


def librdkafka_keys() -> set[str]:
    """Names that the installed library prints; it prints to a file of C only."""
    [library] = Path(f"{confluent_kafka.__path__[0]}.libs").glob("librdkafka*")
    client, system = ctypes.CDLL(str(library)), ctypes.CDLL(None)
    system.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as target:
        file = ctypes.c_void_p(system.fopen(target.name.encode(), b"w"))
        client.rd_kafka_conf_properties_show(file)
        system.fclose(file)
        text = Path(target.name).read_text("utf-8")
    found = set(re.findall(r"^([a-z][a-z0-9_.]*) *\| *[*CP]", text, re.MULTILINE))
    assert len(found) > 100
    return found


def test_misspelt_property_of_the_client_is_reported_with_the_nearest() -> None:
    key = "stream.kafka.consumer.prop.fetch.wiat.max.ms"
    definition = from_mapping({**KAFKA_STREAM, key: "5"})
    expected = (
        f"{key}: is not a known property of the client; did you mean "
        "fetch.wait.max.ms? [argument]"
    )
    result = inspect(definition, default_manager(), use="read")
    assert list(map(str, result.warnings)) == [expected]
    result = inspect(definition, default_manager(), use="spark")
    assert list(map(str, result.errors)) == [expected]
