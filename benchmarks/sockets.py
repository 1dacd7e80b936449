"""What `socket` makes of a raw socket: the same bytes, in the same rounds.

    python benchmarks/sockets.py [--json] [--rounds N]

The sender is another process, on another core where that can be said. Ratios are
medians of rounds that take turns; nothing is gated. Raw is `sendall` of 1 MB into
`recv_into`; of 1k rows it serializes each batch.

Beside the ratio of seconds stands that of processor time, of the busier side each: what
the other ratio comes to on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamfactory.spi import (
    Failed,
    FetchLimits,
    Finished,
    Outgoing,
    Partition,
    WriteContext,
)
from streamfactory.wiring.configure import configure
from streamfactory.wiring.definition import from_mapping
from streamfactory.wiring.plugins import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUFFER = 4 * 1024**2
PIECE = 1024**2
VOLUME = 400_000_000
"""Bytes of one run."""
DISTINCT = 64_000_000
"""Bytes of distinct batches, which are cycled: sources come from main memory."""
TRIPS = 2_000
GOALS = {
    ("tcp", 64_000): 0.95,
    ("tcp", 8_000): 0.95,
    ("tcp", 1_000): 0.85,
    ("unix", 64_000): 0.85,
    ("unix", 8_000): 0.85,
}


@dataclass
class Figure:
    """One line of the report."""

    name: str
    value: float
    unit: str
    goal: str
    rounds: int
    spread: float
    busy: float | None = None
    """The same by processor time."""

    def __str__(self) -> str:
        busy = "" if self.busy is None else f", by processor time {self.busy:.2f}"
        return (
            f"{self.name:<46} {self.value:>9.2f} {self.unit:<5} goal {self.goal:<8}"
            f" rounds {self.rounds}, spread {self.spread:.2f}{busy}"
        )


class Watch:
    """Seconds from when it was made, by the clock and of the processor."""

    def __init__(self) -> None:
        self._started, self._busy = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        """Both."""
        return time.perf_counter() - self._started, time.process_time() - self._busy


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    on_core(0 if arguments.child else 1)
    if arguments.child:
        what, medium, where, rows = arguments.child
        CHILDREN[what](medium, where, int(rows))
        return
    figures = [*stream_figures(arguments.rounds), *trip_figures(arguments.rounds)]
    if arguments.json:
        print(json.dumps([vars(figure) for figure in figures]))
    else:
        print("\n".join(map(str, figures)))


def on_core(number: int) -> None:
    """Stay on one core: two processes that meet on one by chance measure chance."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {number % (os.cpu_count() or 1)})


# --- figures ----------------------------------------------------------------------


def stream_figures(rounds: int) -> list[Figure]:
    """Throughput, as a share of raw."""
    runs: dict[tuple[str, int], list[tuple[float, float]]] = {key: [] for key in GOALS}
    for _ in range(rounds):
        for (medium, rows), ratios in runs.items():
            pair = [("raw", read_raw), ("ours", read_ours)]
            random.shuffle(pair)
            took = {n: run(f"{n}_sender", f, medium, rows) for n, f in pair}
            (raw, raw_busy), (ours, busy) = took["raw"], took["ours"]
            ratios.append((raw / ours, raw_busy / busy))
    figures = []
    for ((medium, rows), ratios), goal in zip(
        runs.items(), GOALS.values(), strict=True
    ):
        by_clock, by_processor = zip(*ratios, strict=True)
        name = f"{rows // 1000}k rows, {medium}"
        made = figure(name, list(by_clock), "x raw", f">= {goal}")
        made.busy = statistics.median(by_processor)
        figures.append(made)
    return figures


def trip_figures(rounds: int) -> list[Figure]:
    """A row there and back, as a multiple of a bare echo."""
    figures = []
    for medium in ("tcp", "unix"):
        ratios = []
        for _ in range(rounds):
            bare, _ = run("bare_echo", trips_bare, medium, 1)
            ours, _ = run("our_echo", trips_ours, medium, 1)
            ratios.append(ours / bare)
        figures.append(
            figure(f"round trip of a row, {medium}", ratios, "x echo", "<= 2")
        )
    return figures


def run(
    child: str,
    parent: Callable[[str, str], tuple[float, float]],
    medium: str,
    rows: int,
) -> tuple[float, float]:
    """Seconds of the parent's side, over a socket of its own, and of the busier one."""
    with tempfile.TemporaryDirectory() as folder:
        where = folder if medium == "unix" else str(free_ports())
        command = [sys.executable, __file__, "--child", child, medium, where, str(rows)]
        with subprocess.Popen(  # noqa: S603 - ourselves
            command, stdout=subprocess.PIPE, text=True
        ) as process:
            seconds, busy = parent(medium, where)
            told, _ = process.communicate()
        return seconds, max(busy, float(told or 0))


