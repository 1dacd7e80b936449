"""Credentials as configuration, tried on a broker that asks for them."""

from __future__ import annotations

import base64
import ssl
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.certificates import KEY_PASSWORD
from tests.kafka.broker import PASSWORD, USER
from tests.kafka.conftest import stream_of
from tests.kafka.logins import PROP, certificate, prop, reads, refusal
from tests.kafka.paths import BEFORE_READING
from tests.kafka.streams import opened

from streamfactory.backends.kafka.security import java_security
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    FetchLimits,
    NotAuthorized,
    Partition,
)
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kafka.broker import Addresses
    from tests.kafka.topics import Topics


pytestmark = pytest.mark.usefixtures("each_path", "secured")


def test_ssl(kafka: Addresses, filled: str) -> None:
    ca = certificate(kafka, "ca.pem")
    reads(kafka.ssl, filled, prop(security_protocol="SSL", ssl_ca_location=ca))


@BEFORE_READING
def test_mutual_tls_with_a_locked_key(
    kafka: Addresses, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
    more = prop(
        security_protocol="SSL",
        ssl_ca_location=certificate(kafka, "ca.pem"),
        ssl_certificate_location=certificate(kafka, "client.pem"),
        ssl_key_location=certificate(kafka, "client.locked.key"),
        ssl_key_password="${env:KEY_PASSWORD}",
    )
    reads(kafka.ssl, filled, more)


@BEFORE_READING
def test_certificates_as_javas_client_names_them(kafka: Addresses, filled: str) -> None:
    more = prop(
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_location=certificate(kafka, "ca.pem"),
        ssl_keystore_type="PEM",
        ssl_keystore_location=certificate(kafka, "client.store.pem"),
        ssl_enabled_protocols="TLSv1.2",
    )
    reads(kafka.ssl, filled, more)


@BEFORE_READING
def test_certificates_as_pinot_writes_them(kafka: Addresses, filled: str) -> None:
    def der(name: str) -> str:
        text = Path(certificate(kafka, name)).read_text()
        if "KEY" in text:
            return "".join(text.splitlines()[1:-1])
        return base64.b64encode(ssl.PEM_cert_to_DER_cert(text)).decode()

    more = {
        "stream.kafka.ssl.server.certificate": der("ca.pem"),
        "stream.kafka.ssl.client.certificate": der("client.pem"),
        "stream.kafka.ssl.client.key": der("client.key"),
    }
    reads(kafka.ssl, filled, prop(security_protocol="SSL") | more)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_sasl(
    mechanism: str, kafka: Addresses, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    more = prop(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism=mechanism,
        sasl_username=USER,
        sasl_password="${env:KAFKA_PASSWORD}",
    )
    reads(kafka.sasl, filled, more)


@BEFORE_READING
def test_sasl_as_javas_client_writes_it_over_tls(kafka: Addresses, filled: str) -> None:
    login = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{PASSWORD}";'
    )
    more = prop(
        security_protocol="SASL_SSL",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=login,
        ssl_ca_location=certificate(kafka, "ca.pem"),
    )
    reads(kafka.sasl_ssl, filled, more)


def bearer(**claims: str) -> dict[str, str]:
    """A token that librdkafka makes itself, and the broker of the tests believes."""
    fields = " ".join(f"{name}={value}" for name, value in claims.items())
    return prop(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        enable_sasl_oauthbearer_unsecure_jwt="true",
        sasl_oauthbearer_config=fields,
    )


def test_a_bearers_token(kafka: Addresses, filled: str) -> None:
    reads(kafka.sasl, filled, bearer(principal=USER))


@BEFORE_READING
def test_a_bearers_token_serves_a_writer(
    kafka: Addresses, topic: str, topics: Topics
) -> None:
    assert kafka.sasl is not None
    properties = stream_of(kafka.sasl, topic) | bearer(principal=USER)
    rows = pa.table({"value": [b"secret matters"]})
    with open_sink(properties) as sink:
        assert sink.put(rows, writer_id="w")
    reads(topics.bootstrap, topic, {})


@BEFORE_READING
def test_a_bearers_token_that_cannot_be_had_is_reported(
    kafka: Addresses, filled: str
) -> None:
    more = bearer(principle=USER)
    text = refusal(NotAuthorized, kafka.sasl, filled, more)
    assert "principle=alice" in text


@BEFORE_READING
def test_credentials_of_a_writer_serve_a_reader(kafka: Addresses, filled: str) -> None:
    more = {
        key.replace("consumer", "producer"): value
        for key, value in prop(
            security_protocol="SSL", ssl_ca_location=certificate(kafka, "ca.pem")
        ).items()
    }
    reads(kafka.ssl, filled, more)


# --- refused --------------------------------------------------------------------------


def test_a_wrong_password_is_reported_at_once_and_not_shown(
    kafka: Addresses, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "wr0ng-passw0rd")
    more = prop(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=USER,
        sasl_password="${env:KAFKA_PASSWORD}",
    )
    text = refusal(NotAuthorized, kafka.sasl, filled, more)
    assert filled in text
    assert "uthentication failed" in text
    assert "wr0ng-passw0rd" not in text


@BEFORE_READING
@pytest.mark.parametrize("client", ["reader", "writer"])
def test_no_certificate_where_one_is_required_is_reported_at_once(
    client: str, kafka: Addresses, filled: str
) -> None:
    assert kafka.mtls is not None
    ca, began = certificate(kafka, "ca.pem"), time.monotonic()
    more = prop(security_protocol="SSL", ssl_ca_location=ca)
    if client == "reader":
        text = refusal(NotAuthorized, kafka.mtls, filled, more)
    else:
        with (
            pytest.raises(NotAuthorized) as caught,
            open_sink(stream_of(kafka.mtls, filled) | more) as sink,
        ):
            sink.put(pa.table({"value": [b"v"]}), writer_id="w")
        text = str(caught.value)
    assert "the broker requires another client certificate" in text
    assert time.monotonic() - began < 30


@BEFORE_READING
def test_a_certificate_where_one_is_required_is_enough(
    kafka: Addresses, filled: str
) -> None:
    more = prop(
        security_protocol="SSL",
        ssl_ca_location=certificate(kafka, "ca.pem"),
        ssl_certificate_location=certificate(kafka, "client.pem"),
        ssl_key_location=certificate(kafka, "client.key"),
    )
    reads(kafka.mtls, filled, more)


@BEFORE_READING
def test_a_third_party_among_the_authorities_is_not_trusted(
    kafka: Addresses, filled: str
) -> None:
    stranger = certificate(kafka, "other-ca.pem")
    more = prop(security_protocol="SSL", ssl_ca_location=stranger)
    text = refusal(NotAuthorized, kafka.ssl, filled, more)
    assert "certificate" in text


@BEFORE_READING
def test_plain_text_to_a_port_of_tls_reports_it(kafka: Addresses, filled: str) -> None:
    quick = {"stream.kafka.connection.timeout.millis": "2000"}
    text = refusal(ConnectionFailed, kafka.ssl, filled, quick)
    assert "within 2 s" in text
    assert "security.protocol" in text


@BEFORE_READING
def test_tls_to_a_port_of_plain_text_reports_it(kafka: Addresses, filled: str) -> None:
    more = prop(security_protocol="SSL", ssl_ca_location=certificate(kafka, "ca.pem"))
    quick = {"stream.kafka.connection.timeout.millis": "2000"}
    text = refusal(ConnectionFailed, kafka.bootstrap, filled, more | quick)
    assert "SSL handshake failed" in text


def test_a_forbidden_topic_is_reported_by_name(
    kafka: Addresses, filled: str, topics: Topics
) -> None:
    topics.forbid(filled, USER)
    more = prop(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username=USER,
        sasl_password=PASSWORD,
    )
    text = refusal(NotAuthorized, kafka.sasl, filled, more)
    assert filled in text


@BEFORE_READING
def test_keys_that_are_ours_are_refused_with_what_to_say(kafka: Addresses) -> None:
    more = prop(auto_offset_reset="x", enable_auto_commit="true", bootstrap_servers="a")
    with pytest.raises(ConfigError) as caught, opened(stream_of("a:1", "t") | more):
        pass
    text = str(caught.value)
    assert "set stream.kafka.broker.list" in text
    assert f"{PROP}enable.auto.commit" in text


@BEFORE_READING
def test_an_unknown_setting_of_the_client_is_named(kafka: Addresses) -> None:
    more = prop(fetch_wiat_ms="1")
    with opened(stream_of(kafka.bootstrap, "t") | more) as source:
        consumer = source.factory.create_partition_level_consumer(
            "test", Partition("t", 0)
        )
        with closing(consumer), pytest.raises(ConfigError) as caught:
            consumer.fetch_messages(0, None, FetchLimits(10, 1000, 0.1))
    assert "fetch.wiat.ms" in str(caught.value)


@BEFORE_READING
@pytest.mark.parametrize(
    ("given", "what"),
    [
        (
            {"ssl.truststore.location": "/keys/trust.jks"},
            "ssl.truststore.location='/keys/trust.jks' is a Java key store (JKS)",
        ),
        (
            {"ssl.keystore.location": "/keys/own.jks"},
            "ssl.keystore.location='/keys/own.jks' is a Java key store",
        ),
        (
            {"sasl.jaas.config": "com.sun.security.auth.module.Krb5 required a=b;"},
            "sasl.jaas.config contains Krb5, which only Java supports",
        ),
        (
            {"sasl.jaas.config": "gibberish"},
            (
                "sasl.jaas.config contains text of an unsupported form, which only "
                "Java supports"
            ),
        ),
    ],
)
def test_what_only_java_can_read_is_refused_with_the_way_out(
    given: Mapping[str, str], what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        java_security(given)
    assert caught.value.what == what
    assert caught.value.remedy


@BEFORE_READING
def test_a_login_with_quotes_and_semicolons_is_read_whole() -> None:
    text = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required\n"
        '  username="al;ice" password="a\\"b;c" ;'
    )
    assert java_security({"sasl.jaas.config": text}) == {
        "sasl.username": "al;ice",
        "sasl.password": 'a"b;c',
    }
