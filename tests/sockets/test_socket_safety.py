"""Who may come, who is believed, and how much is taken from them."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import stat
import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.certificates import KEY_PASSWORD, certificates
from tests.sockets.peers import (
    PATIENCE,
    Background,
    Writer,
    dialled,
    is_cut,
    numbers_of,
    opened,
    properties_of,
    rows,
    sink_of,
    source_of,
    stream_of,
)

from streamfactory.backends.socket.connections import Connection
from streamfactory.backends.socket.options import Settings
from streamfactory.backends.socket.ports import Port
from streamfactory.spi import (
    ConfigError,
    ConnectionFailed,
    CorruptData,
    Failed,
    Finished,
    MessageTooLarge,
    NotAuthorized,
    Partition,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from streamfactory.wiring.reading.reader import Reader
    from streamfactory.wiring.reading.source import Source

PARTITION_0 = Partition("rows", 0)
IMPATIENT = {"x_schema": "n bigint", "connection__timeout__millis": "300"}
TLS = certificates()


# --- addresses ------------------------------------------------------------------------

ELSEWHERE = (
    "is not an address of this machine alone; set tls=true, or allow.plaintext=true "
    "[argument]"
)
BOTH = "requires both tls.certificate and tls.key, or neither [argument]"
ALONE = "requires listen: a connecting side has only one peer [argument]"
NO_PLACE = "is not supported on a Unix socket; remove it [argument]"
NEEDED = "requires tls.certificate and tls.key with listen [argument]"


@pytest.mark.parametrize(
    ("options", "complaints"),
    [
        ({}, ["stream.socket.listen: or connect is required; set one of them"]),
        (
            {"listen": "127.0.0.1:1", "connect": "127.0.0.1:1"},
            ["stream.socket.listen: excludes connect; set one of them [argument]"],
        ),
        (
            {"listen": "0.0.0.0:9700"},
            [f"stream.socket.listen: '0.0.0.0:9700' {ELSEWHERE}"],
        ),
        (
            {"connect": "example.org:9700-9701"},
            [f"stream.socket.connect: 'example.org:9700-9701' {ELSEWHERE}"],
        ),
        (
            {"connect": "127.0.0.1:1", "writers": "2", "tls": "true", "tls__key": "k"},
            [f"stream.socket.tls: {BOTH}", f"stream.socket.writers: {ALONE}"],
        ),
        (
            {"listen": "unix:/tmp/s", "tls": "true"},
            [f"stream.socket.tls: {NO_PLACE}", f"stream.socket.tls: {NEEDED}"],
        ),
    ],
)
def test_options_that_do_not_hold_together_are_reported_at_once(
    options: dict[str, str], complaints: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        source_of(**options)
    assert [str(problem) for problem in caught.value.problems] == complaints


@pytest.mark.parametrize(
    ("address", "complaint"),
    [
        (
            "nonsense",
            "is not an address: write host:port, host:first-last or unix:/path",
        ),
        ("host:0", "has a port outside of 1 to 65535"),
        ("host:65535-65536", "has a port outside of 1 to 65535"),
        ("host:2-1", "is a range that ends before its start"),
        ("host:1-5000", "is a range of more than 1000 partitions"),
        ("host:99999999999", "has a number that is too long"),
        ("unix:relative", "has no absolute path after unix:"),
        ("unix:/" + "x" * 100, "has a path of more than 100 bytes"),
        ("unix:/a{5-2}", "is a range that ends before its start"),
    ],
)
def test_bad_addresses_are_refused_with_a_message(address: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        source_of(listen=address)
    [problem] = caught.value.problems
    assert problem.what.endswith(complaint)


def test_numbers_of_addresses_may_have_six_bytes_or_a_name(port: int) -> None:
    for address in (f"[::1]:{port}", f"localhost:{port}", f"127.1.2.3:{port}"):
        source_of(listen=address).close()


def test_remote_plain_text_needs_an_explicit_option(port: int) -> None:
    reading = Background(
        lambda: numbers_of(opened(listen=f"0.0.0.0:{port}", allow__plaintext="true"))
    )
    writer = Writer(port)
    writer.send(1)
    writer.finish()
    assert reading.result() == [1]


def test_an_address_that_is_taken_is_reported(port: int, address: str) -> None:
    with (
        socket.create_server(("127.0.0.1", port)),
        closing(source_of(listen=address, **IMPATIENT)) as source,
        closing(source.reader(PARTITION_0)) as reader,
        pytest.raises(ConnectionFailed) as caught,
    ):
        reader.fetch(0, timeout=PATIENCE)
    assert f"cannot listen at {address}: Address already in use" in str(caught.value)


# --- Unix sockets ---------------------------------------------------------------------


def test_a_unix_socket_is_its_owners_alone_and_goes_with_its_reader(
    folder: Path,
) -> None:
    path = folder / "s"
    with (
        closing(source_of(listen=f"unix:{path}", x_schema="n bigint")) as source,
        closing(source.reader(PARTITION_0)) as reader,
    ):
        reader.fetch(0, timeout=0)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(folder.iterdir()) == []


def test_an_unused_socket_path_is_replaced(folder: Path) -> None:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    with (
        closing(source_of(listen=f"unix:{path}", x_schema="n bigint")) as source,
        closing(source.reader(PARTITION_0)) as reader,
        socket.socket(socket.AF_UNIX) as writer,
    ):
        reader.fetch(0, timeout=0)
        writer.connect(str(path))
        writer.sendall(stream_of(rows(1)))
        assert numbers_of([reader.fetch(0, timeout=PATIENCE)]) == [1]


@pytest.mark.parametrize("what", ["a file", "a live socket"])
def test_a_path_that_is_taken_is_left_alone(folder: Path, what: str) -> None:
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as live:
        if what == "a file":
            path.write_text("precious")
        else:
            live.bind(str(path))
            live.listen()
        with closing(source_of(listen=f"unix:{path}", **IMPATIENT)) as source:
            reader = source.reader(PARTITION_0)
            with pytest.raises(ConnectionFailed) as caught:
                reader.fetch(0, timeout=PATIENCE)
            reader.close()
    assert "Address already in use" in str(caught.value)
    assert path.exists()


@pytest.mark.parametrize("medium", ["tcp", "unix"])
def test_accepted_connections_have_the_configured_buffers(
    folder: Path, address: str, medium: str
) -> None:
    where = address if medium == "tcp" else f"unix:{folder}/s"
    definition = from_mapping(properties_of(listen=where, buffer__bytes="32K"))
    config = configure(definition, default_manager(), use="write").config
    port = Port(config["listen"][0], Settings(config), config)
    with closing(port), closing(socket.socket(socket.AF_UNIX)) as peer:
        port.open()
        if medium == "tcp":
            dialled(port.address.port)
        else:
            peer.connect(port.address.path)
        accepted = port.accept()
        assert accepted is not None
        with closing(accepted), socket.socket(fileno=os.dup(accepted.fileno())) as one:
            sizes = [
                one.getsockopt(socket.SOL_SOCKET, option)
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
            ]
    # Linux doubles them, for its own bookkeeping.
    assert max(sizes) <= 2 * 32 * 1024


@pytest.mark.parametrize("way", ["listen", "connect"])
def test_processes_of_other_users_are_refused(
    folder: Path,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = folder / "s"
    me = os.geteuid()
    options = {way: f"unix:{path}", "x_schema": "n bigint"}
    with (
        socket.socket(socket.AF_UNIX) as peer,
        closing(source_of(**options)) as source,
        closing(source.reader(PARTITION_0)) as reader,
        caplog.at_level(logging.WARNING),
    ):
        if way == "listen":
            reader.fetch(0, timeout=0)
            peer.connect(str(path))
        else:
            peer.bind(str(path))
            peer.listen()
        # A fault: the peer is the same process, so it is this side that is another.
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
        said = f"unix:{path}: the peer runs as user {me}, not {me + 1}"
        if way == "listen":
            assert reader.fetch(0, timeout=0.2).num_rows == 0
            assert said in caplog.text
            assert is_cut(peer)
        else:
            with pytest.raises(NotAuthorized) as caught:
                reader.fetch(0, timeout=PATIENCE)
            assert said in str(caught.value)


# --- TLS ------------------------------------------------------------------------------

SERVER = {
    "tls": "true",
    "tls__certificate": str(TLS / "server.pem"),
    "tls__key": str(TLS / "server.key"),
}
MUTUAL = {**SERVER, "tls__ca": str(TLS / "ca.pem")}
CLIENT = {"tls": "true", "tls__ca": str(TLS / "ca.pem")}
NAMED = {
    **CLIENT,
    "tls__certificate": str(TLS / "client.pem"),
    "tls__key": str(TLS / "client.key"),
}
STRANGER = {
    **CLIENT,
    "tls__certificate": str(TLS / "stranger.pem"),
    "tls__key": str(TLS / "stranger.key"),
}
MANY = rows(*range(300_000))


def collect(options: dict[str, str]) -> list[int]:
    with opened(**options) as stream:
        return numbers_of(stream)


@pytest.mark.parametrize(("listening", "coming"), [(SERVER, CLIENT), (MUTUAL, NAMED)])
@pytest.mark.parametrize("reader_listens", [True, False])
def test_rows_go_over_tls_either_way_round(
    address: str,
    listening: dict[str, str],
    coming: dict[str, str],
    *,
    reader_listens: bool,
) -> None:
    one, other = {"listen": address, **listening}, {"connect": address, **coming}
    read, write = (one, other) if reader_listens else (other, one)
    reading = Background(lambda: collect(read))
    with sink_of(**write) as sink:
        sink.put(rows(1))
        sink.put(MANY)
        assert sink.end_stream(Finished()) is None  # the reader has confirmed it
    assert reading.result() == [1, *range(300_000)]


@pytest.mark.parametrize("coming", [CLIENT, STRANGER])
def test_clients_without_a_certificate_take_no_place(
    port: int, address: str, coming: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    reading = Background(lambda: collect({"listen": address, **MUTUAL}))
    dialled(port).close()

    def write() -> None:
        with sink_of(connect=address, **coming) as sink:
            sink.put(rows(1))
            sink.end_stream(Finished())

    with pytest.raises(NotAuthorized) as caught:
        write()
    assert "the peer rejected the TLS connection: " in str(caught.value)
    with sink_of(connect=address, **NAMED) as sink:
        sink.put(rows(2))
        sink.end_stream(Finished())
    assert reading.result() == [2]
    assert "the TLS handshake failed" in caplog.text


def test_a_refusal_that_comes_with_the_last_byte_is_heard() -> None:
    here, there = (
        Connection(one, "pair", connected=True) for one in socket.socketpair()
    )
    for sock, files in ((here, STRANGER), (there, MUTUAL)):
        purpose = ssl.Purpose.SERVER_AUTH if sock is here else ssl.Purpose.CLIENT_AUTH
        context = ssl.create_default_context(purpose, cafile=files["tls__ca"])
        context.load_cert_chain(files["tls__certificate"], files["tls__key"])
        if sock is there:
            context.verify_mode = ssl.CERT_REQUIRED
        sock.use_tls(context, "127.0.0.1" if sock is here else None)
    with closing(here), closing(there):
        here._socket.setblocking(False)
        there._socket.setblocking(False)
        with suppress(BlockingIOError):
            here.advance()
        with suppress(BlockingIOError):
            there.advance()
        here.advance()  # under TLS 1.3 this side is content by now
        with pytest.raises(NotAuthorized) as refused:
            there.advance()
        assert "CERTIFICATE_VERIFY_FAILED" in str(refused.value)
        with pytest.raises(NotAuthorized) as caught:
            here.end_sending()
    assert "the peer rejected the TLS connection: " in str(caught.value)


def test_a_server_that_is_another_program_is_refused(address: str) -> None:
    server = {
        "tls": "true",
        "tls__certificate": str(TLS / "stranger.pem"),
        "tls__key": str(TLS / "stranger.key"),
    }
    with closing(source_of(listen=address, **server, x_schema="n bigint")) as source:
        reader = source.reader(PARTITION_0)
        listening = Background(lambda: reader.fetch(0, timeout=2.0))
        with (
            sink_of(connect=address, **CLIENT) as sink,
            pytest.raises(NotAuthorized) as caught,
        ):
            sink.put(rows(1))
        assert "the TLS handshake failed: CERTIFICATE_VERIFY_FAILED" in str(
            caught.value
        )
        listening.result()
        reader.close()


def test_the_name_in_a_certificate_has_to_be_right(address: str) -> None:
    with closing(source_of(listen=address, **SERVER, x_schema="n bigint")) as source:
        reader = source.reader(PARTITION_0)
        listening = Background(lambda: reader.fetch(0, timeout=2.0))
        wrong = {**CLIENT, "tls__hostname": "elsewhere.example"}
        with (
            sink_of(connect=address, **wrong) as sink,
            pytest.raises(NotAuthorized) as caught,
        ):
            sink.put(rows(1))
        assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value)
        listening.result()
        reader.close()


def test_the_password_of_a_key_is_resolved_late_and_shown_nowhere(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = {
        **SERVER,
        "tls__key": str(TLS / "server.locked.key"),
        "tls__key__password": "${env:KEY_PASSWORD}",
    }
    monkeypatch.setenv("KEY_PASSWORD", "wrong-horse")
    with closing(source_of(listen=address, **locked, x_schema="n bigint")) as source:
        reader = source.reader(PARTITION_0)
        with pytest.raises(ConfigError) as caught:
            reader.fetch(0, timeout=PATIENCE)
        assert "the files of tls.certificate cannot be used" in str(caught.value)
        assert "wrong-horse" not in str(caught.value) + repr(source.config)
        monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
        assert reader.fetch(0, timeout=0.1).num_rows == 0
        reader.close()


def test_a_stalled_handshake_does_not_block_other_clients(
    port: int, address: str
) -> None:
    reading = Background(
        lambda: collect(
            {
                "listen": address,
                **SERVER,
                "connection__timeout__millis": "1s",
                "x_schema": "n bigint",
            }
        )
    )
    silent = dialled(port)
    with sink_of(connect=address, **CLIENT) as sink:
        sink.put(rows(1))
        sink.end_stream(Finished())
    assert is_cut(silent)
    assert reading.result() == [1]


def test_plain_bytes_at_a_tls_port_are_refused(port: int, address: str) -> None:
    reading = Background(lambda: collect({"listen": address, **SERVER}))
    plain = dialled(port)
    plain.sendall(stream_of(rows(1)))
    with suppress(ConnectionError):
        while plain.recv(4096):
            continue
    with sink_of(connect=address, **CLIENT) as sink:
        sink.put(rows(2))
        sink.end_stream(Finished())
    assert reading.result() == [2]


def test_plain_ssl_of_the_library_is_understood(port: int, address: str) -> None:
    reading = Background(lambda: collect({"listen": address, **SERVER}))
    context = ssl.create_default_context(cafile=str(TLS / "ca.pem"))
    with context.wrap_socket(dialled(port), server_hostname="localhost") as writer:
        writer.sendall(stream_of(rows(1), MANY))
    assert reading.result() == [1, *range(300_000)]


# --- limits ---------------------------------------------------------------------------


@pytest.fixture
def reader_of(address: str) -> Iterator[Callable[..., Reader]]:
    """Makes a reader that listens; all are closed in the end."""
    made: list[Reader | Source] = []

    def make(**options: str) -> Reader:
        source = source_of(listen=address, x_schema="n bigint", **options)
        reader = source.reader(PARTITION_0)
        made.extend((source, reader))
        reader.fetch(0, timeout=0)  # which listens
        return reader

    yield make
    for one in reversed(made):
        one.close()


def end_of(reader: Reader) -> Any:
    """The end, or what is raised."""
    at = 0
    while True:
        batch = reader.fetch(at, timeout=PATIENCE)
        at = batch.next_offset
        if batch.end is not None:
            return batch.end


def words(*texts: str) -> pa.RecordBatch:
    return pa.record_batch({"w": pa.array(texts).dictionary_encode()})


LONG = rows(*range(100_000))
ZEROES = rows(*[0] * 1_000_000)
WIDE = pa.schema([pa.field(f"column {n}", pa.int64()) for n in range(200)])
BIG_WORDS = words("x" * 10_000, "y" * 10_000)


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        pytest.param(
            stream_of(LONG),
            {"max__message__bytes": "100K"},
            "the size of a message is 800000 bytes, max.message.bytes is 102400",
            id="message",
        ),
        pytest.param(
            stream_of(ZEROES, compression="zstd"),
            {"max__message__bytes": "1M"},
            "the size of a decompressed message is 8000000 bytes, max.message.bytes "
            "is 1048576",
            id="bomb",
        ),
        pytest.param(
            stream_of(schema=WIDE),
            {"max__metadata__bytes": "4K"},
            f"the size of a header is {len(WIDE.serialize()) - 8} bytes, "
            "max.metadata.bytes "
            "is 4096",
            id="metadata",
        ),
        pytest.param(
            stream_of(BIG_WORDS, schema=BIG_WORDS.schema),
            {"max__dictionary__bytes": "16K"},
            "the size of dictionaries is 20016 bytes, max.dictionary.bytes is 16384",
            id="dictionary",
        ),
    ],
)
def test_what_is_over_a_limit_is_refused(
    port: int,
    reader_of: Callable[..., Reader],
    data: bytes,
    options: dict[str, str],
    said: str,
) -> None:
    reader = reader_of(**options)
    writer = dialled(port)
    sending = Background(lambda: writer.sendall(data))
    with pytest.raises(MessageTooLarge) as caught:
        end_of(reader)
    option = next(iter(options)).replace("__", ".")
    assert str(caught.value) == (
        f"{said} (stream 'socket:rows', partition rows-0, offset 0); increase "
        f"{option}, "
        "or write smaller batches"
    )
    assert is_cut(writer)
    until_ended(sending)


def until_ended(sending: Background) -> None:
    """A writer that was cut off may have been in the middle."""
    try:
        sending.result()
    except ConnectionError:
        return


def test_dictionaries_that_are_replaced_are_not_added_up(
    port: int, address: str
) -> None:
    batches = [words(f"{n}" * 5_000) for n in range(10)]

    def read() -> int:
        with opened(listen=address, max__dictionary__bytes="8K") as stream:
            return sum(batch.num_rows for batch in stream)

    reading = Background(read)
    dialled(port).sendall(stream_of(*batches, schema=batches[0].schema))
    assert reading.result() == 10


def test_a_length_that_lies_takes_no_memory(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(max__message__bytes="1M")
    before = pa.total_allocated_bytes()
    # The whole message is announced, and never comes.
    dialled(port).sendall(stream_of(rows(*range(125_000)))[:1000])
    assert reader.fetch(0, timeout=0.3).num_rows == 0
    assert pa.total_allocated_bytes() - before <= 1_100_000


def test_a_message_that_drips_is_given_up(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(stall__timeout__millis="300")
    writer = Writer(port).socket
    pause = threading.Event()

    def drip() -> None:
        with suppress(ConnectionError):
            for byte in rows(1).serialize().to_pybytes():
                writer.sendall(bytes([byte]))
                pause.wait(0.02)

    dripping = Background(drip)
    end = end_of(reader)
    assert isinstance(end, Failed)
    assert end.cause.endswith(
        "a message is incomplete after 300 ms of waiting (stall.timeout.millis)"
    )
    dripping.result()


def test_a_pause_between_messages_is_no_drip(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of(stall__timeout__millis="100")
    writer = Writer(port)
    assert reader.fetch(0, timeout=0.5).end is None
    writer.send(1)
    assert numbers_of([reader.fetch(0, timeout=PATIENCE)]) == [1]
    assert reader.fetch(1, timeout=0.5).end is None


def test_what_is_no_arrow_is_reported_so(
    port: int, reader_of: Callable[..., Reader]
) -> None:
    reader = reader_of()
    writer = dialled(port)
    writer.sendall(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(CorruptData) as caught:
        end_of(reader)
    assert str(caught.value) == (
        "received b'GET / HT' instead of an Arrow message (stream 'socket:rows', "
        "partition rows-0, offset 0); check that the peer sends an Arrow stream and "
        "uses the same TLS setting"
    )
    assert is_cut(writer)