def figure(name: str, values: list[float], unit: str, goal: str) -> Figure:
    """Median and spread of some rounds."""
    spread = max(values) - min(values)
    return Figure(name, statistics.median(values), unit, goal, len(values), spread)


# --- what is moved ----------------------------------------------------------------


def batches(rows: int) -> list[pa.RecordBatch]:
    """Distinct batches of about 57 bytes a row."""
    chance = random.Random(1)
    keys = pa.array(["k" * chance.randint(12, 24) for _ in range(rows)])
    notes = pa.array(
        [None if chance.random() < 0.3 else f"note {n}" for n in range(rows)]
    )
    found: list[pa.RecordBatch] = []
    size = 0
    while size < DISTINCT:
        start = len(found) * rows
        numbers = pa.arange(start, start + rows)
        columns = {
            "offset": numbers,
            "ts": numbers.cast(pa.timestamp("us")),
            "key": pa.concat_arrays([keys]),
            "qty": numbers.cast(pa.int32()),
            "price": numbers.cast(pa.float64()),
            "note": pa.concat_arrays([notes]),
        }
        rows_of = pa.RecordBatch.from_pydict(columns)
        # A copy of its own, as a program that made it would have.
        message = rows_of.serialize()
        found.append(pa.ipc.read_record_batch(message, rows_of.schema))
        size += message.size
    return found


