"""Asking for a schema, where that may take long."""

from __future__ import annotations

import threading
import time
import uuid

import pyarrow as pa
from tests.proving.ports import free_port

from streamfactory.backends.memory import store
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source


def source(properties: dict[str, str]) -> Source:
    manager = default_manager()
    return Source(configure(from_mapping(properties), manager, use="read"))


def test_a_source_that_waits_for_its_schema_holds_up_no_other() -> None:
    waiting = source(
        {
            "streamType": "socket",
            "stream.socket.listen": f"127.0.0.1:{free_port()}",
            "stream.socket.connection.timeout.millis": "1500",
        }
    )
    done = threading.Event()

    def wait() -> None:
        try:
            _ = waiting.schema
        except Exception:
            done.set()

    thread = threading.Thread(target=wait)
    thread.start()
    name = uuid.uuid4().hex
    store(name).create("t", pa.schema([pa.field("id", pa.int64())]))
    other = source(
        {
            "streamType": "memory",
            "stream.memory.store": name,
            "stream.memory.topic.name": "t",
        }
    )
    time.sleep(0.2)  # it waits by then; were it not so, nothing would be shown
    assert other.schema.names == ["id"]
    assert not done.is_set()
    thread.join(120)
    assert done.is_set()
    for one in (waiting, other):
        one.close()
