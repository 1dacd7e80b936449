"""The conformance kit's access to Redis: the client alone, nothing of the backend.

The server is the one of the environment variable ``REDIS_ADDRESS``, or one that is
started for the process from the program ``redis-server``.
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import redis

_START = 30.0
"""Seconds in which a server has to answer."""
_PASSWORD = "harness-secret"


class Server:
    """A ``redis-server`` of this process, with a password.

    Args:
        folder: Where it stores its data.
        arguments: More arguments of its command line.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            msg = "the program redis-server is not installed (Debian: redis-server)"
            raise RuntimeError(msg)
        self._folder = folder
        self._command = [program, "--dir", str(folder), "--bind", "127.0.0.1"]
        self._command += ["--requirepass", _PASSWORD, "--save", "", *arguments]
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it is."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it: the first time on a free port, and then on the same."""
        while not self._starts():
            self._port = 0  # another program took the port meanwhile

    def kill(self) -> None:
        """End it without a warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _starts(self) -> bool:
        if not self._port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._port = free.getsockname()[1]
        with (self._folder / "server.log").open("ab") as log:
            command = [*self._command, "--port", str(self._port)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + _START
        with connect(self.address) as client:
            while True:
                try:
                    client.ping()
                except redis.exceptions.ConnectionError:
                    if self._process.poll() is not None:
                        return self._failed()
                    if time.monotonic() > deadline:
                        msg = "redis-server does not answer"
                        raise RuntimeError(msg) from None
                    time.sleep(0.01)
                else:
                    return True

    def _failed(self) -> bool:
        """False where the port was taken; raises for any other reason."""
        text = (self._folder / "server.log").read_text()[-2000:]
        if "Address already in use" in text:
            return False
        msg = f"redis-server does not start: {text}"
        raise RuntimeError(msg)


def connect(address: str) -> Any:
    """A client of a server of this module."""
    host, _, port = address.rpartition(":")
    password = None if "REDIS_ADDRESS" in os.environ else _PASSWORD
    return redis.Redis(host, int(port), password=password)


class RedisHarness:
    """A topic of numbers. Each case gets a new one."""

    _server: ClassVar[Server | None] = None

    def __init__(self, folder: Path) -> None:
        self.prepare()
        self.topic = ""

    @classmethod
    def prepare(cls) -> None:
        """Start the server of this process, once."""
        if "REDIS_ADDRESS" in os.environ or RedisHarness._server is not None:
            return
        folder = Path(tempfile.mkdtemp(prefix="redis-"))
        server = RedisHarness._server = Server(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(server.kill)
        server.start()

    @classmethod
    def address(cls) -> str:
        """Where the server is."""
        if "REDIS_ADDRESS" in os.environ:
            return os.environ["REDIS_ADDRESS"]
        assert RedisHarness._server is not None
        return RedisHarness._server.address

    def create(self, partitions: int) -> None:
        self.close()
        self.topic = f"numbers {uuid.uuid4().hex[:12]}"
        self._describe(partitions)

    def properties(self) -> Mapping[str, str]:
        given = {
            "streamType": "redis",
            "stream.redis.topic.name": self.topic,
            "stream.redis.address": self.address(),
            "stream.redis.decoder.class.name": "raw",
            "stream.redis.delete.acknowledged": "true",
        }
        if "REDIS_ADDRESS" not in os.environ:
            given["stream.redis.password"] = _PASSWORD
        return given

    def partitions(self) -> Sequence[int]:
        with connect(self.address()) as client:
            return range(int(client.hget(self._key("topic"), "partitions")))

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._append(partition, {"value": str(number)})

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        return [int(value) for value in rows.column("value").to_pylist()]

    def grow(self, partitions: int) -> None:
        with connect(self.address()) as client:
            client.hset(self._key("topic"), "partitions", partitions)

    def truncate(self, partition: int, messages: int) -> None:
        with connect(self.address()) as client:
            key = self._key(partition)
            client.xtrim(key, client.xlen(key) - messages, approximate=False)

    def recreate(self) -> None:
        count = len(self.partitions())
        self.close()
        self._describe(count)

    def tombstone(self, partition: int) -> None:
        self._append(partition, {"key": "gone"})

    def nowhere(self) -> Mapping[str, str]:
        return {"stream.redis.topic.name": "nowhere"}

    def acknowledged(self) -> Mapping[int, int]:
        found = {}
        with connect(self.address()) as client:
            for number in self.partitions():
                first = client.xrange(self._key(number), count=1)
                last = int(self._last(client, number))
                found[number] = int(first[0][0][2:]) if first else last + 1
        return found

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        values = [str(number).encode() for number in numbers]
        return pa.record_batch({"value": pa.array(values, pa.binary())})

    def visible(self) -> Mapping[int, Sequence[int]]:
        with connect(self.address()) as client:
            # One transaction: all partitions as of one moment.
            reading = client.pipeline()
            for number in self.partitions():
                reading.xrange(self._key(number))
            return {
                number: [int(fields[b"value"]) for _, fields in entries]
                for number, entries in enumerate(reading.execute())
            }

    def close(self) -> None:
        if self.topic:
            with connect(self.address()) as client:
                client.delete(*client.scan_iter(match=self._key("*")), self.topic)

    def _describe(self, partitions: int) -> None:
        with connect(self.address()) as client:
            described = {"incarnation": uuid.uuid4().hex, "partitions": partitions}
            client.hset(self._key("topic"), mapping=described)

    def _append(self, partition: int, fields: dict[Any, Any]) -> None:
        with connect(self.address()) as client:
            number = int(self._last(client, partition)) + 1
            client.xadd(self._key(partition), fields, id=f"0-{number}")

    def _last(self, client: Any, partition: int) -> str:
        """The number of the last entry that a partition got."""
        key = self._key(partition)
        if not client.exists(key):
            return "0"
        last: bytes = client.xinfo_stream(key)["last-generated-id"]
        return last.decode().partition("-")[2]

    def _key(self, name: object) -> str:
        return f"{{{self.topic}}}:{name}"
