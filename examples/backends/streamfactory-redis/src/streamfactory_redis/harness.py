"""The conformance kit's access to Redis: the client alone, nothing of the backend.

One server is started for the process, from the program ``redis-server``.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import pyarrow as pa
import redis
from streamfactory.conformance import LocalServer, Message, find_program

_BULK: Final = 1024**2
"""Bytes of an argument: the least that can be configured."""
_PASSWORD = "harness-secret"


def make_server(folder: Path) -> LocalServer:
    """A ``redis-server`` with a password, which stores its data in a folder.

    Raises:
        RuntimeError: The program is not installed.
    """
    program = find_program("redis-server", "Debian: redis-server")
    return LocalServer(
        folder,
        lambda port: [
            *(program, "--bind", "127.0.0.1", "--port", str(port)),
            *("--requirepass", _PASSWORD, "--save", ""),
            # Written before each answer, so that a restart finds all; power may fail.
            *("--appendonly", "yes", "--appendfsync", "no"),
            *("--proto-max-bulk-len", str(_BULK)),
        ],
        answers=_answers,
    )


def _answers(port: int) -> bool:
    try:
        with connect(f"127.0.0.1:{port}") as client:
            return bool(client.ping())
    except redis.exceptions.ConnectionError:
        return False


def connect(address: str) -> Any:
    """A client of a server of this module."""
    host, _, port = address.rpartition(":")
    return redis.Redis(host, int(port), password=_PASSWORD)


def _id(offset: int) -> str:
    """The id of an entry, as the package's documentation has it."""
    high, low = divmod(offset, 2**22)
    return f"{high}-{low}"


def _offset(entry: bytes) -> int:
    high, _, low = entry.decode().partition("-")
    return int(high) * 2**22 + int(low)


def _fields(message: Message) -> dict[str, Any]:
    """The fields of an entry, without a time."""
    fields: dict[str, Any] = {"value": str(message.number)}
    if message.key is not None:
        fields["key"] = message.key
    return {**fields, **dict(message.headers)}


