"""Which keys are taken for secrets, and what becomes of their values."""

from __future__ import annotations

import pytest

from streamfactory.spi import ConfigError
from streamfactory.wiring.configure import configure, inspect
from streamfactory.wiring.definition import from_mapping
from streamfactory.wiring.plugins import PluginManager
from streamfactory.wiring.settling import looks_secret

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
            f"{PROP}.sasl.password: holds a secret in the clear; write ${{env:NAME}} "
            "or ${file:PATH} [argument]"
        )
    ]
    assert result.config is not None
    assert "hunter2" not in repr(result.config)
    assert "sasl.mechanism=PLAIN" in repr(result.config)


def test_literal_secret_is_refused_on_spark() -> None:
    definition = from_mapping({**KAFKA, f"{PROP}.sasl.password": "hunter2"})
    with pytest.raises(ConfigError) as caught:
        configure(definition, PluginManager({}), use="spark")
    assert str(caught.value) == (
        "1 problem in the configuration\n"
        f"  {PROP}.sasl.password: holds a secret in the clear; write ${{env:NAME}} or "
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
