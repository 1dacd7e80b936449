"""The conformance kit's access to a broker: the client alone, nothing of the backend.

One ``mosquitto`` is started for the process. Sessions are made together with a stream:
a broker keeps no messages for sessions that are made later. Its log of packets shows
what was acknowledged.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

import paho.mqtt.client as paho
import pyarrow as pa
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from streamfactory.conformance import LocalServer, find_program

_START: Final = 30.0
"""Seconds in which a broker has to answer."""
_USER: Final = "harness"
_PASSWORD: Final = "harness-secret"
DENIED: Final = "denied"
"""The broker refuses messages below this topic."""


def make_server(folder: Path) -> LocalServer:
    """A ``mosquitto`` with a password, which stores its sessions when it ends.

    Its log has each packet.

    Args:
        folder: Where it stores its data.

    Raises:
        RuntimeError: The program is not installed.
    """
    program = find_program("mosquitto", "Debian: mosquitto")
    passwords = folder / "passwords"
    passwords.write_text(f"{_USER}:{_PASSWORD}\n")
    passwords.chmod(0o600)
    hashing = find_program("mosquitto_passwd", "Debian: mosquitto")
    subprocess.run([hashing, "-U", str(passwords)], check=True)
    rules = [f"user {_USER}", "topic readwrite #", f"topic deny {DENIED}/#"]
    (folder / "rules").write_text("\n".join(rules) + "\n")

    def command(port: int) -> list[str]:
        lines = [
            f"listener {port} 127.0.0.1",
            *(f"user {folder.owner()}", "allow_anonymous false"),
            *("password_file passwords", "acl_file rules"),
            *("persistence true", f"persistence_location {folder}/"),
            *("max_queued_messages 0", "set_tcp_nodelay true"),
        ]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        return [program, "-v", "-c", "mosquitto.conf"]

    return LocalServer(folder, command)


def session_of(client_id: str, topic_filter: str) -> str:
    """The name of the session of a filter."""
    return f"{client_id}-{hashlib.sha256(topic_filter.encode()).hexdigest()[:8]}"


@contextmanager
def connected(
    port: int, client_id: str = "", *, expiry: int = 0, clean: bool = True
) -> Iterator[paho.Client]:
    """A connected client; the session stays for some seconds."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
    client.username_pw_set(_USER, _PASSWORD)
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = expiry
    ready = threading.Event()
    client.on_connect = lambda *_: ready.set()
    client.connect("127.0.0.1", port, clean_start=clean, properties=properties)
    client.loop_start()
    try:
        assert ready.wait(_START)
        yield client
    finally:
        client.disconnect()
        client.loop_stop()


def make_session(port: int, client_id: str, topic_filter: str) -> None:
    """Make a session that receives from now on."""
    with connected(port, client_id, expiry=3600) as client:
        done = threading.Event()
        client.on_subscribe = lambda *_: done.set()
        client.subscribe(topic_filter, qos=1)
        assert done.wait(_START)


class _Subscriber:
    """Collects what is published below a topic."""

    def __init__(self, port: int, root: str) -> None:
        self._root, self._port = root, port
        self._payloads: dict[int, list[bytes]] = {}
        self._marks: set[bytes] = set()
        self._changed = threading.Condition()
        self._open = connected(port)
        client = self._open.__enter__()
        client.on_message = self._on_message
        done = threading.Event()
        client.on_subscribe = lambda *_: done.set()
        client.subscribe(f"{root}/#", qos=1)
        assert done.wait(_START)

    def numbers(self, partitions: int) -> dict[int, list[int]]:
        mark = uuid.uuid4().bytes
        with connected(self._port) as client:
            client.publish(f"{self._root}/mark", mark, qos=1).wait_for_publish(_START)
        with self._changed:
            assert self._changed.wait_for(lambda: mark in self._marks, _START)
            return {
                n: [int(payload) for payload in self._payloads.get(n, ())]
                for n in range(partitions)
            }

    def close(self) -> None:
        self._open.__exit__(None, None, None)

    def _on_message(self, _: Any, __: Any, message: Any) -> None:
        level = message.topic.rpartition("/")[2]
        with self._changed:
            if level == "mark":
                self._marks.add(message.payload)
            else:
                self._payloads.setdefault(int(level), []).append(message.payload)
            self._changed.notify_all()