class RedisHarness:
    """A topic of numbers. Each case gets a new one."""

    sample_headers: ClassVar = ((("a", b"1"), ("b", b"\xff")), (("empty", b""),))
    """Fields of an entry are any bytes; the client sends each name once."""
    mistakes: ClassVar = (
        {"stream.redis.address": "127.0.0.1:65536"},
        {"stream.redis.address": "127.0.0.1:６３７９"},  # noqa: RUF001 - no ASCII digits
        {"stream.redis.address": ":6379"},
        {"stream.redis.address": "6379"},
        {"stream.redis.topic.name": "{a}"},
        {"stream.redis.user": "a", "stream.redis.password": None},
    )
    largest_value: ClassVar = _BULK - 1
    """One byte of an argument marks what there is."""
    _server: ClassVar[LocalServer | None] = None

    def __init__(self, folder: Path) -> None:
        self.prepare()
        self.topic = ""

    @classmethod
    def prepare(cls) -> None:
        """Start the server of this process, once."""
        if RedisHarness._server is not None:
            return
        folder = Path(tempfile.mkdtemp(prefix="redis-"))
        server = make_server(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(server.close)
        server.start()
        RedisHarness._server = server

    @classmethod
    def _address(cls) -> str:
        """Where the server is."""
        assert RedisHarness._server is not None
        return RedisHarness._server.address

    def create(self, partitions: int) -> None:
        self.close()
        self.topic = f"numbers {uuid.uuid4().hex[:12]}"
        self._describe(partitions)

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "redis",
            "stream.redis.topic.name": self.topic,
            "stream.redis.address": self._address(),
            "stream.redis.password": _PASSWORD,
            "stream.redis.decoder.class.name": "raw",
            "stream.redis.delete.acknowledged": "true",
        }

    def partitions(self) -> Sequence[int]:
        with connect(self._address()) as client:
            return range(int(client.hget(self._key("topic"), "partitions")))

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self.write_messages(partition, [Message(number) for number in numbers])

    def write_messages(self, partition: int, messages: Sequence[Message]) -> None:
        entries = []
        for message in messages:
            fields = _fields(message)
            if message.timestamp_ms is not None:
                fields["stored"] = message.timestamp_ms * 1000
            entries.append(fields)
        self._append(partition, *entries)

    def write_values(self, partition: int, values: Sequence[bytes]) -> None:
        self._append(partition, *({"value": value} for value in values))

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        return [int(value) for value in rows.column("value").to_pylist()]

    def grow(self, partitions: int) -> None:
        with connect(self._address()) as client:
            client.hset(self._key("topic"), "partitions", partitions)

    def truncate(self, partition: int, messages: int) -> None:
        with connect(self._address()) as client:
            key = self._key(partition)
            client.xtrim(key, client.xlen(key) - messages, approximate=False)

    def recreate(self) -> None:
        count = len(self.partitions())
        self.close()
        self._describe(count)

    def tombstone(self, partition: int) -> None:
        self._append(partition, {"key": "gone"})

    def gap(self, partition: int, offsets: int) -> None:
        with connect(self._address()) as client:
            added = self._append(partition, *[{"n": "0"}] * offsets)
            client.xdel(self._key(partition), *added)

    def advance(self, partition: int, offset: int) -> None:
        with connect(self._address()) as client:
            before = _id(offset - 1)
            client.xadd(self._key(partition), {"n": "0"}, id=before)
            client.xdel(self._key(partition), before)

    def exceed(self, partition: int) -> None:
        with connect(self._address()) as client:
            beyond = {"value": "0"}, _id(2**63 - 1)
            client.xadd(self._key(partition), *beyond)

    def stop(self) -> None:
        assert RedisHarness._server is not None
        RedisHarness._server.stop()

    def start(self) -> None:
        assert RedisHarness._server is not None
        RedisHarness._server.start()

    def freeze(self) -> None:
        assert RedisHarness._server is not None
        RedisHarness._server.freeze()

    def thaw(self) -> None:
        assert RedisHarness._server is not None
        RedisHarness._server.thaw()

    def refused_login(self) -> Mapping[str, str]:
        return {"stream.redis.password": "another"}

    def login_without_rights(self) -> Mapping[str, str]:
        return self._user("stranger", "+@connection")

    def login_that_reads(self) -> Mapping[str, str]:
        return self._user("reader", "+@connection", "+@read", "+eval", "+evalsha")

    def login_that_writes(self) -> Mapping[str, str]:
        return self._user("writer", "+@all", "-@admin")

    def _user(self, name: str, *rights: str) -> Mapping[str, str]:
        """The login of a user who has these rights, for all keys."""
        with connect(self._address()) as client:
            settings = ("reset", "on", f">{_PASSWORD}", "~*", *rights)
            client.execute_command("ACL", "SETUSER", name, *settings)
        return {"stream.redis.user": name}

    def nowhere(self) -> Mapping[str, str]:
        return {"stream.redis.topic.name": "nowhere"}

    def acknowledged(self) -> Mapping[int, int]:
        found = {}
        with connect(self._address()) as client:
            for number in self.partitions():
                first = client.xrange(self._key(number), count=1)
                last = self._last(client, number)
                found[number] = _offset(first[0][0]) if first else last + 1
        return found

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        values = [str(number).encode() for number in numbers]
        return pa.record_batch({"value": pa.array(values, pa.binary())})

    def visible(self) -> Mapping[int, Sequence[int]]:
        with connect(self._address()) as client:
            # One transaction: all partitions as of one moment.
            reading = client.pipeline()
            for number in self.partitions():
                reading.xrange(self._key(number))
            return {
                number: [int(fields[b"value"]) for _, fields in entries]
                for number, entries in enumerate(reading.execute())
            }

    def staged(self) -> Mapping[str, bool]:
        with connect(self._address()) as client:
            keys = client.scan_iter(match=self._key("staged:*"))
            return {key.decode(): client.pttl(key) > 0 for key in keys}

    def close(self) -> None:
        if self.topic:
            with connect(self._address()) as client:
                client.delete(*client.scan_iter(match=self._key("*")), self.topic)

    def _describe(self, partitions: int) -> None:
        with connect(self._address()) as client:
            described = {"incarnation": uuid.uuid4().hex, "partitions": partitions}
            client.hset(self._key("topic"), mapping=described)

    def _append(self, partition: int, *entries: Mapping[str, Any]) -> Any:
        """Add entries, stored now; their ids."""
        with connect(self._address()) as client:
            first = self._last(client, partition) + 1
            seconds, micros = client.time()
            now = seconds * 1_000_000 + micros
            adding = client.pipeline(transaction=False)
            for number, fields in enumerate(entries, first):
                stored = {"stored": now, **fields}
                adding.xadd(self._key(partition), stored, id=_id(number))
            return adding.execute()

    def _last(self, client: Any, partition: int) -> int:
        """The offset of the last entry that a partition got."""
        key = self._key(partition)
        if not client.exists(key):
            return 0
        return _offset(client.xinfo_stream(key)["last-generated-id"])

    def _key(self, name: object) -> str:
        return f"{{{self.topic}}}:{name}"


class ForeignHarness(RedisHarness):
    """A stream of numbers that another program writes, with ids of the server's clock.

    It can be read: nothing of a topic is there.
    """

    single_partition: ClassVar = True
    reasons: ClassVar = {"rows": "streams of other programs are not written"}
    rows = visible = staged = grow = recreate = acknowledged = None  # type: ignore[assignment]

    def properties(self) -> Mapping[str, str]:
        deleting = {"stream.redis.delete.acknowledged": "false"}
        return {**super().properties(), **deleting}

    def partitions(self) -> Sequence[int]:
        return [0]

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self._append(partition, *({"value": str(number)} for number in numbers))

    def write_messages(self, partition: int, messages: Sequence[Message]) -> None:
        with connect(self._address()) as client:
            # Of a message without a time: that of the one before, or none.
            time = self._last(client, partition) // 2**22
            for message in messages:
                if message.timestamp_ms is not None:
                    time = message.timestamp_ms
                client.xadd(self.topic, _fields(message), id=f"{time}-*")

    def exceed(self, partition: int) -> None:
        with connect(self._address()) as client:
            # More entries of one millisecond than there are offsets.
            later = int(client.time()[0] + 3600) * 1000
            client.xadd(self.topic, {"value": "0"}, id=f"{later}-{2**22}")

    def _describe(self, partitions: int) -> None:
        with connect(self._address()) as client:
            client.xgroup_create(self.topic, "readers", mkstream=True)

    def _append(self, partition: int, *entries: Mapping[str, Any]) -> Any:
        with connect(self._address()) as client:
            adding = client.pipeline(transaction=False)
            for fields in entries:
                adding.xadd(self.topic, fields)
            return adding.execute()

    def _key(self, name: object) -> str:
        return self.topic
