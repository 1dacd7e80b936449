"""The scheme, against the documented interface, and against OpenBao where it is.

The tests with `server` run on both.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import shutil
import ssl
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from interface import TOKEN, Interface
from streamfactory.conformance import Outcome, run
from streamfactory.conformance.runner import scheme_cases
from streamfactory.conformance.subject import SchemeSubject, find_scheme
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    NotAuthorized,
    StreamError,
    StreamTimeout,
)
from streamfactory.spi.references import forget, resolve

from streamfactory_vault import client, scheme
from streamfactory_vault.harness import BaoHarness, Store, StoreHarness, bao_server
from streamfactory_vault.scheme import look_up

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIABLES = ["ADDR", "TOKEN", "ROLE_ID", "SECRET_ID", "AUTH_MOUNT", "NAMESPACE"]
VARIABLES += [
    "CACERT",
    "CAPATH",
    "CLIENT_CERT",
    "CLIENT_KEY",
    "KEEP_SECONDS",
    "ALLOW_HTTP",
]
NO_BAO = "the program bao is not installed: https://openbao.org"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(f"VAULT_{name}", raising=False)
        monkeypatch.delenv(f"BAO_{name}", raising=False)
    monkeypatch.setattr(client, "_login", client._Login())


@pytest.fixture
def interface(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interface]:
    server = Interface()
    monkeypatch.setenv("VAULT_ADDR", server.address)
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    yield server
    server.close()


@pytest.fixture(scope="module")
def bao(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if shutil.which("bao") is None:
        pytest.skip(NO_BAO)
    server = bao_server(tmp_path_factory.mktemp("bao"))
    store = Store(f"http://{server.address}", TOKEN)
    store.call("POST", "sys/mounts/kv1", {"type": "kv", "options": {"version": "1"}})
    store.call("POST", "sys/auth/approle", {"type": "approle"})
    policy = 'path "secret/data/allowed/*" { capabilities = ["read"] }'
    store.call("PUT", "sys/policies/acl/few", {"policy": policy})
    store.close()
    yield f"http://{server.address}"
    server.close()


@pytest.fixture(params=["interface", "bao"])
def server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    if request.param == "bao":
        address = request.getfixturevalue("bao")
    else:
        address = request.getfixturevalue("interface").address
    monkeypatch.setenv("VAULT_ADDR", address)
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    store = Store(address, TOKEN)
    yield store
    store.close()


def value(what: str, seconds: float = 5.0) -> str:
    return look_up(what, seconds).value


# --- values ---------------------------------------------------------------------------


def test_key_of_version_2_and_of_version_1(server: Store) -> None:
    server.put("app/kafka", password="hunter2", user="anna")
    assert value("secret/app/kafka#password") == "hunter2"
    assert value("secret/app/kafka#user") == "anna"
    server.call("POST", "kv1/app/kafka", {"password": "hunter1"})
    assert value("kv1/app/kafka#password") == "hunter1"


def test_time_of_a_secret_of_version_1_shortens_how_long_it_is_kept(
    server: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.put("app/a", k="v")
    assert look_up("secret/app/a#k", 5).keep_seconds == 300
    server.call("POST", "kv1/app/a", {"k": "v", "ttl": "20"})
    assert look_up("kv1/app/a#k", 5).keep_seconds == 20
    monkeypatch.setenv("VAULT_KEEP_SECONDS", "7")
    assert look_up("secret/app/a#k", 5).keep_seconds == 7


def test_resolved_through_the_framework_and_renewed(server: Store) -> None:
    server.put("app/b", k="one")
    text = "user:${vault:secret/app/b#k}"
    forget(text)  # of the other server
    assert resolve(text) == "user:one"
    server.put("app/b", k="two")
    assert resolve(text) == "user:one"
    assert forget(text)
    assert resolve(text) == "user:two"


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("secret/app/c#other", "the secret has no key 'other'"),
        (
            "secret/app/c#number",
            "the key 'number' has a value of the type int, expected",
        ),
        ("secret/app/never#k", "answered 404: there is no such secret"),
        ("secret/app#k", "the server answered 404"),
        ("secret#k", "it is not the path of a secret with a key"),
        ("secret/app/c", "it is not the path of a secret with a key"),
        ("secret/app/c#", "it is not the path of a secret with a key"),
        ("secret/../sys/health#k", "it is not the path of a secret with a key"),
        ("secret//app/c#k", "it is not the path of a secret with a key"),
        ("secret/a\nb#k", "it is not the path of a secret with a key"),
    ],
)
def test_what_is_not_there_is_a_mistake(server: Store, what: str, reason: str) -> None:
    server.put("app/c", k="hunter2", number=5)
    with pytest.raises(ConfigError, match=reason) as caught:
        value(what)
    assert "hunter2" not in str(caught.value)


def test_secret_that_was_deleted_is_a_mistake(server: Store) -> None:
    server.put("app/d", k="hunter2")
    server.call("DELETE", "secret/data/app/d")
    with pytest.raises(ConfigError, match="404"):
        value("secret/app/d#k")


def test_other_engines_are_refused(server: Store) -> None:
    with pytest.raises((ConfigError, NotAuthorized)):
        value("cubbyhole/x#k")
    with pytest.raises((ConfigError, NotAuthorized)):
        value("sys/health#initialized")


def test_engine_of_another_type_is_named(interface: Interface) -> None:
    with pytest.raises(ConfigError, match="type 'database'; only kv can be read"):
        value("database/creds/role#password")


def test_names_are_quoted(server: Store) -> None:
    server.put("app/a%20b%23c%3Fd", k="v")
    assert value("secret/app/a b#c?d#k") == "v"


# --- signing in -----------------------------------------------------------------------


def test_token_comes_by_reference_and_is_read_again(
    server: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server.put("app/e", k="v")
    file = tmp_path / "token"
    file.write_text("wrong\n")
    monkeypatch.setenv("STREAMFACTORY_SECRETS", str(tmp_path))
    monkeypatch.setenv("VAULT_TOKEN", f"${{file:{file}}}")
    with pytest.raises(NotAuthorized, match="the server answered 403"):
        value("secret/app/e#k")
    file.write_text(f"{TOKEN}\n")
    assert value("secret/app/e#k") == "v"


def approle(server: Store) -> tuple[str, str]:
    """An AppRole that may read ``secret/allowed/*``: role id, secret id."""
    body = {"token_policies": "few", "token_ttl": "1h"}
    server.call("POST", "auth/approle/role/job", body)
    role = server.call("GET", "auth/approle/role/job/role-id")["data"]["role_id"]
    made = server.call("POST", "auth/approle/role/job/secret-id", {})
    return role, made["data"]["secret_id"]


def test_approle_of_a_real_server(bao: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VAULT_ADDR", bao)
    store = Store(bao, TOKEN)
    store.put("allowed/a", k="v")
    store.put("other/a", k="v")
    role, secret = approle(store)
    monkeypatch.setenv("VAULT_ROLE_ID", role)
    monkeypatch.setenv("VAULT_SECRET_ID", secret)
    assert value("secret/allowed/a#k") == "v"
    with pytest.raises(NotAuthorized):
        value("secret/other/a#k")
    store.call("POST", "auth/token/revoke", {"token": client._login.token})
    assert value("secret/allowed/a#k") == "v"
    store.close()
    monkeypatch.setenv("VAULT_SECRET_ID", "wrong")
    with pytest.raises(ConfigError, match="400: invalid"):
        value("secret/allowed/a#k")


def test_approle_signs_in_once_and_again_when_its_token_is_over(
    interface: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    interface.secrets["secret/data/a"] = {"data": {"k": "v"}}
    interface.roles["role"] = "hunter2"
    monkeypatch.setenv("VAULT_ROLE_ID", "role")
    monkeypatch.setenv("VAULT_SECRET_ID", "hunter2")
    logins = ("POST", "auth/approle/login")
    for _ in range(3):
        assert value("secret/a#k") == "v"
    assert interface.requests.count(logins) == 1
    interface.tokens = {}  # revoked
    assert value("secret/a#k") == "v"
    assert interface.requests.count(logins) == 2
    interface.login_seconds = 1
    interface.tokens = {}
    assert value("secret/a#k") == "v"
    time.sleep(0.6)  # half of its time
    assert value("secret/a#k") == "v"
    assert interface.requests.count(logins) == 4
    monkeypatch.setenv("VAULT_SECRET_ID", "hunter3")
    with pytest.raises(ConfigError, match="invalid role or secret ID") as caught:
        value("secret/a#k")
    assert "hunter" not in str(caught.value)


def test_token_with_a_time_is_renewed_when_half_of_it_is_over(
    interface: Interface,
) -> None:
    interface.secrets["secret/data/a"] = {"data": {"k": "v"}}
    token = interface.tokens[TOKEN]
    token["ttl"] = 1
    assert value("secret/a#k") == "v"
    assert "renewed" not in token
    time.sleep(0.6)
    assert value("secret/a#k") == "v"
    assert value("secret/a#k") == "v"
    assert token["renewed"] == 1


def test_namespace_is_part_of_each_request(
    interface: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    interface.namespace = "team/a"
    interface.secrets["secret/data/a"] = {"data": {"k": "v"}}
    with pytest.raises(ConfigError, match="no handler for route"):
        value("secret/a#k")
    monkeypatch.setenv("VAULT_NAMESPACE", "team/a")
    assert value("secret/a#k") == "v"


# --- a server that misbehaves ---------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((503, b'{"errors": ["Vault is sealed"]}', {}), ConnectionFailed),
        ((429, b"", {}), ConnectionFailed),
        ((502, b"<html>", {}), ConnectionFailed),
        ((200, b"<html>", {}), ConnectionFailed),
        ((200, b"[" * 100_000, {}), ConnectionFailed),
        ((200, b"{}", {}), ConfigError),
        ((200, b'{"data": [1]}', {}), ConfigError),
        ((200, b'{"data": {"type": "kv", "path": 1}}', {}), ConfigError),
        ((400, b'{"errors": [{"a": 1}]}', {}), ConfigError),
        ((400, b'{"errors": ["\\u202e\\u0000 bad"]}', {}), ConfigError),
        ((200, b" " * (5 << 20), {}), ConfigError),
        ((307, b"", {"location": "http://127.0.0.1:1/v1/x"}), ConnectionFailed),
        ((307, b"", {"location": "ftp://nowhere"}), ConnectionFailed),
        ((307, b"", {}), ConfigError),
        ((302, b"", {"location": "http://127.0.0.1:1/"}), ConfigError),
        # Where the address is plain, as that of an agent on this machine.
        ((307, b"", {"location": "http://192.0.2.1/v1/x"}), ConfigError),
        ((308, b"", {"location": "//192.0.2.1/v1/x"}), ConfigError),
        ((307, b"", {"location": "http://[/v1/x"}), ConnectionFailed),
    ],
)
def test_answers_of_other_kinds_are_errors_of_their_class(
    interface: Interface, answer: Any, kind: type[StreamError]
) -> None:
    interface.answer = answer
    with pytest.raises(kind) as caught:
        value("secret/a#k")
    assert TOKEN not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("end", ["\nsecond", "\u00e9", " x", "\x7f", "\x00"])
@pytest.mark.parametrize("name", ["VAULT_TOKEN", "VAULT_NAMESPACE"])
def test_header_that_cannot_be_sent_is_refused_and_not_quoted(
    interface: Interface,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    name: str,
    end: str,
) -> None:
    file = tmp_path / "text"
    file.write_text(f"hunter2{end}", encoding="utf-8")
    monkeypatch.setenv("STREAMFACTORY_SECRETS", str(tmp_path))
    monkeypatch.setenv(name, f"${{file:{file}}}")
    with pytest.raises(ConfigError, match=f"{name} has blanks") as caught:
        value("secret/a#k")
    assert "hunter2" not in str(caught.value)
    assert interface.requests == []


def test_token_of_a_login_that_cannot_be_sent_is_not_quoted(
    interface: Interface, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VAULT_ROLE_ID", "role")
    interface.answer = (200, b'{"auth": {"client_token": "hunter2\\nx"}}', {})
    with pytest.raises(ConnectionFailed, match="without a token") as caught:
        value("secret/a#k")
    assert "hunter2" not in str(caught.value)


def test_server_that_is_away_is_an_error_that_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:1")
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        value("secret/a#k")


def test_deadline_is_that_of_all_requests_together(interface: Interface) -> None:
    interface.running.clear()
    started = time.monotonic()
    with pytest.raises(StreamTimeout):
        value("secret/a#k", 0.3)
    assert time.monotonic() - started < 2


# --- the address and TLS --------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("", "no VAULT_ADDR"),
        ("vault.example:8200", "is not an address"),
        ("https://", "is not an address"),
        ("https://user:hunter2@vault.example", "is not an address"),
        ("https://vault.example/path", "is not an address"),
        ("https://vault.example:port", "is not an address"),
        ("http://vault.example:8200", "is not encrypted"),
        ("${vault:a/b#c}", "refers to the server that it is needed for"),
        ("${env:NOT_SET_HERE}", "cannot be resolved"),
    ],
)
def test_address_that_cannot_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str, reason: str
) -> None:
    monkeypatch.setenv("VAULT_ADDR", address)
    monkeypatch.setenv("VAULT_TOKEN", TOKEN)
    with pytest.raises(ConfigError, match=reason) as caught:
        value("secret/a#k")
    assert "hunter2" not in str(caught.value)


def test_without_a_token_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAO_ADDR", "https://vault.example")
    with pytest.raises(ConfigError, match="neither VAULT_TOKEN nor VAULT_ROLE_ID"):
        value("secret/a#k")
    monkeypatch.setenv("BAO_TOKEN", "x")
    monkeypatch.setenv("VAULT_KEEP_SECONDS", "often")
    with pytest.raises(ConfigError, match="VAULT_KEEP_SECONDS is not a number"):
        value("secret/a#k")


@contextmanager
def secured(folder: Path) -> Iterator[Interface]:
    """A server with a certificate of its own, ``folder/cert.pem``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "vault")])
    now = dt.datetime.now(dt.UTC)
    here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([here]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(certificate.public_bytes(pem))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *private))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    server = Interface(context)
    try:
        yield server
    finally:
        server.close()


def test_certificate_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with secured(tmp_path) as server:
        server.secrets["secret/data/a"] = {"data": {"k": "v"}}
        monkeypatch.setenv("VAULT_ADDR", server.address)
        monkeypatch.setenv("VAULT_TOKEN", TOKEN)
        with pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY_FAILED"):
            value("secret/a#k")
        assert server.requests == []
        monkeypatch.setenv("VAULT_CACERT", str(tmp_path / "cert.pem"))
        assert value("secret/a#k") == "v"
        plain = {"location": "http://127.0.0.1:1/v1/x"}
        server.answer = (307, b"", plain)
        with pytest.raises(ConfigError, match="address is not encrypted"):
            value("secret/a#k")
        monkeypatch.setenv("VAULT_CACERT", str(tmp_path / "none.pem"))
        with pytest.raises(ConfigError, match="VAULT_CACERT"):
            value("secret/a#k")


# --- the kit --------------------------------------------------------------------------


class InterfaceHarness(StoreHarness):
    """The harness over the documented interface."""

    server: Interface

    def __init__(self) -> None:
        self._open = Store(self.server.address, TOKEN)
        super().__init__(self._open)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        self.server.running.clear()
        try:
            yield
        finally:
            self.server.running.set()

    def close(self) -> None:
        self._open.close()


def prove(harness: type) -> None:
    subject = SchemeSubject(scheme.streamfactory_reference(), harness)
    results = list(run(subject, cases=scheme_cases()))
    assert {r.outcome for r in results} == {Outcome.PASSED}, results
    assert len(results) == 6


def test_every_method_of_its_harness_is_one_of_the_kit() -> None:
    assert find_scheme("vault").harness is BaoHarness  # warnings are errors


def test_it_passes_the_kit(interface: Interface) -> None:
    InterfaceHarness.server = interface
    prove(InterfaceHarness)


def test_it_passes_the_kit_on_a_real_server() -> None:
    if shutil.which("bao") is None:
        pytest.skip(NO_BAO)
    prove(BaoHarness)
