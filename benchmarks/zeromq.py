"""What `zeromq` makes of bare pyzmq: the same rows, in the same rounds.

    python benchmarks/zeromq.py [--json] [--rounds N]

PUSH and PULL; the sender is another process, on another core where possible. Bare
is ``send(batch.serialize(), copy=False)`` into ``recv(copy=False)``; of messages of
100 bytes, one send and one recv for each, where ours packs ten thousand into a frame.
Ratios are medians of rounds that take turns; nothing is gated. Beside the ratio of
seconds stands that of processor time, of the busier side each, and the same of a bare
reader that validates what it receives, which no reader of foreign bytes can leave out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import zmq

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.children import answer, child
from benchmarks.measuring.figures import figure, report
from benchmarks.wire.moved import (
    MEGABYTES,
    VOLUME,
    Watch,
    batch_of_one,
    distinct,
    enough,
)

from streamfactory.spi import (
    BatchValidator,
    FetchLimits,
    Finished,
    Outgoing,
    Partition,
    WriteContext,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.measuring.figures import Figure

GOALS = {
    ("tcp", 64_000): 0.9,
    ("tcp", 8_000): 0.9,
    ("ipc", 64_000): 0.9,
    ("ipc", 8_000): 0.9,
}
RECORDS, PACKED = 200_000, 10_000
"""Messages of 100 bytes; and how many of them a writer hands over at once."""
AGAIN, AGAIN_SINGLES = "bare again", "singles again"
"""Sides that are the bare ones once more, for the noise."""
MARK = 8
"""Messages that are queued."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="of a run")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault(VOLUME, str(arguments.megabytes))
    if hasattr(os, "sched_setaffinity"):
        core = 0 if arguments.child else 1
        os.sched_setaffinity(0, {core % (os.cpu_count() or 1)})
    if arguments.child:
        what, where, rows = arguments.child
        print(json.dumps(SENDERS[what](where, int(rows)).read()[1]))
        return
    report(figures(arguments.rounds), as_json=arguments.json)


def figures(rounds: int) -> Iterator[Figure]:
    """Throughput, as a share of bare pyzmq."""
    for (medium, rows), goal in GOALS.items():
        name = f"{rows // 1000}k rows, {medium}"
        sides = ("bare", "ours", "validated", AGAIN)
        found = [shares(medium, rows, *sides) for _ in range(rounds)]
        yield figured(name, found, f">= {goal}")
    for medium in ("tcp", "ipc"):
        sides_ = ("singles", "packed", AGAIN_SINGLES)
        found = [shares(medium, 0, *sides_) for _ in range(rounds)]
        yield figured(f"100-byte messages, packed, {medium}", found, ">= 10")


def figured(
    name: str, rounds: Sequence[Sequence[tuple[float, float]]], goal: str
) -> Figure:
    """The figure of some rounds: ours, a reader that validates, and bare again."""
    sides = list(zip(*rounds, strict=True))
    by_clock, by_processor = zip(*sides[0], strict=True)
    beside = {"by processor time": statistics.median(by_processor)}
    again, _ = zip(*sides[-1], strict=True)
    ceiling: Sequence[float] = ()
    for side in sides[1:-1]:
        ceiling, busy = zip(*side, strict=True)
        beside["ceiling by its processor time"] = statistics.median(busy)
    return figure(name, by_clock, "x bare", goal, beside, ceiling=ceiling, again=again)


def shares(
    medium: str, rows: int, bare: str, *others: str
) -> list[tuple[float, float]]:
    """Of one round: each other one, by the clock and of the busier process."""
    sides = [bare, *others]
    took = {what: run(what, medium, rows) for what in random.sample(sides, len(sides))}
    base = took[bare]
    return [(base[0] / took[one][0], base[1] / took[one][1]) for one in others]


def run(what: str, medium: str, rows: int) -> tuple[float, float]:
    """Seconds of a reader, from its first rows to its last, and of the busier side."""
    with tempfile.TemporaryDirectory() as folder:
        where = f"ipc://{folder}/s"
        if medium == "tcp":
            with zmq.Context() as place, place.socket(zmq.PULL) as socket:
                port = socket.bind_to_random_port("tcp://127.0.0.1")
            where = f"tcp://127.0.0.1:{port}"
        with child(what, where, str(rows)) as process:
            seconds, busy = READERS[what](where)
            return seconds, max(busy, answer(process))


# --- bare -------------------------------------------------------------------------


def bare(kind: int) -> Any:
    """A socket."""
    socket: Any = zmq.Context.instance().socket(kind)
    socket.sndhwm = socket.rcvhwm = MARK
    return socket


