"""What survives a spool, and what senders may do wrong."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import zmq
from tests.objects.server import OWNER
from tests.objects.stage import place
from tests.proving.ports import free_ports
from tests.spool.receiving import DEADLINE, receiving

import streamfactory
from streamfactory import arrowipc as ipc
from streamfactory.spi import SchemaMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.objects.server import ObjectServer

NUMBERS = pa.schema([pa.field("number", pa.int64())])


def until(condition: Callable[[], object], shown: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.01)


def rows(properties: dict[str, str], **options: str) -> list[dict[str, Any]]:
    given = {key.replace("__", "."): text for key, text in options.items()}
    with streamfactory.open(properties, options=given) as stream:
        return list(stream.to_reader().read_all().to_pylist())


@contextlib.contextmanager
def received(properties: dict[str, str]) -> Iterator[Any]:
    receiver = receiving(properties)
    with contextlib.closing(receiver):
        yield receiver


def stored(receiver: Any, count: int) -> None:
    until(
        lambda: sum(report.rows for report in receiver.reports()) >= count,
        receiver.reports,
    )


# --- messages -----------------------------------------------------------------------


@pytest.fixture
def messages(tmp_path: Path) -> Iterator[tuple[dict[str, str], Any]]:
    """A stream of undecoded messages, and the socket that pushes them."""
    context = zmq.Context()
    push = context.socket(zmq.PUSH)
    push.linger = 0
    push.bind(f"ipc://{tmp_path}/wire")
    yield (
        {
            "streamType": "zeromq",
            "stream.zeromq.topic.name": "clicks",
            "stream.zeromq.pattern": "push-pull",
            "stream.zeromq.framing": "plain",
            "stream.zeromq.payload": "raw",
            "stream.zeromq.connect": f"ipc://{tmp_path}/wire",
            "stream.zeromq.decoder.class.name": "json",
            "schema": "id bigint",
            "spool.path": str(tmp_path / "spool"),
            "spool.fsync": "never",
        },
        push,
    )
    push.close()
    context.term()


def test_messages_are_kept_as_they_are_and_decoded_when_they_are_read(
    messages: tuple[dict[str, str], Any],
) -> None:
    properties, push = messages
    begun = time.time()
    with received(properties) as receiver:
        for number in range(10):
            push.send(json.dumps({"id": number, "extra": "x"}).encode())
        push.send(b"no JSON")
        stored(receiver, 11)
    skipping = {"decode.on.error": "skip", "metadata.columns": "true"}
    found = rows({**properties, **skipping})
    assert [row["id"] for row in found] == [*range(10)]
    assert [row["_offset"] for row in found] == [*range(10)]
    assert {row["_topic"] for row in found} == {"clicks"}
    # These senders give no time, so that of the receipt is kept.
    for row in found:
        assert begun - 1 <= row["_timestamp"].timestamp() <= time.time()
    wider = {"schema": "id bigint, extra string", "decode.on.error": "skip"}
    assert rows({**properties, **wider})[0] == {"id": 0, "extra": "x"}


def test_a_start_by_time_goes_by_the_receipt(
    messages: tuple[dict[str, str], Any],
) -> None:
    properties, push = messages
    with received(properties) as receiver:
        push.send(b'{"id": 1}')
        stored(receiver, 1)
        time.sleep(0.02)
        between = int(time.time() * 1000)
        time.sleep(0.02)
        push.send(b'{"id": 2}')
        stored(receiver, 2)
    assert rows(properties, startingTimestamp=str(between)) == [{"id": 2}]


# --- senders ------------------------------------------------------------------------


def listening(folder: Path, first: int, last: int, **options: str) -> dict[str, str]:
    return {
        "streamType": "socket",
        "stream.socket.topic.name": "numbers",
        "stream.socket.listen": f"127.0.0.1:{first}-{last}",
        "stream.socket.writers": "any",
        "spool.path": str(folder / "spool"),
        "spool.fsync": "never",
        "retry.max.millis": "100",
        **{key.replace("__", "."): text for key, text in options.items()},
    }


class Sender:
    """A program of plain pyarrow; it connects as soon as somebody listens."""

    def __init__(self, port: int, schema: pa.Schema = NUMBERS) -> None:
        self._schema = schema
        deadline = time.monotonic() + DEADLINE
        while True:
            try:
                self._connection = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        self._connection.sendall(schema.serialize())

    def send(self, values: Any) -> None:
        column = pa.array(values, self._schema.field(0).type)
        batch = pa.record_batch([column], schema=self._schema)
        self._connection.sendall(batch.serialize())

    def end(self) -> None:
        self._connection.sendall(ipc.END)
        self._connection.close()


def test_a_sender_reconnects_to_one_port_while_another_continues(
    tmp_path: Path,
) -> None:
    first = free_ports(2)
    properties = listening(tmp_path, first, first + 1)
    with received(properties) as receiver:
        steady = Sender(first)
        steady.send([0])
        for number in range(1, 4):
            passing = Sender(first + 1)
            passing.send([number * 100])
            passing.end()
            stored(receiver, 2 * number)
            steady.send([number])
            stored(receiver, 2 * number + 1)
        steady.end()
    offsets = {"metadata.columns": "true"}
    by_lane: dict[int, list[int]] = {0: [], 1: []}
    for row in rows({**properties, **offsets}):
        by_lane[row["_partition"]].append(row["number"])
    assert by_lane == {0: [0, 1, 2, 3], 1: [100, 200, 300]}


def test_rows_of_another_schema_are_refused_and_said(tmp_path: Path) -> None:
    first = free_ports(1)
    properties = listening(tmp_path, first, first)
    with received(properties) as receiver:
        good = Sender(first)
        good.send([1, 2])
        good.end()
        stored(receiver, 2)
        other = Sender(first, pa.schema([pa.field("name", pa.string())]))
        other.send(["x"])
        until(lambda: "name" in str(receiver.reports()[0].error), receiver.reports)
        assert receiver.reports()[0].state == "waiting"
        with contextlib.suppress(OSError):  # it may have been broken off
            other.end()
        again = Sender(first)
        again.send([3])
        stored(receiver, 3)
        again.end()
    assert [row["number"] for row in rows(properties)] == [1, 2, 3]


def test_a_column_that_the_spool_needs_is_refused(tmp_path: Path) -> None:
    first = free_ports(1)
    schema = pa.schema([pa.field("_received", pa.int64())])
    with received(listening(tmp_path, first, first)) as receiver:
        sender = Sender(first, schema)
        until(lambda: receiver.trouble, receiver.reports)
        assert isinstance(receiver.trouble, SchemaMismatch)
        assert "the column name '_received' is reserved by the spool" in str(
            receiver.trouble
        )
        with contextlib.suppress(OSError):
            sender.end()


def test_a_sender_that_leaves_without_a_schema_ends_no_receiver(tmp_path: Path) -> None:
    first = free_ports(1)
    properties = listening(tmp_path, first, first)
    with received(properties) as receiver:
        deadline = time.monotonic() + DEADLINE
        for _ in range(3):
            while True:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", first)).close()
                    break
                assert time.monotonic() < deadline
                time.sleep(0.01)
        sender = Sender(first)
        sender.send([1])
        stored(receiver, 1)
        sender.end()
    assert rows(properties) == [{"number": 1}]


def read(stream: Any, numbers: list[int], count: int) -> None:
    while len(numbers) < count:
        batch = stream.next_batch(5.0)
        assert batch is not None
        numbers += batch.rows["number"].to_pylist()


def test_readers_of_one_process_share_an_embedded_receiver(tmp_path: Path) -> None:
    first = free_ports(1)
    properties = listening(tmp_path, first, first, spool__receiver="embedded")
    seen: list[list[int]] = [[], []]
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(
            streamfactory.open, properties, start="earliest", follow=True
        )
        sender = Sender(first)
        sender.send([1, 2, 3])
        with opening.result() as one:
            with streamfactory.open(properties, start="earliest", follow=True) as two:
                read(one, seen[0], 3)
                read(two, seen[1], 3)
            sender.send([4])
            read(one, seen[0], 4)
            sender.end()
    assert seen == [[1, 2, 3, 4], [1, 2, 3]]


# --- places ---------------------------------------------------------------------------


def test_a_spool_in_an_object_store_is_received_and_read(
    tmp_path: Path, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OBJECT_KEY", OWNER.key)
    monkeypatch.setenv("OBJECT_SECRET", OWNER.secret)
    first = free_ports(1)
    options = {
        "spool__path": place(),
        "spool__storage__endpoint": object_server.endpoint,
        "spool__storage__allow__http": "true",
        "spool__storage__access__key": "${env:OBJECT_KEY}",
        "spool__storage__secret__key": "${env:OBJECT_SECRET}",
    }
    properties = listening(tmp_path, first, first, **options)
    with received(properties) as receiver:
        sender = Sender(first)
        sender.send([1, 2, 3])
        stored(receiver, 3)
        sender.end()
    assert [row["number"] for row in rows(properties)] == [1, 2, 3]
    assert OWNER.secret not in repr(receiver.config)
