"""Who is let in, and what strangers can do to the server."""

from __future__ import annotations

import os
import random
import re
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.certificates import issue_certificates
from tests.flight.conftest import stream

import streamfactory
from streamfactory.backends.flight.client.handshake import refuses_certificate
from streamfactory.backends.flight.protocol import messages
from streamfactory.spi import ConfigError, ConnectionFailed, NotAuthorized, StreamError
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.wiring.serving.process import ServerProcess

ALICE, BOB = "alice-has-a-long-token", "bob-has-another-token"
ROWS = pa.table({"id": [1, 2, 3]})


def put(writer: fl.FlightStreamWriter, table: pa.Table) -> None:
    writer.write_table(table)
    writer.close()


def read(properties: dict[str, str]) -> int:
    with streamfactory.open(properties) as opened:
        found: int = opened.to_reader().read_all().num_rows
    return found


@pytest.fixture
def access(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALICE", ALICE)
    monkeypatch.setenv("BOB", BOB)
    path = tmp_path / "access.toml"
    path.write_text(
        '[tokens]\nalice = "${env:ALICE}"\nbob = "${env:BOB}"\n'
        '[topics."clicks"]\nread = ["alice", "bob"]\nwrite = ["alice"]\n'
        '[topics."secret*"]\nread = ["alice"]\nwrite = ["alice"]\nadmin = ["alice"]\n'
    )
    return path


def test_without_its_token_a_client_is_refused(access: Path) -> None:
    with streamfactory.serve(memory=True, access_file=str(access)) as server:
        for given in ({}, {"token": "somebody-elses-token"}):
            with pytest.raises(NotAuthorized):
                read(stream(server, "clicks", **given))
        with open_sink(stream(server, "clicks", token="${env:ALICE}")) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        assert read(stream(server, "clicks", token="${env:BOB}")) == 3


def test_refused_tokens_are_logged_without_the_token(
    access: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with streamfactory.serve(memory=True, access_file=str(access)) as server:
        client = fl.connect(server.location)
        wrong = fl.FlightCallOptions(headers=[(b"authorization", b"Bearer PLANTED")])
        for options in (fl.FlightCallOptions(), wrong):
            with pytest.raises(fl.FlightUnauthenticatedError):
                list(client.list_flights(options=options))
    logged = capfd.readouterr().err
    refused = [line for line in logged.splitlines() if "was refused" in line]
    assert ["token is unknown" in text for text in refused] == [False, True]
    assert all("LIST_FLIGHTS" in text and "grpc-c++" in text for text in refused)
    assert "PLANTED" not in logged


def test_rights_are_checked_by_topic(access: Path) -> None:
    with streamfactory.serve(memory=True, access_file=str(access)) as server:
        with open_sink(stream(server, "secret-1", token="${env:ALICE}")) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        with pytest.raises(NotAuthorized, match="'bob' may not read topic 'secret-1'"):
            read(stream(server, "secret-1", token="${env:BOB}"))
        with (
            open_sink(stream(server, "clicks", token="${env:BOB}")) as sink,
            pytest.raises(NotAuthorized, match="may not"),
        ):
            sink.put(ROWS, writer_id="w", epoch=0)
        bob = fl.connect(server.location)
        options = fl.FlightCallOptions(
            headers=[(b"authorization", b"Bearer " + BOB.encode())]
        )
        assert [f.descriptor.path for f in bob.list_flights(options=options)] == []
        bob.close()


def test_a_change_of_the_rules_is_noticed(access: Path) -> None:
    with streamfactory.serve(memory=True, access_file=str(access)) as server:
        bob = stream(server, "secret-1", token="${env:BOB}")
        with open_sink(stream(server, "secret-1", token="${env:ALICE}")) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        with pytest.raises(NotAuthorized):
            read(bob)
        broken, mended = (
            "[tokens\n",
            access.read_text().replace('read = ["alice"]', 'read = ["alice", "bob"]'),
        )
        access.write_text(broken)
        time.sleep(1.2)  # longer than a change may go unnoticed
        with pytest.raises(NotAuthorized):
            read(bob)
        access.write_text(mended)
        deadline = time.monotonic() + 30
        while True:
            try:
                assert read(bob) == 3
                break
            except NotAuthorized:
                assert time.monotonic() < deadline
                time.sleep(0.1)


def test_a_token_is_not_sent_in_the_clear_over_a_network() -> None:
    properties = {
        "streamType": "flight",
        "stream.flight.location": "grpc://192.0.2.1:8815",
        "stream.flight.topic.name": "clicks",
        "stream.flight.token": ALICE,
    }
    with pytest.raises(ConfigError, match="in the clear"):
        read(properties)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"address": "0.0.0.0:0"}, "open to the network"),
        ({"address": "nonsense"}, "is not host:port"),
        ({"tls_key": "/nowhere"}, "tls.key: requires tls.certificate"),
        ({"tls_key": "/nowhere", "tls_certificate": "/nowhere"}, "cannot be read"),
        ({"access_file": "/nowhere"}, "cannot be used"),
        ({"memory": "false"}, "needs either path or memory"),
    ],
)
def test_what_a_server_cannot_do_is_refused_at_the_start(
    settings: dict[str, str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(StreamError) as caught:
        streamfactory.serve("flight", **{"memory": "true", **settings})
    assert re.search(message, str(caught.value) + capfd.readouterr().err)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    issue_certificates(tmp_path)
    return tmp_path


def tls(folder: Path, name: str | None = None, ca: str = "ca") -> dict[str, str]:
    own = (
        {}
        if name is None
        else {
            "tls_certificate": str(folder / f"{name}.pem"),
            "tls_key": str(folder / f"{name}.key"),
        }
    )
    return {"tls_ca": str(folder / f"{ca}.pem"), **own}


def served(folder: Path, **settings: str) -> ServerProcess:
    server = {**tls(folder, "server"), **settings}
    del server["tls_ca"]
    return streamfactory.serve(memory=True, **server)


def test_tls_protects_reading_and_writing(certificates: Path) -> None:
    with served(certificates) as server:
        assert server.location.startswith("grpc+tls://127.0.0.1:")
        properties = stream(server, "clicks", **tls(certificates))
        with open_sink(properties) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        assert read(properties) == 3
        # At once: no retry makes the certificate a valid one.
        with pytest.raises(NotAuthorized, match="certificate verify failed") as caught:
            read(stream(server, "clicks", **tls(certificates, ca="other-ca")))
        assert caught.value.attempts is None


def test_an_authority_of_the_same_name_with_another_key_is_refused_at_once(
    certificates: Path, tmp_path: Path
) -> None:
    impostor = tmp_path / "impostor"
    impostor.mkdir()
    issue_certificates(impostor)
    with served(certificates) as server:
        with pytest.raises(NotAuthorized) as caught:
            read(stream(server, "clicks", **tls(impostor)))
        assert caught.value.attempts is None


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tls_ca": "junk.pem"}, r"tls\.ca '.*junk\.pem' cannot be used"),
        ({"tls_ca": "pipe"}, "pipe' cannot be read: it is not a regular file"),
        ({"tls_ca": "/dev/zero"}, "zero' cannot be read: it is not a regular file"),
        ({"tls_key": "stranger.key"}, "stranger.key' cannot be used: KEY_VALUES_MISM"),
        ({"token": "a" * 8193}, "or more than 8192 in all"),
        ({"token": "a\nb"}, "token has characters that no header can have"),
        ({"token": "caf\u00e9"}, "token has characters that no header can have"),
    ],
)
def test_a_client_with_a_wrong_file_or_token_is_a_configuration_error(
    given: dict[str, str], message: str, certificates: Path
) -> None:
    (certificates / "junk.pem").write_text("-----BEGIN CERTIFICATE-----\njunk\n")
    os.mkfifo(certificates / "pipe")
    paths = {
        key: str(certificates / value) if key.startswith("tls") else value
        for key, value in given.items()
    }
    names = {**tls(certificates, "client"), **paths}
    properties = {
        "streamType": "flight",
        "stream.flight.location": "grpc+tls://127.0.0.1:1",
        "stream.flight.topic.name": "clicks",
    }
    properties |= prefixed(names)
    with pytest.raises(ConfigError, match=message):
        read(properties)


