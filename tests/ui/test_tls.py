"""The pages by TLS: certificates, hostile clients, large requests and answers."""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import serialization
from tests.certificates import issue_certificates
from tests.ui.conftest import TOKEN, settings

from streamfactory.spi import ConfigError
from streamfactory.ui import server as serving
from streamfactory.ui.channels import RECORD_BYTES
from streamfactory.ui.server import PageServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.ui.conftest import Browser, World

    Serve = Callable[..., Browser]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Certificates of this machine."""
    made = tmp_path / "certificates"
    made.mkdir()
    issue_certificates(made)
    return made


def certificate(folder: Path) -> dict[str, str | Path]:
    return {
        "tls_certificate": folder / "server.pem",
        "tls_key": folder / "server.key",
    }


def client(folder: Path, name: str | None = None, ca: str = "ca") -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=folder / f"{ca}.pem")
    if name is not None:
        made.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return made


def test_an_open_address_is_served_by_tls(
    world: World, serve: Serve, folder: Path
) -> None:
    browser = serve("0.0.0.0:0", token=TOKEN, **certificate(folder))
    assert browser.location.startswith("https://0.0.0.0:")
    browser.location = browser.location.replace("0.0.0.0", "127.0.0.1")
    browser.tls = client(folder)
    assert "Secure" in browser.log_in().headers["Set-Cookie"]
    page = browser.get("/")
    assert "clicks" in page.text
    own = {"Origin": f"https://{browser.place}", "Sec_Fetch_Site": "same-origin"}
    form = {"csrf": browser.csrf(page)}
    assert browser.ask("/log-out", form, **own).status == 303
    browser.tls = client(folder, ca="other-ca")
    with pytest.raises(ssl.SSLCertVerificationError):
        browser.ask("/")


def test_requests_and_answers_of_many_records_arrive(
    world: World, serve: Serve, folder: Path
) -> None:
    world.letters({f"code-{n}": b"x" * 100_000 for n in range(20)}, "y" * 5000)
    browser = serve(token=TOKEN, **certificate(folder))
    browser.tls = client(folder)
    page = browser.get("/messages", stream="letters", **{"as": "raw"})
    assert len(page.text) > RECORD_BYTES
    browser.log_in()
    form = {"stream": "x" * 60_000, "to": "y", "csrf": browser.csrf(browser.get("/"))}
    page = browser.ask("/actions/replay", form)
    assert page.status == 404
    assert "x" * 60_000 in page.text


def test_answers_wait_for_a_client_that_reads_slowly(
    serve: Serve, folder: Path
) -> None:
    host, _, port = serve(**certificate(folder)).place.rpartition(":")
    count = 1500  # answers of 6 MB, which no buffer of a socket has room for
    request = b"GET /static/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    found, deadline = 0, time.monotonic() + 120
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.connect((host, int(port)))
        with client(folder).wrap_socket(raw, server_hostname=host) as secure:
            secure.sendall(request * count)
            end = b""
            while found < count:
                assert time.monotonic() < deadline
                part = secure.recv(1 << 14)
                assert part, "the connection was closed"
                time.sleep(0.002)  # the client is slow
                found += (end + part).count(b"HTTP/1.1 200 OK")
                end = part[-14:]


def test_clients_without_a_certificate_are_refused(serve: Serve, folder: Path) -> None:
    browser = serve(**certificate(folder), tls_client_ca=folder / "ca.pem")
    browser.tls = client(folder, "client")
    assert browser.ask("/process").status == 200
    for name in (None, "stranger"):
        browser.tls = client(folder, name)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            browser.ask("/process")


def test_clients_that_speak_no_tls_leave_others_alone(
    serve: Serve, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    browser = serve(**certificate(folder))
    browser.tls = client(folder)
    host, _, port = browser.place.rpartition(":")
    address = (host, int(port))
    for sent in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 50_000, b"\x16\x03\x01"):
        with socket.create_connection(address, timeout=30) as raw:
            raw.sendall(sent)
            if len(sent) > 3:
                assert b"HTTP/1" not in drained(raw)
    with socket.create_connection(address, timeout=30):
        pass  # ends before its handshake
    assert browser.ask("/process").status == 200
    assert not caplog.messages


def drained(raw: socket.socket) -> bytes:
    """What the server sends up to its end of the connection."""
    received = b""
    try:
        while chunk := raw.recv(4096):
            received += chunk
    except ConnectionError:
        pass
    return received


def test_a_client_that_does_not_end_its_handshake_is_disconnected(
    serve: Serve, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "REQUEST_SECONDS", 1)
    host, _, port = serve(**certificate(folder)).place.rpartition(":")
    begin = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=30) as raw:
        raw.sendall(b"\x16\x03\x01\x02\x00")  # the head of a record
        assert drained(raw) == b""
    assert time.monotonic() - begin < 15


def test_certificates_that_cannot_be_used_are_named(folder: Path) -> None:
    (folder / "empty.pem").write_text("no certificate")
    key = serialization.load_pem_private_key((folder / "server.key").read_bytes(), None)
    (folder / "locked.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    for changed, text in (
        ({"tls_certificate": folder / "none.pem"}, r"tls\.certificate.*cannot be read"),
        ({"tls_key": folder / "none.key"}, r"tls\.key .*cannot be read: No such file"),
        ({"tls_certificate": folder / "empty.pem"}, "cannot be used"),
        ({"tls_key": folder / "client.key"}, "cannot be used: KEY_VALUES_MISMATCH"),
        ({"tls_key": folder / "locked.key"}, "without a passphrase"),
        ({"tls_client_ca": folder / "empty.pem"}, r"tls\.client\.ca.*cannot be used"),
    ):
        with pytest.raises(ConfigError, match=text):
            PageServer(settings(**{**certificate(folder), **changed}))
