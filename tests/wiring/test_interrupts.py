"""Ctrl-C ends waits, also after a library has had the system restart them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from tests.proving.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

SOON = 10.0
"""Seconds; mostly a quarter, but the machine may be busy. The waits are for longer."""

WAITS = """
import os, signal, socket, sys, threading, time
import pyarrow as pa
import streamfactory

# As handlers that are installed by other libraries do, for instance by Polars.
def restart_waits():
    signal.siginterrupt(signal.SIGINT, False)

def silent_server():
    listener = socket.create_server(("127.0.0.1", 0))
    connections = [listener]
    def accept():
        while True:
            connections.append(listener.accept()[0])
    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]

schema = pa.schema({"a": pa.int64()})
rows = pa.record_batch({"a": [1]}, schema)
folder = sys.argv[1]
file = {"streamType": "file", "stream.file.topic.name": "t", "stream.file.path": folder}
with streamfactory.open_sink({**file, "schema": "a bigint"}) as sink:
    sink.put(rows)
flight = {
    "streamType": "flight",
    "stream.flight.topic.name": "t",
    "stream.flight.location": f"grpc://127.0.0.1:{silent_server()}",
}
listening = {
    "streamType": "socket",
    "stream.socket.topic.name": "t",
    "stream.socket.listen": f"127.0.0.1:{sys.argv[2]}",
}
full, _unread = streamfactory.push_table(schema, capacity_batches=1)
full.write(rows)
_open, idle = streamfactory.push_table(schema)
_kept, kept = streamfactory.push_table(schema, keep="memory")
server = streamfactory.serve(memory=True)
followed = streamfactory.open(file, follow=True)
waits = {
    "write into a full push table": lambda: full.write(rows),
    "read an idle push table": lambda: next(iter(idle)),
    "read an idle table that keeps its rows": lambda: next(iter(kept)),
    "wait for a server process": server.wait,
    "iterate over a followed stream": lambda: next(iter(followed)),
    "wait for a batch": lambda: followed.next_batch(60),
    "open a stream of a silent server": lambda: streamfactory.open(flight),
    "open a listening stream": lambda: streamfactory.open(listening),
    "put into a silent server": lambda: streamfactory.open_sink(flight).put(rows),
}

def interrupt():
    global sent
    time.sleep(0.4)
    sent = time.monotonic()
    os.kill(os.getpid(), signal.SIGINT)

for name, wait in waits.items():
    restart_waits()
    threading.Thread(target=interrupt).start()
    try:
        wait()
    except KeyboardInterrupt:
        print(f"{name}: {time.monotonic() - sent}", flush=True)
server.close()
os._exit(0)
"""


def test_an_interrupt_ends_every_wait_soon(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WAITS, str(tmp_path), str(free_port())],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [line.split(": ") for line in done.stdout.splitlines()]
    seconds = {name: float(taken) for name, taken in lines}
    assert len(seconds) == 9, done.stderr
    assert max(seconds.values()) < SOON, seconds
    assert "no writer has sent a schema: waiting for up to" in done.stderr