def test_a_server_with_the_key_of_another_certificate_is_a_configuration_error(
    certificates: Path,
) -> None:
    wrong = "stranger.key' cannot be used: KEY_VALUES_MISMATCH"
    with pytest.raises(ConfigError, match=wrong):
        served(certificates, tls_key=str(certificates / "stranger.key"))


def test_mutual_tls_refuses_unknown_clients(certificates: Path) -> None:
    with served(certificates, tls_client_ca=str(certificates / "ca.pem")) as server:
        properties = stream(server, "clicks", **tls(certificates, "client"))
        with open_sink(properties) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        assert read(properties) == 3
        for name, message in (
            (None, "requires a certificate of the client.* set stream"),
            ("stranger", "does not accept the certificate of the client"),
        ):
            given = tls(certificates, name)
            with pytest.raises(NotAuthorized, match=message) as caught:
                read(stream(server, "clicks", **given))
            assert caught.value.attempts is None


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("name", [None, "stranger"])
def test_servers_that_answer_a_certificate_with_an_alert_refuse_clients_at_once(
    certificates: Path, name: str | None, version: str
) -> None:
    context = server_context(certificates, version)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(certificates / "ca.pem")
    with closing_peer(context) as properties, pytest.raises(NotAuthorized):
        read(properties | prefixed(tls(certificates, name)))


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3", None])
def test_server_that_closes_each_connection_does_not_refuse_the_certificate(
    certificates: Path, version: str | None
) -> None:
    """As a proxy does whose server is down."""
    context = None if version is None else server_context(certificates, version)
    with closing_peer(context) as properties:
        given = {**tls(certificates, "client"), "connection_timeout_millis": "500"}
        with pytest.raises(ConnectionFailed):
            read(properties | prefixed(given))


