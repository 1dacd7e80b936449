"""Tokens for OAUTHBEARER, of functions, of AWS and of OIDC; logins of Java."""

from __future__ import annotations

import base64
import importlib
import json
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.kafka.conftest import stream_of
from tests.kafka.logins import PROP, prop, reads
from tests.kafka.streams import opened

from streamfactory.backends.kafka.security import CLASSES
from streamfactory.backends.kafka.tokens import token_callback
from streamfactory.spi import ConfigError, NotAuthorized
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.kafka.broker import Addresses

pytestmark = pytest.mark.usefixtures("secured")

# --- tokens ---------------------------------------------------------------------------

TOKENS = """
import base64, json, time

def part(claims):
    return base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()

def token(settings):
    now = time.time()
    claims = {"sub": settings or "alice", "iat": int(now), "exp": int(now) + 600}
    return f"{part({'alg': 'none'})}.{part(claims)}.", now + 600

def refuse(settings):
    raise LookupError("no token today")

def generate_auth_token(region):
    assert region == "eu-central-1"
    found, expiry = token("")
    return found, expiry * 1000
"""
"""Unsecured tokens, which the broker of the tests believes; as functions, and as what
AWS's signer does."""

SIGNER = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider"
PARENT = SIGNER.partition(".")[0]


