"""What a spool costs: its transport and its log alone, in the same rounds.

    python benchmarks/spool.py [--json] [--rounds N] [--scale SHARE]

Throughput: the same batches read from a socket and dropped, committed to a log, and
received into a spool; the ratio is that of the slower of the first two to the third.
The sender is another process. Latency: one row at a time from a sender to a reader of
the socket, and to a reader of the spool behind it, whose receiver is another process.
`spool.fsync` is never, and always in the lines that say so; nothing is gated.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import AGAIN, figure, itself, ratios, report, shuffled
from benchmarks.measuring.rows import batches

import streamfactory
from streamfactory import arrowipc as ipc
from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Partition, StreamError, Summary
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.receiving.receiver import StreamReceiver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measuring.figures import Figure

    from streamfactory.wiring.streams.stream import Stream

ROWS = (64_000, 8_000)
"""Of a batch."""
SIZE = 512 << 20
"""Bytes that are moved."""
DISTINCT = 32 << 20
"""Bytes of them that differ."""
TRIPS = 300
PAUSE = 0.002
"""Seconds between two rows."""
NUMBERS = pa.schema([pa.field("number", pa.int64())])
COMMITTED = 8 << 20
"""Bytes that a commit of the bare log has."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the bytes")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        port, rows, size = map(int, arguments.child)
        send(port, rows, size)
        return
    size = int(SIZE * arguments.scale)
    figures = (
        one
        for part in (
            *(throughput(rows, size, arguments.rounds) for rows in ROWS),
            latency(arguments.rounds, "never"),
            latency(arguments.rounds, "always"),
        )
        for one in part
    )
    report(figures, as_json=arguments.json)


# --- throughput -------------------------------------------------------------------


def throughput(rows: int, size: int, rounds: int) -> Iterator[Figure]:
    """The spool against the slower of its parts."""
    sides: dict[str, Callable[[int, int], float]] = {
        "transport": over_transport,
        AGAIN: over_transport,
        "log": into_log,
        "spool": into_spool,
    }
    took: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in shuffled(sides):
            one = side(rows, size)
            if number:
                took[name].append(one)
    slower = [max(pair) for pair in zip(took["transport"], took["log"], strict=True)]
    beside = {
        f"{name}, MB/s": size / statistics.median(times) / 1e6
        for name, times in took.items()
        if name != AGAIN
    }
    title = f"{rows // 1000}k rows into a spool"
    shares, again = ratios(slower, took["spool"]), itself(took)
    yield figure(title, shares, "x part", ">= 0.8", beside, again=again)


def over_transport(rows: int, size: int) -> float:
    """Seconds to read all from the socket."""
    with sender(rows, size) as (port, wanted, begin):
        made = configure(from_mapping(wire(port)), default_manager(), use="read")
        source = Source(made)
        reader = source.reader(Partition(made.config.topic, 0))
        with contextlib.closing(source), contextlib.closing(reader):
            begun, at = begin(), 0
            while at < wanted:
                at = reader.fetch(at, timeout=5.0).next_offset
            return time.perf_counter() - begun