class MqttHarness:
    """A stream of numbers. Each case gets a new one."""

    _server: ClassVar[LocalServer | None] = None

    def __init__(self, folder: Path) -> None:
        self.prepare()
        self._id, self._count = "", 0
        self._subscriber: _Subscriber | None = None

    @classmethod
    def prepare(cls) -> None:
        """Start the broker of this process, once."""
        if MqttHarness._server is not None:
            return
        folder = Path(tempfile.mkdtemp(prefix="mqtt-"))
        server = make_server(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(server.close)
        server.start()
        MqttHarness._server = server

    @classmethod
    def _port(cls) -> int:
        assert MqttHarness._server is not None
        return MqttHarness._server.port

    def create(self, partitions: int) -> None:
        self.close()
        self._id = uuid.uuid4().hex[:12]
        self._count = partitions
        for topic in self._topics():
            make_session(self._port(), session_of(self._id, topic), topic)
        self._subscriber = _Subscriber(self._port(), f"numbers/{self._id}")

    def properties(self) -> Mapping[str, str]:
        return {
            "streamType": "mqtt",
            "stream.mqtt.topic.name": "numbers",
            "stream.mqtt.address": f"127.0.0.1:{self._port()}",
            "stream.mqtt.user": _USER,
            "stream.mqtt.password": _PASSWORD,
            "stream.mqtt.decoder.class.name": "raw",
            "stream.mqtt.filters": ",".join(self._topics()),
            "stream.mqtt.client.id": self._id,
            "stream.mqtt.acknowledge": "stored",
            "stream.mqtt.publish.topic": f"numbers/{self._id}/{{partition}}",
            "stream.mqtt.partitions": str(self._count),
        }

    def _topics(self) -> list[str]:
        return [f"numbers/{self._id}/{number}" for number in range(self._count)]

    def partitions(self) -> Sequence[int]:
        return range(self._count)

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        with connected(self._port()) as client:
            topic = self._topics()[partition]
            sent = [client.publish(topic, str(n).encode(), qos=1) for n in numbers]
            for one in sent:
                one.wait_for_publish(_START)

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        return [int(value) for value in rows.column("value").to_pylist()]

    def acknowledged(self) -> Mapping[int, int]:
        assert MqttHarness._server is not None
        log = MqttHarness._server.log
        names = [session_of(self._id, topic) for topic in self._topics()]
        counts = [log.count(f"Received PUBACK from {name} ") for name in names]
        return dict(enumerate(counts))

    def freeze(self) -> None:
        assert MqttHarness._server is not None
        MqttHarness._server.freeze()

    def thaw(self) -> None:
        assert MqttHarness._server is not None
        MqttHarness._server.thaw()

    def refused_login(self) -> Mapping[str, str]:
        return {"stream.mqtt.password": "another"}

    def stop(self) -> None:
        assert MqttHarness._server is not None
        MqttHarness._server.stop()

    def start(self) -> None:
        assert MqttHarness._server is not None
        MqttHarness._server.start()

    def rows(self, numbers: Sequence[int]) -> pa.RecordBatch:
        values = [str(number).encode() for number in numbers]
        return pa.record_batch({"value": pa.array(values, pa.binary())})

    def visible(self) -> Mapping[int, Sequence[int]]:
        assert self._subscriber is not None
        return self._subscriber.numbers(self._count)

    def close(self) -> None:
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is None:
            return
        subscriber.close()
        for topic in self._topics():
            with connected(self._port(), session_of(self._id, topic)):
                pass  # a clean start ends the session