def installed() -> ModuleType:
    """The package of the signer, as if it was installed."""
    package = ModuleType(PARENT)
    package.__spec__ = ModuleSpec(PARENT, None)
    return package


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that makes tokens; functions are allowed."""
    name = f"tokens_{uuid.uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(TOKENS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("STREAMFACTORY_ALLOW_CLASS_PATHS", "true")
    return name


def with_token(source: str, **more: str) -> dict[str, str]:
    bearer = prop(security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER")
    return bearer | prop(**more) | {"stream.kafka.sasl.oauthbearer.token": source}


def test_a_function_makes_the_tokens_of_readers_and_writers(
    kafka: Addresses, topic: str, tokens: str
) -> None:
    assert kafka.sasl is not None
    more = with_token(f"{tokens}:token", sasl_oauthbearer_config="bob")
    with open_sink(stream_of(kafka.sasl, topic) | more) as sink:
        assert sink.put(pa.table({"value": [b"secret matters"]}), writer_id="w")
    reads(kafka.sasl, topic, more)


def test_a_function_for_tokens_is_refused_unless_it_is_allowed(
    kafka: Addresses, tokens: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STREAMFACTORY_ALLOW_CLASS_PATHS")
    given = stream_of("a:1", "t") | with_token(f"{tokens}:token")
    with pytest.raises(ConfigError) as caught, opened(given):
        pass
    assert "requires --allow-class-paths" in str(caught.value)
    definition = from_mapping(given)
    configure(definition, default_manager(), use="read", allow_class_paths=True)
    assert tokens not in sys.modules  # it is imported where it is called


def test_a_function_that_has_no_token_is_reported_at_once_with_its_reason(
    kafka: Addresses, filled: str, tokens: str
) -> None:
    began = time.monotonic()
    more = with_token(f"{tokens}:refuse")
    with (
        opened(stream_of(str(kafka.sasl), filled) | more) as source,
        pytest.raises(NotAuthorized) as caught,
    ):
        source.metadata.partitions()
    assert "LookupError: no token today" in str(caught.value)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("no_such_module:token", "cannot be loaded: ModuleNotFoundError"),
        ("{}:nothing", "cannot be loaded: AttributeError"),
        ("{}:TOKENS", "cannot be loaded: AttributeError"),
        ("{}:__doc__", "is a NoneType, expected a function"),
    ],
)
def test_a_function_that_cannot_be_had_is_a_configuration_error(
    source: str, what: str, kafka: Addresses, filled: str, tokens: str
) -> None:
    more = with_token(source.format(tokens))
    with (
        opened(stream_of(str(kafka.sasl), filled) | more) as opened_source,
        pytest.raises(ConfigError) as caught,
    ):
        opened_source.metadata.partitions()
    assert what in str(caught.value)


def test_a_word_that_is_no_source_of_tokens_is_refused() -> None:
    given = stream_of("a:1", "t") | with_token("azure")
    with pytest.raises(ConfigError) as caught, opened(given):
        pass
    assert "'azure' is neither aws-msk-iam nor a function" in str(caught.value)


def test_a_function_makes_the_tokens_of_planners_and_tasks_of_spark(
    kafka: Addresses, filled: str, tokens: str, tmp_path: Path, spark: SparkSession
) -> None:
    spark.sparkContext.addPyFile(str(tmp_path / f"{tokens}.py"))
    given = stream_of(str(kafka.sasl), filled) | with_token(f"{tokens}:token")
    frame = spark.read.format("streamfactory").options(**given).load()
    assert [bytes(row.value) for row in frame.collect()] == [b"secret matters"]


@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "AWS_MSK_IAM"])
def test_the_signer_of_aws_makes_tokens(
    mechanism: str,
    kafka: Addresses,
    filled: str,
    tokens: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, PARENT, installed())
    monkeypatch.setitem(sys.modules, SIGNER, importlib.import_module(tokens))
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    reads(kafka.sasl, filled, with_token("aws-msk-iam", sasl_mechanism=mechanism))


def test_the_real_signer_of_aws_signs_with_the_credentials_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    more = with_token("aws-msk-iam") | {"stream.kafka.aws.region": "eu-central-1"}
    definition = from_mapping(stream_of("a:1", "t") | more)
    config = configure(definition, default_manager(), use="read").config
    callback = token_callback(config, "")
    assert callback is not None
    token, expiry, *_ = callback("")
    padded = token + "=" * (-len(token) % 4)
    assert b"kafka.eu-central-1.amazonaws.com" in base64.urlsafe_b64decode(padded)
    assert 60 < expiry - time.time() < 3600


@pytest.mark.parametrize(
    ("region", "signer", "remedy"),
    [
        (None, True, "set stream.kafka.aws.region"),
        ("eu-central-1", False, "pip install 'streamfactory[kafka,msk]'"),
    ],
)
def test_what_the_signer_of_aws_needs_is_named(
    region: str | None,
    signer: bool,
    remedy: str,
    kafka: Addresses,
    tokens: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = importlib.import_module(tokens) if signer else None
    monkeypatch.setitem(sys.modules, PARENT, installed())
    monkeypatch.setitem(sys.modules, SIGNER, found)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    more = with_token("aws-msk-iam")
    if region is not None:
        more["stream.kafka.aws.region"] = region
    with (
        opened(stream_of(str(kafka.sasl), "t") | more) as source,
        pytest.raises(ConfigError) as caught,
    ):
        source.metadata.partitions()
    assert remedy in str(caught.value)


@pytest.fixture
def token_server(tokens: str) -> Iterator[tuple[str, list[str]]]:
    """The address of an OIDC server, and what it was asked."""
    made, asked = importlib.import_module(tokens), list[str]()

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length).decode()
            asked.append(f"{self.headers['authorization']} {body}")
            document = {"access_token": made.token("")[0], "token_type": "Bearer"}
            answer = json.dumps(document | {"expires_in": 600}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("names", ["librdkafka", "java"])
def test_tokens_of_an_oidc_server(
    names: str,
    kafka: Addresses,
    filled: str,
    token_server: tuple[str, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLIENT_SECRET", "s3cret")
    url, asked = token_server
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": url,
    }
    if names == "java":
        login = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule "
        login += 'required clientId="me" clientSecret="s3cret" scope="read";'
        given["sasl.jaas.config"] = login
    else:
        given |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "me",
            "sasl.oauthbearer.client.secret": "${env:CLIENT_SECRET}",
            "sasl.oauthbearer.scope": "read",
        }
    reads(kafka.sasl, filled, {PROP + key: value for key, value in given.items()})
    credentials = base64.b64encode(b"me:s3cret").decode()
    assert f"Basic {credentials}" in asked[0]
    assert "scope=read" in asked[0]


# --- what only Java has ---------------------------------------------------------------


def warnings_of(**given: str) -> dict[str, tuple[str, str | None]]:
    """Cause and remedy by client property, of a configuration that is valid."""
    definition = from_mapping(stream_of("a:1", "t") | prop(**given))
    found = configure(definition, default_manager(), use="read").config.warnings
    return {w.key.removeprefix(PROP): (w.what, w.suggestion) for w in found}


@pytest.mark.parametrize("key", sorted(CLASSES))
def test_classes_of_java_that_are_not_used_are_named(key: str) -> None:
    what, remedy = warnings_of(**{key: "com.example.Login"})[key]
    assert what == "names the Java class com.example.Login, which is not used"
    assert remedy


def test_kerberos_is_named_with_the_way_to_it() -> None:
    what, remedy = warnings_of(sasl_mechanism="GSSAPI")["sasl.mechanism"]
    assert what == "is Kerberos"
    assert "pip install --no-binary confluent-kafka" in str(remedy)


def test_a_login_module_of_java_is_refused_before_anything_is_connected() -> None:
    login = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
    given = stream_of("a:1", "t") | prop(sasl_jaas_config=login)
    with pytest.raises(ConfigError) as caught, opened(given):
        pass
    text = str(caught.value)
    assert "contains Krb5LoginModule, which only Java supports" in text
    assert "sasl.kerberos.principal" in text
