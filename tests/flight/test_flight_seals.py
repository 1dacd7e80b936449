"""A commit names attempts: what was staged is what the server has sealed."""

from __future__ import annotations

import json
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.hostile import (
    HostileClient,
    connected,
    failure,
    inline_attempt,
    message,
    stream_of,
)

import streamfactory
from streamfactory.spi import MisuseError, StorageFailed, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.serving.process import ServerProcess

ROWS = pa.record_batch({"id": pa.array([1, 2, 3])})


@pytest.fixture(scope="module", params=["memory", "folder"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder = str(tmp_path_factory.mktemp("topics"))
    place = {"memory": True} if request.param == "memory" else {"path": folder}
    with streamfactory.serve(staged_bytes_per_client="1M", **place) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[HostileClient]:
    with connected(server.location) as client:
        yield client


@pytest.fixture
def topic(client: HostileClient) -> str:
    name = uuid.uuid4().hex
    client.create(name, ROWS.schema)
    return name


LIES: list[Any] = [
    [[0, 0, [5], 24]],
    [[0, 0, [3, 3], 24]],
    [[0, 7, [3], 24]],
    [[0, 0, [2], 24]],
    [[0, 0, [3], 24], [0, 0, [3], 24]],
    [[999, 0, [3], 24]],
    [[0, 0, [3], 1 << 40]],
    [],
]


@pytest.mark.parametrize("runs", LIES)
def test_what_a_client_says_of_its_upload_is_not_believed(
    client: HostileClient, topic: str, runs: list[Any]
) -> None:
    sealed = client.upload(topic, ROWS)
    named = [{"name": "x", "bytes": 1, "full": False}, *sealed.get("files", ())]
    lie = {"attempt": sealed["attempt"], "files": [{**named[-1], "runs": runs}]}
    client.commit(topic, lie)
    assert client.read(topic).to_pydict() == ROWS.to_pydict()
    assert client.act("verify", topic=topic) == {"v": 1, "rows": 3}
    found = client.act("describe", topic=topic)["partitions"]
    assert found == [{"id": 0, "earliest": 0, "latest": 3}]


def test_attempts_are_committed_once_by_whoever_names_them(
    client: HostileClient, topic: str
) -> None:
    sealed = client.upload(topic, ROWS)
    client.commit(topic, sealed, writer="w", epoch=1)
    held = client.commit(topic, sealed, writer="w", epoch=1)["held"]
    assert held["epoch"] == 1
    for attempt in (sealed, {"attempt": "unknown", "files": sealed.get("files", [])}):
        with pytest.raises(fl.FlightServerError) as caught:
            client.commit(topic, attempt)
        assert failure(caught.value).code == MisuseError.code
        assert "no longer exists" in failure(caught.value).what
    assert client.read(topic).num_rows == 3


def test_discard_removes_no_rows_that_another_attempt_has_staged(
    client: HostileClient, topic: str
) -> None:
    victim, committed = client.upload(topic, ROWS), client.upload(topic, ROWS)
    client.commit(topic, committed)
    for files in (victim.get("files", []), committed.get("files", [])):
        staged = {"attempt": uuid.uuid4().hex, "files": files}
        client.act("discard", topic=topic, staged=staged)
    client.act("discard", topic=topic, staged=committed)
    client.commit(topic, victim)
    assert client.read(topic).num_rows == 6


def test_attempt_cannot_be_begun_twice(client: HostileClient, topic: str) -> None:
    def put(attempt: str) -> None:
        wanted = message(topic=topic, attempt=attempt)
        descriptor = fl.FlightDescriptor.for_command(wanted)
        writer, replies = client.client.do_put(
            descriptor, ROWS.schema, client.options()
        )
        writer.done_writing()
        replies.read()
        writer.close()

    sealed = client.upload(topic, ROWS)
    with pytest.raises(fl.FlightServerError) as caught:
        put(sealed["attempt"])
    assert "was begun before" in failure(caught.value).what
    client.commit(topic, sealed)
    assert client.read(topic).num_rows == 3


def test_rows_within_a_commit_do_not_replace_an_upload_of_the_same_attempt(
    client: HostileClient, topic: str
) -> None:
    sealed = client.upload(topic, ROWS)
    inline = inline_attempt(stream_of(ROWS.slice(0, 1)))
    client.commit(topic, {**inline, "attempt": sealed["attempt"]})
    client.commit(topic, sealed)
    assert client.read(topic)["id"].to_pylist() == [1, 1, 2, 3]


def test_epoch_is_committed_once_by_two_calls_at_once(
    client: HostileClient, topic: str
) -> None:
    for epoch in range(10):
        sealed = client.upload(topic, ROWS)
        errors: list[Exception] = []

        def commit(
            sealed: Any = sealed, epoch: int = epoch, errors: list[Any] = errors
        ) -> None:
            try:
                client.commit(topic, sealed, writer="w", epoch=epoch)
            except fl.FlightError as error:
                errors.append(error)

        threads = [threading.Thread(target=commit) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
    assert client.read(topic).num_rows == 30


def test_attempt_of_an_earlier_run_of_the_server_is_refused(tmp_path: Path) -> None:
    with (
        streamfactory.serve(path=str(tmp_path)) as server,
        connected(server.location) as client,
    ):
        client.create("t", ROWS.schema)
        done, left = client.upload("t", ROWS), client.upload("t", ROWS)
        client.commit("t", done, writer="w", epoch=0)
    with (
        streamfactory.serve(path=str(tmp_path)) as server,
        connected(server.location) as client,
    ):
        assert client.commit("t", done, writer="w", epoch=0)["held"]["epoch"] == 0
        with pytest.raises(fl.FlightServerError) as caught:
            client.commit("t", left, writer="w", epoch=1)
        assert failure(caught.value).code == MisuseError.code
        assert failure(caught.value).remedy == "write the epoch again"
        assert client.read("t").num_rows == 3


LARGE = pa.record_batch({"id": pa.array(range(1 << 18))})
"""Two megabytes: more than a client may have staged."""


@pytest.mark.parametrize(
    ("rows", "part", "code"),
    [
        (LARGE, {"partition": 0}, StorageFailed.code),
        (ROWS, {"partition": 7}, TopicNotFound.code),
    ],
)
def test_refused_batch_ends_its_call_while_the_client_waits(
    client: HostileClient, topic: str, rows: pa.RecordBatch, part: Any, code: str
) -> None:
    wanted = message(topic=topic, attempt=uuid.uuid4().hex)
    descriptor = fl.FlightDescriptor.for_command(wanted)
    options = client.options(timeout=30)
    writer, replies = client.client.do_put(descriptor, rows.schema, options)
    began = time.monotonic()
    writer.write_with_metadata(ROWS, message(partition=0))
    assert json.loads(replies.read().to_pybytes())["rows"] == 3
    writer.write_with_metadata(rows, message(**part))
    assert replies.read() is None
    with pytest.raises(fl.FlightError) as caught:
        writer.close()
    assert failure(caught.value).code == code
    assert time.monotonic() - began < 15


def test_client_that_waits_for_earlier_acknowledgements_only_is_told_at_once(
    client: HostileClient, topic: str
) -> None:
    wanted = message(topic=topic, attempt=uuid.uuid4().hex)
    descriptor = fl.FlightDescriptor.for_command(wanted)
    options = client.options(timeout=30)
    writer, replies = client.client.do_put(descriptor, ROWS.schema, options)
    for partition in (0, 7, 0):
        writer.write_with_metadata(ROWS, message(partition=partition, ahead=1))
    assert json.loads(replies.read().to_pybytes())["rows"] == 3
    assert replies.read() is None
    with pytest.raises(fl.FlightError) as caught:
        writer.close()
    assert failure(caught.value).code == TopicNotFound.code
