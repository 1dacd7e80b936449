"""Positions of sessions, kept in the broker as retained messages.

MQTT has no offsets: a session keeps what was not acknowledged, and nothing tells how
much that was. So each session has a retained message with its incarnation, the offset
before which all messages were acknowledged, and one that no message had yet.
"""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from streamfactory import spi

from streamfactory_mqtt.client import Client


@dataclass(frozen=True)
class Kept:
    """What is kept of a session."""

    incarnation: str
    acknowledged: int = 0
    """Offset before which all messages were acknowledged; published before they are."""
    unused: int = 0
    """Offset at or after which no message was handed out."""


class Positions:
    """The retained messages of the sessions of a ``client.id``. Thread-safe.

    Args:
        config: The stream's configuration.
    """

    def __init__(self, config: spi.StreamConfig) -> None:
        self._config = config
        self._prefix = f"{config['position.topic']}/{config['client.id']}"
        self._found: dict[str, Kept] = {}
        self._read = threading.Event()
        self._probe = uuid.uuid4().bytes
        self._client: Client | None = None

    def open(self) -> None:
        """Read what is kept.

        Raises:
            StreamError: The broker cannot be used; nothing is left open.
        """
        client = Client(self._config)
        client.paho.on_message = self._on_message
        client.open(clean=True)
        try:
            client.paho.subscribe(f"{self._prefix}/#", qos=1)
            # A broker sends retained messages before those that are published later.
            client.publish(f"{self._prefix}/probe", self._probe)
            if not self._read.wait(client.timeout):
                msg = f"nothing is received from {self._prefix}/#"
                remedy = "allow this user to publish and subscribe there"
                raise spi.NotAuthorized(msg, remedy=remedy)
            client.paho.unsubscribe(f"{self._prefix}/#")
        except BaseException:
            client.close()
            raise
        self._client = client

    def get(self, name: str) -> Kept | None:
        """What is kept of a session."""
        return self._found.get(name)

    def put(self, name: str, kept: Kept) -> None:
        """Keep it; returns when the broker has it.

        Raises:
            StreamError: It is not sure that the broker has it.
        """
        assert self._client is not None
        self._client.wait()
        text = json.dumps(asdict(kept)).encode()
        self._client.publish(f"{self._prefix}/{name}", text, retain=True)
        self._found[name] = kept

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()

    def _on_message(self, _: Any, __: Any, message: Any) -> None:
        name = message.topic.rpartition("/")[2]
        if self._read.is_set():
            return
        if name == "probe":
            if message.payload == self._probe:
                self._read.set()
            return
        kept = _parse(message.payload)
        if kept is not None:
            self._found[name] = kept


def _parse(payload: bytes) -> Kept | None:
    """The content of a message; None if it is another program's."""
    try:
        found = json.loads(payload)
        kept = Kept(
            str(found["incarnation"]),
            int(found["acknowledged"]),
            int(found["unused"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return kept if 0 <= kept.acknowledged <= kept.unused < 2**62 else None
