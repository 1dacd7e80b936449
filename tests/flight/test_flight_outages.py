"""Clients of a server that is away: calls wait for it, and errors tell what to do."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.certificates import issue_certificates
from tests.flight.conftest import stream
from tests.proving.ports import free_port

import streamfactory
from streamfactory.backends.flight.client.connection import Connection
from streamfactory.backends.flight.client.remote import RemoteLogStore
from streamfactory.backends.flight.protocol.messages import Topic
from streamfactory.spi import (
    ClosedError,
    ConnectionFailed,
    NotAuthorized,
    TopicNotFound,
)
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEADLINE = 60.0
ROWS = pa.table({"n": [1, 2, 3]})
CONNECTION_TIMEOUT = "connection.timeout.millis"


def absent(**more: str) -> dict[str, str]:
    """A stream on a server that does not run."""
    return {
        "streamType": "flight",
        "stream.flight.location": f"grpc://127.0.0.1:{free_port()}",
        "stream.flight.topic.name": "clicks",
        **{f"stream.flight.{key}": value for key, value in more.items()},
    }


class Background:
    """A call in a thread of its own."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.error: BaseException | None = None
        self.result: object = None
        self._function = function
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self, timeout: float = DEADLINE) -> None:
        self._thread.join(timeout)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error


def test_writers_and_readers_wait_for_a_server_that_restarts(folder: str) -> None:
    address = f"127.0.0.1:{free_port()}"

    def write(epoch: int) -> None:
        with open_sink(properties) as sink:
            sink.put(ROWS, writer_id="w", epoch=epoch)

    def read() -> int:
        with streamfactory.open(properties) as opened:
            found: int = opened.to_reader().read_all().num_rows
        return found

    with streamfactory.serve(path=folder, address=address) as server:
        properties = stream(server, connection_timeout_millis="60000")
        write(0)
        reader = streamfactory.open(properties, options={"startingOffsets": "earliest"})
        assert reader.next_batch(DEADLINE) is not None
        os.kill(server.pid, signal.SIGKILL)
    with closing(reader):
        calls = [
            Background(call)
            for call in (lambda: write(1), read, lambda: reader.next_batch(DEADLINE))
        ]
        time.sleep(2)  # longer than the default attempts of retry.max.attempts take
        with streamfactory.serve(path=folder, address=address):
            for call in calls:
                call.join()
                assert call.error is None
            assert read() == 6


def test_upload_that_a_killed_server_breaks_names_the_server(folder: str) -> None:
    with (
        streamfactory.serve(path=folder) as server,
        open_sink(stream(server)) as sink,
    ):
        sink.put(ROWS, writer_id="w", epoch=0)
        many = pa.record_batch({"n": list(range(100_000))})
        with closing(sink.writer(many.schema, writer_id="w", epoch=1)) as writer:

            def write_for(seconds: float) -> None:
                deadline = time.monotonic() + seconds
                while time.monotonic() < deadline:
                    writer.write(many)

            writer.write(many)
            os.kill(server.pid, signal.SIGKILL)
            with pytest.raises(ConnectionFailed) as caught:
                write_for(DEADLINE)
    assert caught.value.what.startswith(f"the call to {server.location} failed: ")
    assert caught.value.remedy == "try again once the server runs"


def test_call_that_waits_for_a_server_ends_when_the_sink_is_closed() -> None:
    sink = open_sink(absent())
    waiting = Background(lambda: sink.put(ROWS, writer_id="w", epoch=0))
    time.sleep(1)  # it tries again by now
    start = time.monotonic()
    sink.close()
    waiting.join()
    assert time.monotonic() - start < 20  # the timeout is 30 s
    assert isinstance(waiting.error, ClosedError)


def test_call_that_begins_as_the_connection_is_closed_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = Connection(["grpc://127.0.0.1:1"], 30, 30, lambda: ({}, []))
    client = connection.client()
    monkeypatch.setattr(Connection, "client", lambda _: client)
    connection.close()
    with pytest.raises(ClosedError, match=r"127\.0\.0\.1:1 is closed"):
        connection.call("describe", Topic("clicks"), Topic)


def test_server_that_does_not_run_is_named_with_a_remedy() -> None:
    properties = absent(**{CONNECTION_TIMEOUT: "600"})
    location = properties["stream.flight.location"]
    start = time.monotonic()
    with pytest.raises(ConnectionFailed) as caught, open_sink(properties) as sink:
        sink.put(ROWS, writer_id="w", epoch=0)
    assert time.monotonic() - start >= 0.6
    assert (caught.value.attempts or 0) > 1  # all of them, not only of the last call
    assert caught.value.what.endswith(f"cannot reach {location}: Connection refused")
    assert caught.value.remedy == (
        "start the server, or correct stream.flight.location "
        "(grpc+tls:// where the server has TLS)"
    )


def test_several_servers_are_tried_before_a_pause(folder: str) -> None:
    with (
        streamfactory.serve(path=folder) as server,
        closing(
            Connection(
                [f"grpc://127.0.0.1:{free_port()}", server.location],
                30,
                30,
                lambda: ({}, []),
            )
        ) as one,
    ):
        assert RemoteLogStore(one).names() == ()
        assert one.location == server.location


def test_server_with_tls_is_not_waited_for_without_it(tmp_path: Path) -> None:
    issue_certificates(tmp_path)
    with streamfactory.serve(
        memory=True,
        tls_certificate=str(tmp_path / "server.pem"),
        tls_key=str(tmp_path / "server.key"),
    ) as server:
        location = server.location.replace("grpc+tls:", "grpc:")
        properties = stream(server) | {
            "stream.flight.location": location,
            "stream.flight.connection.timeout.millis": "3000",
        }
        with pytest.raises(ConnectionFailed) as caught, open_sink(properties) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
    assert f"cannot reach {location}: " in caught.value.what
    assert "grpc+tls://" in str(caught.value.remedy)


def test_unknown_token_is_refused_in_the_servers_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALICE", "alice-has-a-long-token")
    access = tmp_path / "access.toml"
    access.write_text('[tokens]\nalice = "${env:ALICE}"\n')
    with (
        streamfactory.serve(memory=True, access_file=str(access)) as server,
        pytest.raises(NotAuthorized) as caught,
        open_sink(stream(server, token="another-token-of-16")) as sink,
    ):
        sink.put(ROWS, writer_id="w", epoch=0)
    assert caught.value.what == "the bearer token is unknown"
    assert caught.value.remedy == (
        "set or correct stream.flight.token, or ask the operator of the server"
    )


@pytest.mark.parametrize("kind", ["flight", "file", "memory"])
def test_topic_that_does_not_exist_has_a_remedy(
    kind: str, clicks: dict[str, str], folder: str
) -> None:
    name = clicks["stream.flight.topic.name"]
    properties = {
        "flight": clicks,
        "file": {"stream.file.path": folder},
        "memory": {},
    }[kind]
    properties |= {"streamType": kind, f"stream.{kind}.topic.name": name}
    with (
        pytest.raises(TopicNotFound) as caught,
        streamfactory.open(properties) as opened,
    ):
        opened.to_reader()
    assert caught.value.remedy == (
        "publish to it, or create it with `streamfactory topics create`"
    )
