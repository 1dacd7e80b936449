"""What clients see of errors: never the server's folder, nor topics of others."""

from __future__ import annotations

import os
import resource
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.conftest import stream

import streamfactory
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import (
    Commit,
    Create,
    Facts,
    Sealed,
    Subscribe,
    Ticket,
    Topic,
    Verified,
)
from streamfactory.backends.flight.protocol.schemas import encode_schema
from streamfactory.spi import StorageFailed, TopicNotFound
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.wiring.serving.process import ServerProcess

ROWS = pa.table({"id": pa.array(range(20_000), pa.int64())})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    return tmp_path / "link"


@pytest.fixture
def server(folder: Path) -> Iterator[ServerProcess]:
    with streamfactory.serve(path=str(folder)) as server:
        with open_sink(stream(server)) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[fl.FlightClient]:
    with closing(fl.connect(server.location)) as client:
        yield client


def calls(client: fl.FlightClient, topic: str) -> dict[str, Callable[[], object]]:
    """Calls of every kind that concern a topic."""
    path = fl.FlightDescriptor.for_path(topic)
    command = fl.FlightDescriptor.for_command(encode(Subscribe(topic, 0)))

    def act(name: str) -> list[bytes]:
        body = encode(Topic(topic))
        return [r.body.to_pybytes() for r in client.do_action((name, body))]

    def exchange() -> None:
        writer, reader = client.do_exchange(command)
        writer.done_writing()
        reader.read_chunk()

    return {
        "info": lambda: client.get_flight_info(path),
        "schema": lambda: client.get_schema(path),
        "get": lambda: client.do_get(fl.Ticket(encode(Ticket(topic, 0)))).read_all(),
        "exchange": exchange,
        **{
            name: partial(act, name)
            for name in ("describe", "facts", "verify", "compact", "delete")
        },
    }


def shown(error: BaseException) -> str:
    return f"{error} {bytes(getattr(error, 'extra_info', b'')).decode()}"


def test_an_unknown_topic_is_answered_with_the_topics_and_without_the_folder(
    client: fl.FlightClient, server: ServerProcess, folder: Path
) -> None:
    for name, call in calls(client, "nowhere").items():
        with pytest.raises((fl.FlightError, pa.ArrowException)) as caught:
            call()
        text = shown(caught.value)
        assert "topic 'nowhere' does not exist; existing topics: clicks" in text, name
        for place in (folder.parent, Path(streamfactory.__file__).parent):
            assert str(place) not in text, name
    with (
        pytest.raises(TopicNotFound) as raised,
        streamfactory.open(stream(server, "nowhere")) as opened,
    ):
        opened.to_reader()
    assert "existing topics: clicks" in str(raised.value)
    assert str(folder.parent) not in str(raised.value)


def test_a_damaged_topic_is_answered_without_the_folder(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        streamfactory.serve(path=str(folder)) as server,
        closing(fl.connect(server.location)) as client,
    ):
        with open_sink(stream(server)) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        for path in [*folder.glob("*/*/log/*"), *folder.glob("*/*/data/*")]:
            os.truncate(path, path.stat().st_size // 2)
        failed = set()
        for name, call in calls(client, "clicks").items():
            try:
                text = str(call())
            except fl.FlightError as error:
                failed.add(name)
                text = shown(error)
            except StopIteration:
                text = ""
            assert str(folder.parent) not in text, name
    assert "get" in failed
    assert str(folder.parent) in capfd.readouterr().err  # the operator sees the place


def test_mistakes_of_clients_do_not_fill_the_log_of_the_server(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        streamfactory.serve(path=str(folder)) as server,
        closing(fl.connect(server.location)) as client,
    ):
        with open_sink(stream(server)) as sink:
            sink.put(ROWS, writer_id="w", epoch=0)
        for files in ((5,), ({"name": "x"},), ({"inline": 5},), ({"inline": "A"},)):
            commit = Commit(
                topic="clicks",
                writer=None,
                instance="i",
                epoch=0,
                rows=0,
                staged=(Sealed("a", files),),
            )
            with pytest.raises(fl.FlightError) as caught:
                list(client.do_action(("commit", encode(commit))))
            assert b"untranslated" not in caught.value.extra_info
    assert not capfd.readouterr().err


def test_facts_and_findings_do_not_name_the_folder(
    client: fl.FlightClient, folder: Path
) -> None:
    (found,) = client.do_action(("facts", encode(Topic("clicks"))))
    facts = decode(found.body.to_pybytes(), Facts).facts
    assert facts["segments"] == 1
    assert "location" not in facts
    for path in folder.glob("*/*/data/*"):
        os.truncate(path, path.stat().st_size // 2)
    (found,) = client.do_action(("verify", encode(Topic("clicks"))))
    verified = decode(found.body.to_pybytes(), Verified)
    assert verified.problems
    assert not any(str(folder.parent) in text for text in verified.problems)


def test_a_write_that_the_disk_refuses_is_typed_and_leaves_nothing(
    server: ServerProcess, folder: Path
) -> None:
    unlimited = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    with open_sink(stream(server)) as sink:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (50_000, unlimited[1]))
        with pytest.raises(StorageFailed) as caught:
            sink.put(ROWS, writer_id="w", epoch=1)
        assert str(folder.parent) not in str(caught.value)
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, unlimited)
        with streamfactory.open(stream(server)) as opened:
            assert opened.to_reader().read_all().num_rows == ROWS.num_rows
        sink.put(ROWS, writer_id="w", epoch=1)
    with streamfactory.open(stream(server)) as opened:
        assert opened.to_reader().read_all().num_rows == 2 * ROWS.num_rows


def test_topics_of_other_users_are_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {"ANN": "ann-has-a-long-token", "BOB": "bob-has-a-long-token"}
    for name, token in tokens.items():
        monkeypatch.setenv(name, token)
    access = tmp_path / "access.toml"
    access.write_text(
        '[tokens]\nann = "${env:ANN}"\nbob = "${env:BOB}"\n'
        '[topics."*"]\nread = ["ann"]\nwrite = ["ann"]\n'
        '[topics."public*"]\nread = ["bob"]\n'
    )
    options = {
        name: fl.FlightCallOptions(
            headers=[(b"authorization", b"Bearer " + token.encode())]
        )
        for name, token in tokens.items()
    }
    with (
        streamfactory.serve(memory=True, access_file=str(access)) as server,
        closing(fl.connect(server.location)) as client,
    ):
        for topic in ("secret", "public"):
            request = encode(Create(topic, encode_schema(ROWS.schema), 1))
            list(client.do_action(("create", request), options["ANN"]))
        request = encode(Topic("public-2"))
        with pytest.raises(fl.FlightError) as caught:
            list(client.do_action(("describe", request), options["BOB"]))
        assert "existing topics: public" in shown(caught.value)
        assert "secret" not in shown(caught.value)