def send_bare(where: str, rows: int) -> Watch:
    """Batches, serialized."""
    found = distinct(rows)
    socket, watch = bare(zmq.PUSH), Watch()
    socket.bind(where)
    for batch in enough(found):
        socket.send(batch.serialize(), copy=False)
    socket.send(b"")
    socket.close()
    zmq.Context.instance().term()
    return watch


def read_bare(
    where: str, check: Callable[[pa.RecordBatch], object] = bool
) -> tuple[float, float]:
    """Batches."""
    socket, watch = bare(zmq.PULL), None
    socket.connect(where)
    schema = batch_of_one().schema
    while True:
        frame = socket.recv(copy=False)
        if not len(frame):
            break
        check(pa.ipc.read_record_batch(pa.py_buffer(frame.buffer), schema))
        watch = watch or Watch()
    socket.close()
    assert watch is not None
    return watch.read()


def read_validated(where: str) -> tuple[float, float]:
    """Batches, which are validated and dropped."""
    return read_bare(where, BatchValidator(batch_of_one().schema).validate)


def send_singles(where: str, _: int) -> Watch:
    """Messages, one by one."""
    socket, watch = bare(zmq.PUSH), Watch()
    socket.sndhwm = RECORDS
    socket.bind(where)
    text = b"x" * 100
    for _ in range(RECORDS):
        socket.send(text)
    socket.send(b"")
    socket.close()
    zmq.Context.instance().term()
    return watch


def read_singles(where: str) -> tuple[float, float]:
    """Messages, one by one."""
    socket, watch = bare(zmq.PULL), None
    socket.rcvhwm = RECORDS
    socket.connect(where)
    while socket.recv():
        watch = watch or Watch()
    socket.close()
    assert watch is not None
    return watch.read()


# --- ours -------------------------------------------------------------------------


def send_ours(where: str, rows: int) -> Watch:
    """Batches by the backend's writer."""
    return write(where, enough(distinct(rows)), "arrow")


def send_packed(where: str, _: int) -> Watch:
    """Messages by the backend's writer, as many at once as a program would have."""
    values = pa.array([b"x" * 100] * PACKED, pa.binary())
    batch = pa.RecordBatch.from_pydict({"value": values})
    return write(where, itertools.repeat(batch, RECORDS // PACKED), "raw")


def write(where: str, batches: Iterator[pa.RecordBatch], payload: str) -> Watch:
    """Write, and end the stream."""
    made = configured(where, "bind", payload, "write")
    factory: Any = made.backend.producer_factory(made.config)
    first, watch = next(batches), Watch()
    context = WriteContext(None, 0, 0, "benchmark", schema=first.schema)
    with closing(factory), closing(factory.create_writer(context)) as writer:
        for batch in itertools.chain([first], batches):
            writer.write(Outgoing(batch, 0))
        factory.end_stream(Finished())
    return watch


def read_ours(where: str, payload: str = "arrow") -> tuple[float, float]:
    """Read by the backend's consumer until the end."""
    made = configured(where, "connect", payload, "read")
    factory: Any = made.backend.consumer_factory(made.config)
    consumer = factory.create_partition_level_consumer("bench", Partition("rows", 0))
    limits = FetchLimits(65_536, 8 * 1024**2, 60.0)
    at, watch, end = 0, None, None
    with closing(factory), closing(consumer):
        while end is None:
            fetched = consumer.fetch_messages(at, None, limits)
            at, end = fetched.next_offset, fetched.end
            if watch is None and fetched.rows is not None:
                watch = Watch()
    assert watch is not None
    return watch.read()


def read_packed(where: str) -> tuple[float, float]:
    """Messages as envelopes."""
    return read_ours(where, "raw")


def configured(where: str, way: str, payload: str, use: str) -> Any:
    """The configuration, checked."""
    properties = {
        "streamType": "zeromq",
        "stream.zeromq.topic.name": "rows",
        "stream.zeromq.pattern": "push-pull",
        "stream.zeromq.payload": payload,
        f"stream.zeromq.{way}": where,
    }
    if payload == "raw":
        properties["stream.zeromq.decoder.class.name"] = "raw"
    return configure(from_mapping(properties), default_manager(), use=use)


SENDERS = {
    "bare": send_bare,
    AGAIN: send_bare,
    AGAIN_SINGLES: send_singles,
    "validated": send_bare,
    "ours": send_ours,
    "singles": send_singles,
    "packed": send_packed,
}
READERS = {
    "bare": read_bare,
    AGAIN: read_bare,
    AGAIN_SINGLES: read_singles,
    "validated": read_validated,
    "ours": read_ours,
    "singles": read_singles,
    "packed": read_packed,
}

if __name__ == "__main__":
    main()