def into_log(rows: int, size: int) -> float:
    """Seconds to commit all to a log."""
    found = batches(rows, min(size, DISTINCT))
    with tempfile.TemporaryDirectory() as folder:
        store = DiskLogStore(LocalStorage(Path(folder), fsync="never"), Settings())
        log = store.create("rows", found[0].schema)
        begun, moved, epoch = time.perf_counter(), 0, 0
        while moved < size:
            stage, staged, count = log.stage(uuid.uuid4().hex), 0, 0
            while staged < COMMITTED and moved < size:
                batch = found[(moved // 1024) % len(found)]
                stage.append(0, batch)
                staged += batch.nbytes
                moved += batch.nbytes
                count += batch.num_rows
            log.commit(Epoch("w", epoch, [stage.seal()], Summary(count), instance=""))
            epoch += 1
        took = time.perf_counter() - begun
        store.close()
    return took


def into_spool(rows: int, size: int) -> float:
    """Seconds until all is stored in a spool."""
    with (
        tempfile.TemporaryDirectory() as folder,
        sender(rows, size) as (port, wanted, begin),
    ):
        made = configure(
            from_mapping({**wire(port), **spool(folder, "never")}),
            default_manager(),
            use="read",
        )
        receiver = StreamReceiver(made)
        receiver.start()
        with contextlib.closing(receiver):
            assert receiver.wait_ready(60)
            log = receiver.store.open(made.config.topic)
            begun, at = begin(), 0
            while at < wanted:
                log.wait(0, at, 5.0)
                at = log.bounds()[0].latest
            return time.perf_counter() - begun


@contextlib.contextmanager
def sender(rows: int, size: int) -> Iterator[tuple[int, int, Callable[[], float]]]:
    """A process that sends on request: its port, its rows, and the request."""
    port = free_port()
    line = [sys.executable, __file__, "--child", str(port), str(rows), str(size)]
    process = subprocess.Popen(  # noqa: S603 - our own
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin = process.stdin
    wanted = int(process.stdout.readline())

    def begin() -> float:
        stdin.write("go\n")
        stdin.flush()
        return time.perf_counter()

    try:
        yield port, wanted, begin
    finally:
        process.kill()
        process.communicate()


def send(port: int, rows: int, size: int) -> None:
    """Send batches to each connection, on request. In the child."""
    found = batches(rows, min(size, DISTINCT))
    count = -(-size // found[0].nbytes)
    with socket.create_server(("127.0.0.1", port)) as listener:
        print(count * rows, flush=True)
        connection, _ = listener.accept()
        with connection:
            connection.sendall(found[0].schema.serialize())
            sys.stdin.readline()
            messages = [batch.serialize() for batch in found]
            for number in range(count):
                connection.sendall(messages[number % len(messages)])
            connection.sendall(ipc.END)
            sys.stdin.readline()


# --- latency ----------------------------------------------------------------------


def latency(rounds: int, fsync: str) -> Iterator[Figure]:
    """What the spool adds to the way of a row."""
    direct, behind = [], []
    for _ in range(rounds):
        direct.append(trips(None))
        with tempfile.TemporaryDirectory() as folder:
            behind.append(trips(spool(folder, fsync)))
    added = [b - a for a, b in zip(direct, behind, strict=True)]
    beside = {"socket alone, ms": statistics.median(direct)}
    goal = "< 5" if fsync == "never" else "none"
    title = f"added to a row, p50, spool.fsync={fsync}"
    yield figure(title, added, "ms", goal, beside)


def trips(spooled: dict[str, str] | None) -> float:
    """The median of milliseconds from a send to its row at a reader."""
    port = free_port()
    properties = {**wire(port), **(spooled or {})}
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", port)))
        if spooled is not None:
            stack.enter_context(service(properties, Path(spooled["spool.path"])))
        with ThreadPoolExecutor(1) as pool:
            opening = pool.submit(until_there, properties)
            connection = stack.enter_context(listener.accept()[0])
            connection.sendall(NUMBERS.serialize())
            stream = stack.enter_context(opening.result())
        took = []
        for number in range(TRIPS):
            time.sleep(PAUSE)
            begun = time.perf_counter()
            row = pa.record_batch([[number]], schema=NUMBERS)
            connection.sendall(row.serialize())
            while (batch := stream.next_batch(5.0)) is None or not batch.num_rows:
                pass
            took.append((time.perf_counter() - begun) * 1000)
        return statistics.median(took)


def until_there(properties: dict[str, str]) -> Stream:
    """The stream, as soon as it can be opened."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return streamfactory.open(properties, follow=True, start="earliest")
        except StreamError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


@contextlib.contextmanager
def service(properties: dict[str, str], folder: Path) -> Iterator[None]:
    """The command `spool`, in a separate process."""
    path = folder.with_suffix(".json")
    path.write_text(json.dumps({"name": "bench", "properties": properties}))
    line = [sys.executable, "-m", "streamfactory", "spool", str(path)]
    process = subprocess.Popen(  # noqa: S603 - our own
        line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.kill()
        process.wait()


def wire(port: int) -> dict[str, str]:
    """A stream that connects to a sender."""
    return {
        "streamType": "socket",
        "stream.socket.topic.name": "rows",
        "stream.socket.connect": f"127.0.0.1:{port}",
    }


def spool(folder: str, fsync: str) -> dict[str, str]:
    """Its spool."""
    return {"spool.path": f"{folder}/spool", "spool.fsync": fsync}


def free_port() -> int:
    """A free port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
