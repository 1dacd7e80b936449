"""The conformance kit's access to JetStream: the client alone, nothing of the backend.

One server is started for the process, from the program ``nats-server``.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import shutil
import socket
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import nats
import pyarrow as pa
from nats.aio.client import Client
from streamfactory.conformance import LocalServer, Message, find_program

T = TypeVar("T")
_START = 30.0
"""Seconds in which a server has to answer."""
_PASSWORD = "harness-secret"


def make_server(folder: Path) -> LocalServer:
    """A ``nats-server`` with a user and a password, which stores its data in a folder.

    Raises:
        RuntimeError: The program is not installed.
    """
    program = find_program("nats-server", "Debian: nats-server")
    return LocalServer(
        folder,
        lambda port: [
            *(program, "--jetstream", "--store_dir", str(folder)),
            *("--addr", "127.0.0.1", "--port", str(port)),
            *("--user", "harness", "--pass", _PASSWORD),
        ],
        answers=_answers,
    )


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as found:
            return found.recv(5) == b"INFO "
    except OSError:
        return False


class NatsHarness:
    """A topic of numbers. Each case gets a new one."""

    recreation_timeout: ClassVar = 1.0
    sets_timestamps: ClassVar = False
    largest_key: ClassVar = 32_768
    """Keys are headers, in base64: all headers of a message have 64 KiB."""
    largest_value: ClassVar = 1024**2 - 1024
    """The server's max_payload, without what headers take."""
    sample_headers: ClassVar = (
        (("kind", b"test"), ("Content-Type", b"text/plain")),
        (("empty", b""), ("text", "grün".encode())),
    )
    """Headers of NATS are text, without null values."""
    _server: ClassVar[LocalServer | None] = None

    def __init__(self, folder: Path) -> None:
        self.prepare()
        self.topic = ""

    @classmethod
    def prepare(cls) -> None:
        """Start the server of this process, once."""
        if NatsHarness._server is not None:
            return
        folder = Path(tempfile.mkdtemp(prefix="nats-"))
        server = make_server(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(server.close)
        server.start()
        NatsHarness._server = server

    @classmethod
    def _servers(cls) -> str:
        """Where the server is."""
        assert NatsHarness._server is not None
        return f"nats://{NatsHarness._server.address}"

    def create(self, partitions: int) -> None:
        self._delete()
        self.topic = f"numbers{uuid.uuid4().hex[:12]}"
        self._call(lambda client: self._create(client, partitions))

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "nats",
            "stream.nats.topic.name": self.topic,
            "stream.nats.servers": self._servers(),
            "stream.nats.user": "harness",
            "stream.nats.password": _PASSWORD,
            "stream.nats.decoder.class.name": "raw",
            "stream.nats.delete.acknowledged": "true",
        }

    def partitions(self) -> Sequence[int]:
        async def ask(client: Client) -> list[int]:
            answer = await _api(client, "STREAM.LIST", {"subject": f"{self.topic}.*"})
            names = [stream["config"]["name"] for stream in answer["streams"]]
            return sorted(int(name.rpartition("-")[2]) for name in names)

        return self._call(ask)

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self.write_messages(partition, [Message(number) for number in numbers])

    def write_messages(self, partition: int, messages: Sequence[Message]) -> None:
        async def publish(client: Client) -> None:
            stream = client.jetstream(publish_async_max_pending=len(messages) + 1)
            stored = []
            for message in messages:
                headers = {
                    name: (value or b"").decode() for name, value in message.headers
                }
                if message.key is not None:
                    key = base64.b64encode(message.key).decode()
                    headers["Streamfactory-Key"] = key
                one = await stream.publish_async(
                    f"{self.topic}.{partition}",
                    str(message.number).encode(),
                    headers=headers or None,
                )
                stored.append(one)
            await asyncio.gather(*stored)

        self._call(publish)

    def write_values(self, partition: int, values: Sequence[bytes]) -> None:
        async def publish(client: Client) -> None:
            for value in values:
                await client.jetstream().publish(f"{self.topic}.{partition}", value)

        self._call(publish)

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        return [int(value) for value in rows.column("value").to_pylist()]

    def grow(self, partitions: int) -> None:
        self._call(lambda client: self._create(client, partitions))

    def truncate(self, partition: int, messages: int) -> None:
        async def purge(client: Client) -> None:
            held = await self._messages(client, partition)
            body = {"seq": held[messages - 1][0] + 1}
            await _api(client, f"STREAM.PURGE.{self.topic}-{partition}", body)

        self._call(purge)

    def recreate(self) -> None:
        async def recreate(client: Client) -> None:
            count = len(await self._streams(client)) - 2
            for name in await self._streams(client):
                await _api(client, f"STREAM.DELETE.{name}", None)
            await self._create(client, count)

        self._call(recreate)

    def acknowledged(self) -> Mapping[int, int]:
        async def ask(client: Client) -> dict[int, int]:
            found = {}
            for name in await self._streams(client):
                state = (await _api(client, f"STREAM.INFO.{name}", None))["state"]
                number = name.rpartition("-")[2]
                if number.isdecimal():
                    found[int(number)] = max(1, state["first_seq"])
            return found

        return self._call(ask)

    def tombstone(self, partition: int) -> None:
        async def publish(client: Client) -> None:
            subject = f"{self.topic}.{partition}"
            headers = {"KV-Operation": "DEL"}
            await client.jetstream().publish(subject, b"", headers=headers)

        self._call(publish)

    def gap(self, partition: int, offsets: int) -> None:
        async def delete(client: Client) -> None:
            verb = f"STREAM.MSG.DELETE.{self.topic}-{partition}"
            for _ in range(offsets):
                answer = await client.jetstream().publish(
                    f"{self.topic}.{partition}", b"deleted"
                )
                await _api(client, verb, {"seq": answer.seq, "no_erase": True})

        self._call(delete)

    def stop(self) -> None:
        assert NatsHarness._server is not None
        NatsHarness._server.stop()

    def start(self) -> None:
        assert NatsHarness._server is not None
        NatsHarness._server.start()

    def freeze(self) -> None:
        assert NatsHarness._server is not None
        NatsHarness._server.freeze()

    def thaw(self) -> None:
        assert NatsHarness._server is not None
        NatsHarness._server.thaw()

    def refused_login(self) -> Mapping[str, str]:
        return {"stream.nats.password": "another"}

    def nowhere(self) -> Mapping[str, str]:
        return {"stream.nats.topic.name": "nowhere"}

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        values = [str(number).encode() for number in numbers]
        return pa.record_batch({"value": pa.array(values, pa.binary())})

    def visible(self) -> Mapping[int, Sequence[int]]:
        async def read(client: Client) -> dict[int, list[int]]:
            names = await self._streams(client)
            ids = [int(n.rpartition("-")[2]) for n in names if n[-1].isdecimal()]
            found = {id_: await self._messages(client, id_) for id_ in sorted(ids)}
            # Rows of an epoch that is being placed are not visible yet.
            pending = await self._pending(client)
            ends = {} if pending is None else pending["bases"]
            return {
                id_: [
                    int(value)
                    for sequence, value in messages
                    if sequence <= ends.get(str(id_), sequence)
                ]
                for id_, messages in found.items()
            }

        return self._call(read)

    def close(self) -> None:
        self._delete()

    async def _create(self, client: Client, partitions: int) -> None:
        topic = self.topic
        wanted: dict[str, dict[str, Any]] = {
            f"{topic}-staged": {"subjects": [f"{topic}._staged.*"]},
            f"{topic}-commits": {
                "subjects": [f"{topic}._commits.>"],
                "max_msgs_per_subject": 1,
            },
        }
        for partition in range(partitions):
            wanted[f"{topic}-{partition}"] = {"subjects": [f"{topic}.{partition}"]}
        there = await self._streams(client)
        for name, settings in wanted.items():
            if name not in there:
                body = {"name": name, "storage": "file", **settings}
                await _api(client, f"STREAM.CREATE.{name}", body)

    def _delete(self) -> None:
        async def delete(client: Client) -> None:
            for name in await self._streams(client):
                await _api(client, f"STREAM.DELETE.{name}", None)

        if self.topic:
            self._call(delete)

    async def _streams(self, client: Client) -> list[str]:
        answer = await _api(client, "STREAM.NAMES", {"subject": f"{self.topic}.>"})
        return list(answer["streams"] or [])

    async def _messages(
        self, client: Client, partition: int
    ) -> list[tuple[int, bytes]]:
        """Sequence numbers and payloads of all that a partition holds."""
        stream = f"{self.topic}-{partition}"
        state = (await _api(client, f"STREAM.INFO.{stream}", None))["state"]
        body = {"deliver_policy": "all", "ack_policy": "none", "mem_storage": True}
        config = {"stream_name": stream, "config": body}
        name = (await _api(client, f"CONSUMER.CREATE.{stream}", config))["name"]
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        verb = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}"
        request = json.dumps({"batch": max(1, state["messages"]), "no_wait": True})
        await client.publish(verb, request.encode(), reply=inbox)
        found = []
        for _ in range(state["messages"]):
            message = await subscription.next_msg(_START)
            found.append((int(message.reply.split(".")[-4]), message.data))
        return found

    async def _pending(self, client: Client) -> Any:
        body = {"last_by_subj": f"{self.topic}._commits.pending"}
        verb = f"$JS.API.STREAM.MSG.GET.{self.topic}-commits"
        reply = await client.request(verb, json.dumps(body).encode(), timeout=_START)
        message = json.loads(reply.data).get("message")
        return None if message is None else json.loads(_decoded(message))

    def _call(self, work: Callable[[Client], Awaitable[T]]) -> T:
        async def connected() -> T:
            client = await nats.connect(
                self._servers(),
                allow_reconnect=False,
                user="harness",
                password=_PASSWORD,
            )
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(connected())


async def _api(client: Client, verb: str, body: object) -> Any:
    payload = b"" if body is None else json.dumps(body).encode()
    reply = await client.request(f"$JS.API.{verb}", payload, timeout=_START)
    answer = json.loads(reply.data)
    if "error" in answer:
        msg = f"{verb}: {answer['error']}"
        raise RuntimeError(msg)
    return answer


def _decoded(message: dict[str, Any]) -> bytes:
    return base64.b64decode(message["data"])