def test_a_server_that_ends_each_connection_unread_refuses_no_certificate() -> None:
    """The end arrives before the client has sent anything, or while it does."""

    def end(one: socket.socket) -> None:
        one.shutdown(socket.SHUT_WR)
        one.recv(1)

    with closing_peer(None, end) as given:
        location = given["stream.flight.location"]
        assert not refuses_certificate(location, "Socket closed", None)


def test_a_certificate_that_was_removed_since_is_not_what_the_server_refuses() -> None:
    with closing_peer(None) as given:
        location = given["stream.flight.location"]
        assert not refuses_certificate(location, "Socket closed", ("/none", "/none"))


def prefixed(given: dict[str, str]) -> dict[str, str]:
    return {f"stream.flight.{k.replace('_', '.')}": v for k, v in given.items()}


def server_context(folder: Path, version: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    context.set_alpn_protocols(["h2"])
    context.maximum_version = ssl.TLSVersion[version]
    return context


@contextmanager
def closing_peer(
    context: ssl.SSLContext | None,
    answer: Callable[[socket.socket], None] = lambda _: None,
) -> Iterator[dict[str, str]]:
    """A server that closes each connection, after the handshake where it has TLS."""

    def run() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:  # closed at the end
                return
            with one, suppress(OSError):
                if context is not None:
                    context.wrap_socket(one, server_side=True).close()
                answer(one)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        port = listener.getsockname()[1]
        try:
            yield {
                "streamType": "flight",
                "stream.flight.location": f"grpc+tls://127.0.0.1:{port}",
                "stream.flight.topic.name": "clicks",
            }
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_more_calls_than_allowed_are_refused(tmp_path: Path) -> None:
    with streamfactory.serve(memory=True, calls_per_client=3) as server:
        with open_sink(stream(server)) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        client = fl.connect(server.location)
        info = client.get_flight_info(fl.FlightDescriptor.for_path("clicks"))
        ticket = info.endpoints[0].ticket.ticket.decode()
        follow = fl.Ticket(re.sub(r'"end":\d+', '"follow":true', ticket).encode())
        readers = [client.do_get(follow) for _ in range(3)]
        for reader in readers:
            assert reader.read_chunk().data.num_rows == 3
        with pytest.raises(fl.FlightUnavailableError, match="limit of 3"):
            client.do_get(follow).read_chunk()
        for reader in readers:
            reader.cancel()
        client.close()
        deadline = time.monotonic() + 30
        while True:  # the server notices a moment later
            with suppress(ConnectionFailed):
                assert read(stream(server)) == 3
                break
            assert time.monotonic() < deadline


def test_a_batch_larger_than_allowed_is_refused() -> None:
    with streamfactory.serve(memory=True, batch_bytes="100k") as server:
        client = fl.connect(server.location)
        large = pa.table({"id": pa.array(range(1 << 16), pa.int64())})
        writer, _ = client.do_put(fl.FlightDescriptor.for_path("x"), large.schema)
        with pytest.raises(fl.FlightError, match="102400 are allowed"):
            put(writer, large)
        assert next(iter(client.list_flights())).total_records == 0
        client.close()


def test_silent_connections_do_not_block_other_clients(
    flight_server: ServerProcess, clicks: dict[str, str]
) -> None:
    host, port = flight_server.location.removeprefix("grpc://").split(":")
    silent = [socket.create_connection((host, int(port))) for _ in range(200)]
    silent[0].sendall(os.urandom(1000))
    with open_sink(clicks) as sink:
        sink.put(ROWS, writer_id="w", epoch=0)
    assert read(clicks) == 3
    for one in silent:
        one.close()


def hostile(random_: random.Random) -> bytes:
    """A message that is wrong somewhere."""
    names = ["Ticket", "Subscribe", "Stage", "Commit", "Create", "Topics", "OffsetsAt"]
    members = list(getattr(messages, random_.choice(names)).__dataclass_fields__)
    values = [
        "null",
        "-1",
        "1e400",
        '"x"',
        "[]",
        "{}",
        "true",
        str(2**70),
        '"' + "a" * 300 + '"',
    ]
    body = ",".join(
        f'"{name}":{random_.choice(values)}'
        for name in random_.sample(members, random_.randint(0, len(members)))
    )
    data = bytearray(f'{{"v":{random_.choice([1, 1, 1, 2, "null"])},{body}}}'.encode())
    for _ in range(random_.choice([0, 0, 1, 3])):
        data[random_.randrange(len(data))] = random_.randrange(256)
    return bytes(data[: random_.choice([len(data), random_.randrange(len(data) + 1)])])


@pytest.mark.parametrize("count", [1_000])
def test_malformed_messages_are_typed_errors(
    flight_server: ServerProcess, clicks: dict[str, str], count: int
) -> None:
    """The server answers each one, stays up, and stores nothing."""
    random_ = random.Random(17)
    client = fl.connect(flight_server.location)
    actions = [action.type for action in client.list_actions()]
    for name in ("topics", "health", "statistics"):
        actions.remove(name)  # an empty request is a valid one of theirs
    schema = ROWS.schema

    def act(data: bytes) -> None:
        list(client.do_action((random_.choice(actions), data)))

    def get(data: bytes) -> None:
        client.do_get(fl.Ticket(data)).read_all()

    def exchange(data: bytes) -> None:
        writer, reader = client.do_exchange(fl.FlightDescriptor.for_command(data))
        with suppress(pa.ArrowException, OSError):  # the descriptor was refused already
            writer.write_metadata(data)
            writer.done_writing()
        try:
            reader.read_chunk()
        finally:
            with suppress(fl.FlightError, pa.ArrowException, OSError):
                writer.close()

    def stage(data: bytes) -> None:
        writer, _ = client.do_put(fl.FlightDescriptor.for_command(data), schema)
        writer.write_with_metadata(ROWS.to_batches()[0], data)
        writer.close()

    def info(data: bytes) -> None:
        client.get_flight_info(
            fl.FlightDescriptor.for_path(data[:100].decode(errors="replace"))
        )

    for _ in range(count):
        data = hostile(random_)
        call = random_.choice([act, act, get, exchange, stage, info])
        with pytest.raises(
            (fl.FlightError, StopIteration, pa.ArrowException)
        ) as caught:
            call(data)
        if isinstance(caught.value, fl.FlightError):
            assert b'"code":"' in (caught.value.extra_info or b""), (call, data)
            assert b"untranslated" not in caught.value.extra_info, (call, data)
    client.close()
    with open_sink(clicks) as sink:
        sink.put(ROWS, writer_id="w", epoch=0)
    assert read(clicks) == 3


def test_junk_and_half_handshakes_of_tls_delay_no_other_client(
    certificates: Path,
) -> None:
    chance = random.Random(7)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    sent = [
        b"",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),  # without TLS
        hello,
        hello + bytes(512),
        b"\x16\x03\x03\xff\xff" + bytes(1000),
        *(chance.randbytes(chance.randrange(1, 400)) for _ in range(20)),
    ]
    ca = str(certificates / "ca.pem")
    with served(certificates, tls_client_ca=ca) as server, ExitStack() as stack:
        host, port = server.location.removeprefix("grpc+tls://").split(":")
        for data in sent * 6:
            one = socket.create_connection((host, int(port)), timeout=10)
            stack.enter_context(one)
            with suppress(ConnectionError):
                one.sendall(data)
        begin = time.monotonic()
        properties = stream(server, "clicks", **tls(certificates, "client"))
        with open_sink(properties) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        assert read(properties) == 3
        assert time.monotonic() - begin < 60
