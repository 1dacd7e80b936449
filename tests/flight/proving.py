"""The Flight server, its writers and its readers, killed and started again."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from pathlib import Path
from typing import Final

from tests.proving.children import DEADLINE, Pack
from tests.proving.copies import copy_numbers, last_commit, until_done
from tests.proving.numbers import SCHEMA, batch, everything, numbers_of, store_at
from tests.proving.ports import free_port
from tests.proving.verdict import Verdict, compared

from streamfactory.spi import StreamError
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.serving.servers import open_server
from streamfactory.wiring.streams.opening import open_sink

SMALL: Final = 5
LARGE: Final = 20_000
"""Rows of an epoch: small ones travel with their commit, large ones are uploaded."""
LONGEST: Final = {"serve": 0.4, "write": 0.3, "read": 0.3}
"""Seconds that one that is killed may have run, by role."""


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Kill so many of them, then compare what was written and read."""
    chance, port = random.Random(seed), free_port()
    store = store_at(root)
    store.create("in", SCHEMA, 3)
    store.create("out", SCHEMA)
    roles = {"serve": serve, "write": write, "read": read}
    pack = Pack({name: (role, str(root), port) for name, role in roles.items()})
    try:
        pack.hunt(rounds, chance, LONGEST, lambda: wait_for(port))
        for name, marker in (("write", "stop"), ("read", "drain")):
            (root / marker).touch()
            pack.finish(name)
    finally:
        pack.close()
    log = store.open("in")
    held = log.last("writer")
    epochs = 0 if held is None else held.epoch + 1
    partitions, out = everything(log), numbers_of(store.open("out"))
    store.close()
    wanted = {"all": sorted(n for epoch in range(epochs) for n in numbers(epoch))}
    written = {"all": sorted(n for some in partitions.values() for n in some)}
    verdict = compared(wanted, written)
    verdict += compared({"read": written["all"]}, {"read": sorted(out)})
    verdict.kills = rounds
    return verdict


def numbers(epoch: int) -> range:
    """The rows of an epoch."""
    start = epoch * LARGE
    return range(start, start + (LARGE if epoch % 7 == 6 else SMALL))


def serve(root: str, port: int) -> None:
    settings = {"address": f"127.0.0.1:{port}", "path": root, "fsync": "never"}
    given = [Property(key, text, "argument") for key, text in settings.items()]
    deadline = time.monotonic() + DEADLINE
    while True:
        try:
            open_server("flight", given)
        except StreamError:  # the port of the one that was killed
            assert time.monotonic() < deadline
            time.sleep(0.05)
        else:
            threading.Event().wait()


def write(root: str, port: int) -> None:
    def attempt() -> None:
        options = {"producer.key.columns": "number"}
        with open_sink(stream(port, "in"), options=options) as sink:
            held = last_commit(sink, "writer")
            epoch = 0 if held is None else held.epoch + 1
            while not Path(root, "stop").exists():
                sink.put(batch(numbers(epoch)), writer_id="writer", epoch=epoch)
                epoch += 1

    until_done(attempt, seconds=10 * DEADLINE)


def read(root: str, port: int) -> None:
    def attempt() -> None:
        source, target = stream(port, "in"), stream(port, "out")
        copy_numbers(source, target, Path(root, "drain"))

    until_done(attempt, seconds=10 * DEADLINE)


def stream(port: int, topic: str) -> dict[str, str]:
    return {
        "streamType": "flight",
        "stream.flight.location": f"grpc://127.0.0.1:{port}",
        "stream.flight.topic.name": topic,
        "stream.flight.connection.timeout.millis": "5000",
    }


def wait_for(port: int) -> None:
    """Return when the server listens."""
    deadline = time.monotonic() + DEADLINE
    while True:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        assert time.monotonic() < deadline, "the server does not listen"
        time.sleep(0.02)