def enough(found: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches in a cycle, up to the volume of a run."""
    size, each = 0, found[0].serialize().size
    for batch in itertools.cycle(found):
        yield batch
        size += each
        if size >= VOLUME:
            return


# --- raw --------------------------------------------------------------------------


def raw_sender(medium: str, where: str, rows: int) -> None:
    """Send the bytes of the batches as they are, or serialize each."""
    found = batches(rows)
    with closing(listening(medium, where)) as server:
        connection, _ = server.accept()
    with connection:
        if rows <= 1_000:
            watch = Watch()
            for batch in enough(found):
                connection.sendall(batch.serialize())
            print(watch.read()[1])
            return
        messages = [memoryview(batch.serialize()) for batch in found]
        size = sum(len(m) for m, _ in zip(itertools.cycle(messages), enough(found)))
        source = memoryview(b"".join(messages))
        watch = Watch()
        for start in itertools.cycle(range(0, len(source) - PIECE, PIECE)):
            connection.sendall(source[start : start + min(PIECE, size)])
            size -= PIECE
            if size <= 0:
                print(watch.read()[1])
                return


def read_raw(medium: str, where: str) -> tuple[float, float]:
    """Read until there is no more."""
    buffer = bytearray(PIECE)
    with connected(medium, where) as connection:
        connection.recv_into(buffer)
        watch = Watch()
        while connection.recv_into(buffer):
            pass
        return watch.read()


def bare_echo(medium: str, where: str, _rows: int) -> None:
    """Send back whatever comes."""
    with closing(listening(medium, where)) as server:
        connection, _ = server.accept()
    with connection:
        while data := connection.recv(4096):
            connection.sendall(data)


def trips_bare(medium: str, where: str) -> tuple[float, float]:
    """Send the bytes of a row there and back."""
    message = batch_of_one().serialize().to_pybytes()
    with connected(medium, where) as connection:
        seconds = []
        for _ in range(TRIPS):
            started = time.perf_counter()
            connection.sendall(message)
            left = len(message)
            while left:
                left -= len(connection.recv(4096))
            seconds.append(time.perf_counter() - started)
    return statistics.median(seconds), 0.0


def listening(medium: str, where: str) -> socket.socket:
    """A server that has the buffers of ours."""
    family = socket.AF_UNIX if medium == "unix" else socket.AF_INET
    server = socket.socket(family)
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        server.setsockopt(socket.SOL_SOCKET, option, BUFFER)
    if medium == "tcp":
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.bind(("127.0.0.1", int(where)))
    else:
        server.bind(f"{where}/0")
    server.listen()
    return server


def connected(medium: str, where: str) -> socket.socket:
    """A connection, as soon as somebody listens."""
    deadline = time.monotonic() + 60
    while True:
        family = socket.AF_UNIX if medium == "unix" else socket.AF_INET
        made = socket.socket(family)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            made.setsockopt(socket.SOL_SOCKET, option, BUFFER)
        if medium == "tcp":
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            made.connect(
                f"{where}/0" if medium == "unix" else ("127.0.0.1", int(where))
            )
        except OSError:
            made.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return made


def free_ports() -> int:
    """The first of two ports that nobody has."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


# --- ours -------------------------------------------------------------------------


def ours_sender(medium: str, where: str, rows: int) -> None:
    """Write the batches by the backend's writer."""
    found = batches(rows)
    factory, writer = writing(medium, where, 0, found[0].schema, way="listen")
    with closing(factory):
        watch = Watch()
        for batch in enough(found):
            writer.write(Outgoing(batch, 0))
        factory.end_stream(Finished())
        print(watch.read()[1])
        writer.close()


def read_ours(medium: str, where: str) -> tuple[float, float]:
    """Read by the backend's consumer until the end."""
    factory, consumer = reading(medium, where, 0, way="connect")
    limits = FetchLimits(65_536, 8 * 1024**2, 60.0)
    at, watch, end = 0, None, None
    with closing(factory), closing(consumer):
        while end is None:
            fetched = consumer.fetch_messages(at, None, limits)
            at, end = fetched.next_offset, fetched.end
            if watch is None and fetched.rows is not None:
                watch = Watch()
    if watch is None or isinstance(end, Failed):
        sys.exit(f"the stream ended: {end}")
    return watch.read()


def our_echo(medium: str, where: str, _rows: int) -> None:
    """Write back whatever is read."""
    reader, consumer = reading(medium, where, 0, way="listen")
    writer_of, writer = writing(medium, where, 1, batch_of_one().schema, way="connect")
    limits = FetchLimits(65_536, 8 * 1024**2, 60.0)
    at, end = 0, None
    with closing(reader), closing(consumer), closing(writer_of), closing(writer):
        while end is None:
            fetched = consumer.fetch_messages(at, None, limits)
            at, end = fetched.next_offset, fetched.end
            if fetched.rows is not None:
                writer.write(Outgoing(fetched.rows, 0))
        writer_of.end_stream(Finished())


def trips_ours(medium: str, where: str) -> tuple[float, float]:
    """Write a row, and read it back."""
    row = batch_of_one()
    reader, consumer = reading(medium, where, 1, way="listen")
    writer_of, writer = writing(medium, where, 0, row.schema, way="connect")
    limits = FetchLimits(65_536, 8 * 1024**2, 60.0)
    seconds, at = [], 0
    with closing(reader), closing(consumer), closing(writer_of), closing(writer):
        # Listens at once: the other process connects when it has the first row.
        consumer.fetch_messages(0, None, FetchLimits(1, 1, 0.0))
        for _ in range(TRIPS):
            started = time.perf_counter()
            writer.write(Outgoing(row, 0))
            rows = None
            while rows is None:
                fetched = consumer.fetch_messages(at, None, limits)
                at, rows = fetched.next_offset, fetched.rows
            seconds.append(time.perf_counter() - started)
        writer_of.end_stream(Finished())
        consumer.fetch_messages(at, None, limits)
    return statistics.median(seconds), 0.0


def batch_of_one() -> pa.RecordBatch:
    """A row of the schema of `batches`."""
    columns = {
        "offset": pa.array([1]),
        "ts": pa.array([1], pa.timestamp("us")),
        "key": pa.array(["k" * 18]),
        "qty": pa.array([1], pa.int32()),
        "price": pa.array([1.0]),
        "note": pa.array(["note 1"]),
    }
    return pa.RecordBatch.from_pydict(columns)


def writing(
    medium: str, where: str, lane: int, schema: pa.Schema, *, way: str
) -> tuple[Any, Any]:
    """The backend's factory and writer."""
    made = configured(medium, where, lane, way, "write")
    factory = made.backend.producer_factory(made.config)
    context = WriteContext(None, 0, 0, "benchmark", schema=schema)
    return factory, factory.create_writer(context)


def reading(medium: str, where: str, lane: int, *, way: str) -> tuple[Any, Any]:
    """The backend's factory and consumer."""
    made = configured(medium, where, lane, way, "read")
    factory = made.backend.consumer_factory(made.config)
    partition = Partition("rows", 0)
    return factory, factory.create_partition_level_consumer("benchmark", partition)


def configured(medium: str, where: str, lane: int, way: str, use: str) -> Any:
    """The configuration, checked."""
    unix = f"unix:{where}/{lane}"
    address = unix if medium == "unix" else f"127.0.0.1:{int(where) + lane}"
    properties = {"streamType": "socket", f"stream.socket.{way}": address}
    return configure(from_mapping(properties), default_manager(), use=use)


CHILDREN: dict[str, Callable[[str, str, int], None]] = {
    "raw_sender": raw_sender,
    "ours_sender": ours_sender,
    "bare_echo": bare_echo,
    "our_echo": our_echo,
}

if __name__ == "__main__":
    main()
