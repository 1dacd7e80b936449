"""Positions of sessions, kept in the broker as retained messages.

MQTT has no offsets: a session keeps what was not acknowledged, and nothing tells how
much that was. So each session has a retained message with its incarnation, the offset
before which all messages were acknowledged, and one that no message had yet.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Collection, Iterable
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
    """No message at or after this offset was handed out; 0 before the first session."""

    def to_json(self) -> bytes:
        """The content of a message."""
        return json.dumps(asdict(self)).encode()


class Positions(Client):
    """The retained messages of the sessions of a ``client.id``. Thread-safe.

    It only reads: a session keeps its position over its own connection, which the
    broker closes when another process takes the session.

    Args:
        config: The stream's configuration.
        names: Of the sessions; messages of other names are ignored.
    """

    def __init__(self, config: spi.StreamConfig, names: Collection[str]) -> None:
        super().__init__(config)
        self._names = frozenset(names)
        self.prefix = f"{config['position.topic']}/{config['client.id']}"
        self._found: dict[str, Kept] = {}
        self._probe = f"probe-{uuid.uuid4().hex}"
        self._lock = threading.Condition()
        self._answered = self._asked = 0
        self.paho.on_message = self._on_message

    def connected(self, session_present: bool) -> bool:
        self.paho.subscribe(f"{self.prefix}/#", qos=1)
        return True

    def fetch(self, names: Iterable[str]) -> list[Kept]:
        """What is kept of sessions now; of a new one its incarnation, from now on.

        Raises:
            StreamError: The broker cannot be used.
        """
        self._refresh()
        kept = []
        for name in names:
            if name not in self._found:
                new = Kept(uuid.uuid4().hex)
                self.publish(f"{self.prefix}/{name}", new.to_json(), retain=True)
                self._found.setdefault(name, new)
            kept.append(self._found[name])
        return kept

    def _refresh(self) -> None:
        self.wait()
        with self._lock:
            self._asked += 1
            asked = self._asked
        # A broker sends retained messages before those that are published later.
        self.publish(f"{self.prefix}/{self._probe}", str(asked).encode())
        with self._lock:
            if not self._lock.wait_for(lambda: self._answered >= asked, self.timeout):
                msg = f"nothing is received from {self.prefix}/#"
                remedy = "allow this user to publish and subscribe there"
                raise spi.NotAuthorized(msg, remedy=remedy)

    def _on_message(self, _: Any, __: Any, message: Any) -> None:
        name, kept = message.topic.rpartition("/")[2], _parse(message.payload)
        with self._lock:
            if name == self._probe and message.payload.isdigit():
                self._answered = max(self._answered, int(message.payload))
                self._lock.notify_all()
            elif kept is not None and name in self._names:
                self._found[name] = kept


def _parse(payload: bytes) -> Kept | None:
    """The content of a message; None if it is another program's."""
    try:
        found = json.loads(payload)
        values = found["incarnation"], found["acknowledged"], found["unused"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if [*map(type, values)] != [str, int, int]:
        return None
    kept = Kept(*values)
    return kept if 0 <= kept.acknowledged <= kept.unused < 2**62 else None
