"""Uploads that are not committed: bounded, and removed when nobody decides them."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.conftest import stream

import streamfactory
from streamfactory.arrowlog import SoundStage, Staged
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.messages import (
    Commit,
    Discard,
    Failure,
    Part,
    Received,
    Sealed,
    Stage,
    Topic,
)
from streamfactory.backends.flight.server.batches import UncheckedRows
from streamfactory.backends.flight.server.writing import Stager
from streamfactory.spi import BatchValidator, CorruptData, StorageFailed
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from streamfactory.spi import SoundRows
    from streamfactory.wiring.serving.process import ServerProcess

ROOT = Path(__file__).parents[2]
DEADLINE = 60.0
SCHEMA = pa.schema([pa.field("id", pa.int64())])
BATCH = pa.record_batch([pa.array(range(10_000), pa.int64())], schema=SCHEMA)
"""80,000 bytes."""


@pytest.fixture(params=["memory", "folder"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    place = {"memory": True} if request.param == "memory" else {"path": str(tmp_path)}
    with streamfactory.serve(
        staged_bytes="500k", staged_bytes_per_client="300k", **place
    ) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[fl.FlightClient]:
    with closing(fl.connect(server.location)) as client:
        create(client)
        yield client


def create(client: fl.FlightClient, topic: str = "clicks") -> None:
    schema = pa.Table.from_batches([], SCHEMA).schema
    descriptor = fl.FlightDescriptor.for_path(topic)
    writer, _ = client.do_put(descriptor, schema)
    writer.close()


def statistics(client: fl.FlightClient) -> dict[str, float]:
    (answer,) = client.do_action(("statistics", b'{"v":1}'))
    found = json.loads(answer.body.to_pybytes())["metrics"]
    return {one["name"]: one["value"] for one in found if "labels" not in one}


def staged(client: fl.FlightClient) -> float:
    return statistics(client)["server.staged.bytes"]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def upload(
    client: fl.FlightClient, batches: int = 1, attempt: str = "", topic: str = "clicks"
) -> Sealed:
    """Stage batches; what the server has sealed."""
    wanted = Stage(topic, attempt or uuid.uuid4().hex)
    descriptor = fl.FlightDescriptor.for_command(encode(wanted))
    writer, replies = client.do_put(descriptor, SCHEMA)
    for _ in range(batches):
        writer.write_with_metadata(BATCH, encode(Part(0)))
    writer.done_writing()
    last: Any = None
    while (reply := replies.read()) is not None:
        last = reply
    writer.close()
    return decode(last, Sealed)


def commit(client: fl.FlightClient, epoch: int, *sealed: Sealed) -> None:
    request = Commit(
        topic="clicks",
        writer=None,
        instance="i",
        epoch=epoch,
        rows=10_000 * len(sealed),
        staged=sealed,
    )
    list(client.do_action(("commit", encode(request))))


def refused(error: BaseException) -> Failure:
    return decode(error.extra_info, Failure)  # type: ignore[attr-defined]


def test_uploads_of_a_client_are_bounded_until_it_decides(
    client: fl.FlightClient,
) -> None:
    assert staged(client) == 0
    first = [upload(client), upload(client, 2)]
    assert staged(client) == 240_000
    with pytest.raises(fl.FlightInternalError) as caught:
        upload(client)
    failure = refused(caught.value)
    assert failure.code == "storage_failed"
    assert failure.what == (
        "the uploads of this client that are not committed would have 320000 bytes; "
        "307200 are allowed"
    )
    assert failure.remedy is not None
    assert "staged.bytes.per.client" in failure.remedy
    assert staged(client) == 240_000  # the one that was refused is gone
    commit(client, 0, first[0])
    assert staged(client) == 160_000
    list(client.do_action(("discard", encode(Discard("clicks", first[1])))))
    assert staged(client) == 0
    commit(client, 1, upload(client, 3))
    assert staged(client) == 0


def test_uploads_of_all_clients_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = {name: f"{name}-has-a-long-token" for name in ("ann", "bob", "eve")}
    access = tmp_path / "access.toml"
    lines = ["[tokens]"]
    for name, token in users.items():
        monkeypatch.setenv(name.upper(), token)
        lines.append(f'{name} = "${{env:{name.upper()}}}"')
    lines += ['[topics."*"]', 'read = ["*"]', 'write = ["*"]']
    access.write_text("\n".join(lines))
    with streamfactory.serve(
        memory=True,
        access_file=str(access),
        staged_bytes="500k",
        staged_bytes_per_client="300k",
    ) as server:
        clients = {
            name: fl.connect(server.location, middleware=[_Token(users[name])])
            for name in users
        }
        create(clients["ann"])
        upload(clients["ann"], 3)
        upload(clients["bob"], 3)
        with pytest.raises(fl.FlightInternalError) as caught:
            upload(clients["eve"], 1)
        failure = refused(caught.value)
        assert failure.code == "storage_failed"
        assert failure.what.startswith("the uploads of all clients")
        for one in clients.values():
            one.close()


class _Token(fl.ClientMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def start_call(self, info: fl.CallInfo) -> fl.ClientMiddleware:
        return _Header(self._token)


class _Header(fl.ClientMiddleware):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def sending_headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._token}"}


def test_a_sink_gets_the_refusal_with_its_remedy(server: ServerProcess) -> None:
    large = pa.Table.from_batches([BATCH] * 8)
    with open_sink(stream(server)) as sink:
        with pytest.raises(StorageFailed, match="307200 are allowed"):
            sink.put(large, writer_id="w", epoch=0)
        sink.put(large.slice(0, 10_000), writer_id="w", epoch=0)
    with streamfactory.open(stream(server)) as opened:
        assert opened.to_reader().read_all().num_rows == 10_000


def test_a_commit_that_fails_keeps_the_account_and_leaves_no_rows(
    client: fl.FlightClient,
) -> None:
    good = upload(client)
    inline = Sealed("a", ({"inline": "nonsense"},))
    for bad in (inline, Sealed("b", ({"inline": 5},)), Sealed("c", ({"name": "x"},))):
        with pytest.raises(fl.FlightServerError):
            commit(client, 0, good, bad)
        assert staged(client) == 80_000
    commit(client, 0, good)
    assert staged(client) == 0
    info = client.get_flight_info(fl.FlightDescriptor.for_path("clicks"))
    assert info.total_records == 10_000


def test_an_upload_whose_writer_was_killed_is_removed(
    server: ServerProcess, client: fl.FlightClient, tmp_path: Path
) -> None:
    code = (
        "import sys, time, uuid, pyarrow as pa, pyarrow.flight as fl\n"
        "from tests.flight.test_flight_uploads import *\n"
        "client = fl.connect(sys.argv[1])\n"
        "wanted = Stage('clicks', uuid.uuid4().hex)\n"
        "descriptor = fl.FlightDescriptor.for_command(encode(wanted))\n"
        "writer, _ = client.do_put(descriptor, SCHEMA)\n"
        "for _ in range(3):\n"
        "    writer.write_with_metadata(BATCH, encode(Part(0)))\n"
        "time.sleep(600)\n"
    )
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    child = subprocess.Popen(
        [sys.executable, "-c", code, server.location],
        env={**os.environ, "PYTHONPATH": path},
    )
    try:
        until(lambda: child.poll() is not None or staged(client) == 240_000)
        assert child.poll() is None
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    until(lambda: staged(client) == 0)
    assert not data_files(tmp_path)
    upload(client, 3)


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[fl.FlightClient]:
    """A client of a server that removes uploads soon."""
    with (
        streamfactory.serve(path=str(tmp_path), staged_timeout="400ms") as server,
        closing(fl.connect(server.location)) as client,
    ):
        create(client)
        yield client


def data_files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*/*/data/*")}


def test_uncommitted_rows_are_removed_after_their_timeout(
    hasty: fl.FlightClient, tmp_path: Path
) -> None:
    sealed = upload(hasty)
    assert data_files(tmp_path)
    until(lambda: staged(hasty) == 0)
    until(lambda: not data_files(tmp_path))
    assert statistics(hasty)["server.staged.expired"] == 1
    with pytest.raises(fl.FlightServerError, match="no longer exists") as caught:
        commit(hasty, 0, sealed)
    assert refused(caught.value).code == "misuse"
    kept = upload(hasty)
    commit(hasty, 1, kept)
    time.sleep(1)  # longer than uploads are kept
    info = hasty.get_flight_info(fl.FlightDescriptor.for_path("clicks"))
    assert info.total_records == 10_000  # what was committed stays
    assert hasty.do_get(info.endpoints[0].ticket).read_all().num_rows == 10_000


def test_a_writer_that_pauses_for_too_long_is_refused(
    hasty: fl.FlightClient, tmp_path: Path
) -> None:
    wanted = Stage("clicks", uuid.uuid4().hex)
    descriptor = fl.FlightDescriptor.for_command(encode(wanted))
    writer, _ = hasty.do_put(descriptor, SCHEMA)
    writer.write_with_metadata(BATCH, encode(Part(0)))
    until(lambda: staged(hasty) > 0)
    until(lambda: staged(hasty) == 0)
    with suppress(fl.FlightError):
        writer.write_with_metadata(BATCH, encode(Part(0)))
    with pytest.raises(fl.FlightServerError, match="idle for too long"):
        writer.close()
    assert not data_files(tmp_path)


def test_uploads_to_a_topic_that_is_deleted_are_released_before_they_expire() -> None:
    began, timeout = time.monotonic(), 12
    with (
        streamfactory.serve(memory=True, staged_timeout=f"{timeout}s") as server,
        closing(fl.connect(server.location)) as client,
    ):
        create(client)
        upload(client)
        assert staged(client) == 80_000
        list(client.do_action(("delete", encode(Topic("clicks")))))
        until(lambda: staged(client) == 0)
        assert time.monotonic() < began + timeout


def test_attempts_are_decided_whatever_files_a_client_names(
    hasty: fl.FlightClient, tmp_path: Path
) -> None:
    sealed = upload(hasty)
    assert len(data_files(tmp_path)) == 1
    list(
        hasty.do_action(("discard", encode(Discard("clicks", Sealed(sealed.attempt)))))
    )
    assert staged(hasty) == 0
    assert not data_files(tmp_path)
    sealed = upload(hasty)
    commit(hasty, 0, Sealed(sealed.attempt))
    assert staged(hasty) == 0
    assert len(data_files(tmp_path)) == 1


def test_what_a_killed_server_left_is_removed_after_a_day(tmp_path: Path) -> None:
    with streamfactory.serve(path=str(tmp_path)) as server:
        with closing(fl.connect(server.location)) as client:
            create(client)
            commit(client, 0, upload(client))
            kept = data_files(tmp_path)
            upload(client)
            (left,) = data_files(tmp_path) - kept
            upload(client)
            (recent,) = data_files(tmp_path) - kept - {left}
        os.kill(server.pid, signal.SIGKILL)
        server.wait(DEADLINE)
    two_days_ago = time.time() - 2 * 86_400
    for path in tmp_path.glob("*/*/data/*"):
        if path.name != recent:
            os.utime(path, (two_days_ago, two_days_ago))
    with streamfactory.serve(path=str(tmp_path), staged_timeout="400ms"):
        until(lambda: data_files(tmp_path) == kept | {recent})


@pytest.mark.long("sixty uploads around the moment of their expiry")
def test_an_expiring_upload_is_committed_or_removed(
    hasty: fl.FlightClient,
) -> None:
    rows = refusals = 0
    for epoch in range(60):
        sealed = upload(hasty)
        time.sleep(0.3 + 0.01 * (epoch % 30))
        try:
            commit(hasty, epoch, sealed)
        except fl.FlightServerError as error:
            refusals += refused(error).code == "misuse"
        else:
            rows += 10_000
    assert rows
    assert refusals
    assert refusals == 60 - rows // 10_000
    info = hasty.get_flight_info(fl.FlightDescriptor.for_path("clicks"))
    assert info.total_records == rows
    assert hasty.do_get(info.endpoints[0].ticket).read_all().num_rows == rows
    until(lambda: staged(hasty) == 0)  # a thread removes the last ones


# --- staging while more is received --------------------------------------------------


class Staging(SoundStage):
    """A stage that waits, and fails, on request."""

    def __init__(self, fails_at: int = 1 << 30) -> None:
        super().__init__(BatchValidator(SCHEMA))
        self.rows: list[int] = []
        self.free = threading.Event()
        self._fails_at = fails_at

    def append_sound(self, partition: int, rows: SoundRows) -> None:
        assert self.free.wait(DEADLINE)
        if len(self.rows) == self._fails_at:
            msg = "the disk is full"
            raise StorageFailed(msg)
        self.rows.append(rows.num_rows)

    def seal(self, *, carried: bool = False) -> Staged:
        raise NotImplementedError

    def discard(self) -> None:
        raise NotImplementedError


class Acknowledgements:
    def __init__(self) -> None:
        self.rows: list[int] = []

    def write(self, data: bytes) -> None:
        self.rows.append(decode(data, Received).rows)


def test_batch_whose_client_waits_is_staged_before_the_next_is_received() -> None:
    stage, replies = Staging(), Acknowledgements()
    stager = Stager(stage, BatchValidator(BATCH.schema), replies)
    thread = threading.Thread(target=stager.put, args=(Part(0), UncheckedRows(BATCH)))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    stage.free.set()
    thread.join(DEADLINE)
    assert replies.rows == [BATCH.num_rows]
    stager.finish()


def test_batches_are_received_while_one_is_staged_but_not_without_bound() -> None:
    stage, replies = Staging(), Acknowledgements()
    stager = Stager(stage, BatchValidator(BATCH.schema), replies)
    put = 0

    def put_all() -> None:
        nonlocal put
        for _ in range(10):
            stager.put(Part(0, ahead=10), UncheckedRows(BATCH))
            put += 1
        stager.finish()

    thread = threading.Thread(target=put_all)
    thread.start()
    until(lambda: put == 3)  # one is being staged, two wait
    thread.join(0.2)
    assert put == 3
    assert replies.rows == []  # what is not staged is not acknowledged
    stage.free.set()
    thread.join(DEADLINE)
    assert not thread.is_alive()
    assert stage.rows == [BATCH.num_rows] * 10
    assert replies.rows == [BATCH.num_rows * (n + 1) for n in range(10)]


def test_failure_to_stage_reaches_the_put_and_nothing_more_is_staged() -> None:
    stage = Staging(fails_at=2)
    stage.free.set()
    stager = Stager(stage, BatchValidator(BATCH.schema), Acknowledgements())

    def put_all() -> None:
        for _ in range(10):
            stager.put(Part(0), UncheckedRows(BATCH))
        stager.finish()

    with pytest.raises(StorageFailed, match="the disk is full"):
        put_all()
    stager.close()
    stager.close()
    assert len(stage.rows) == 2
    assert "stage" not in {one.name for one in threading.enumerate()}


TEXT = pa.schema([pa.field("text", pa.string())])


def not_unicode(rows: int) -> pa.RecordBatch:
    """A column of text whose bytes are no UTF-8."""
    offsets = pa.py_buffer(struct.pack(f"<{rows + 1}i", *range(rows + 1)))
    values = pa.py_buffer(b"\xff" * rows)
    column = pa.Array.from_buffers(TEXT.field(0).type, rows, [None, offsets, values])
    return pa.record_batch([column], schema=TEXT)


def test_unsound_batch_of_an_upload_is_refused_and_leaves_nothing(
    server: ServerProcess,
) -> None:
    sound = pa.record_batch([pa.array(["a"] * 9)], schema=TEXT)
    with closing(fl.connect(server.location)) as client:
        path = fl.FlightDescriptor.for_path("clicks")
        writer, _ = client.do_put(path, TEXT)
        writer.close()
        wanted = fl.FlightDescriptor.for_command(encode(Stage("clicks", "a" * 32)))
        writer, replies = client.do_put(wanted, TEXT)
        with pytest.raises(pa.ArrowException) as caught:  # noqa: PT012 - any of them
            for rows in (sound, not_unicode(9), not_unicode(5000), sound):
                part = Part(0, acknowledge=True)
                writer.write_with_metadata(rows, encode(part))
            writer.done_writing()
            while replies.read() is not None:
                pass
            writer.close()
        assert refused(caught.value).code == CorruptData.code
        assert "'text'" in refused(caught.value).what
        assert staged(client) == 0


@pytest.mark.parametrize("rows", [9, 5000])
def test_stager_validates_a_batch_before_it_is_staged(rows: int) -> None:
    stage = Staging()
    stage.free.set()
    stager = Stager(stage, BatchValidator(TEXT), Acknowledgements())
    with pytest.raises(CorruptData, match="'text'"):
        stager.put(Part(0), UncheckedRows(not_unicode(rows)))
    stager.close()
    assert stage.rows == []
