"""The conformance kit's access to JetStream: the client alone, nothing of the backend.

The server is the one of the environment variable ``NATS_URL``, or one that is started
for the process from the program ``nats-server``.
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import nats
import pyarrow as pa
from nats.aio.client import Client

T = TypeVar("T")
_START = 30.0
"""Seconds in which a server has to answer."""
_PASSWORD = "harness-secret"


class Server:
    """A ``nats-server`` of this process, with a user and a password.

    Args:
        folder: Where it stores its streams.
        arguments: More arguments of its command line.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        program = shutil.which("nats-server")
        if program is None:
            msg = "the program nats-server is not installed (Debian: nats-server)"
            raise RuntimeError(msg)
        self._folder = folder
        self._arguments = (
            *(program, "--jetstream", "--store_dir", str(folder)),
            *("--addr", "127.0.0.1", "--user", "harness", "--pass", _PASSWORD),
            *("--ports_file_dir", str(folder), *arguments),
        )
        self.address = ""
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it: the first time on a free port, and then on the same."""
        port = self.address.rpartition(":")[2] or "-1"
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._arguments, "--port", port], stdout=log, stderr=log
            )
        ports = self._folder / f"nats-server_{self._process.pid}.ports"
        deadline = time.monotonic() + _START
        while not (ports.exists() and ports.read_text().endswith("}")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = (self._folder / "server.log").read_text()[-2000:]
                msg = f"nats-server does not start: {text}"
                raise RuntimeError(msg)
            time.sleep(0.01)
        self.address = json.loads(ports.read_text())["nats"][0].removeprefix("nats://")

    def kill(self) -> None:
        """End it without a warning; what it has stored stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class NatsHarness:
    """A topic of numbers. Each case gets a new one."""

    told_within: ClassVar = 1.0
    _server: ClassVar[Server | None] = None

    def __init__(self, folder: Path) -> None:
        self.prepare()
        self.topic = ""

    @classmethod
    def prepare(cls) -> None:
        """Start the server of this process, once."""
        if "NATS_URL" in os.environ or NatsHarness._server is not None:
            return
        folder = Path(tempfile.mkdtemp(prefix="nats-"))
        server = NatsHarness._server = Server(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(server.kill)
        server.start()

    @classmethod
    def servers(cls) -> str:
        """Where the server is."""
        if "NATS_URL" in os.environ:
            return os.environ["NATS_URL"]
        assert NatsHarness._server is not None
        return f"nats://{NatsHarness._server.address}"

    def create(self, partitions: int) -> None:
        self._delete()
        self.topic = f"numbers{uuid.uuid4().hex[:12]}"
        self._call(lambda client: self._create(client, partitions))

    def properties(self) -> Mapping[str, str]:
        given = {
            "streamType": "nats",
            "stream.nats.topic.name": self.topic,
            "stream.nats.servers": self.servers(),
            "stream.nats.decoder.class.name": "raw",
            "stream.nats.delete.acknowledged": "true",
        }
        if "NATS_URL" not in os.environ:
            given["stream.nats.user"] = "harness"
            given["stream.nats.password"] = _PASSWORD
        return given

    def partitions(self) -> Sequence[int]:
        async def ask(client: Client) -> list[int]:
            answer = await _api(client, "STREAM.LIST", {"subject": f"{self.topic}.*"})
            names = [stream["config"]["name"] for stream in answer["streams"]]
            return sorted(int(name.rpartition("-")[2]) for name in names)

        return self._call(ask)

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        async def publish(client: Client) -> None:
            subject = f"{self.topic}.{partition}"
            for number in numbers:
                await client.jetstream().publish(subject, str(number).encode())

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
            options: dict[str, Any] = {}
            if "NATS_URL" not in os.environ:
                options = {"user": "harness", "password": _PASSWORD}
            client = await nats.connect(
                self.servers(), allow_reconnect=False, **options
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
