"""What the log on disk makes of plain Arrow files: the same rows, in the same rounds.

    python benchmarks/log.py [--json] [--rounds N] [--only NAME ...] [--full]
                             [--folder PATH]

Two sides take turns, and a figure is the median of the rounds' ratios. Nothing is
gated. ``--full`` passes 20 GB and 100,000 epochs, else a tenth and a twentieth.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.arrowlog.disk import (
    DiskLog,
    DiskLogStore,
    LocalStorage,
    Settings,
    Storage,
    Watch,
)
from streamfactory.arrowlog.disk.records import Run, Segment
from streamfactory.arrowlog.disk.watching import PollingWatch
from streamfactory.spi import Partition, Summary
from streamfactory.wiring.configure import configure
from streamfactory.wiring.definition import from_mapping
from streamfactory.wiring.opening import open_sink
from streamfactory.wiring.plugins import default_manager
from streamfactory.wiring.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

TOPIC: Final = "rows"
LARGE: Final = 65_536
SMALL: Final = 1_000
SEGMENT: Final = 64 << 20
READ: Final = 512 << 20
"""Bytes that a round of reading takes."""
MANY: Final = 1 << 62
STARTED_MS: Final = 1_700_000_000_000


@dataclass
class Figure:
    """One line of the report."""

    name: str
    value: float
    unit: str
    goal: str
    rounds: int
    spread: float

    def __str__(self) -> str:
        return (
            f"{self.name:<58} {self.value:>9.2f} {self.unit:<9} goal {self.goal:<8}"
            f" rounds {self.rounds}, spread {self.spread:.2f}"
        )


@dataclass
class Bench:
    """What the command line asked for."""

    folder: Path
    rounds: int
    full: bool

    def place(self) -> Path:
        """A folder of its own."""
        return self.folder / uuid.uuid4().hex


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", nargs="+", choices=FIGURES, default=[*FIGURES])
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--folder", type=Path, help="default: the temporary one")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, *rest = arguments.child
        print(json.dumps(CHILDREN[name](*rest)))
        return
    figures = []
    for name in arguments.only:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            bench = Bench(Path(folder), arguments.rounds, arguments.full)
            for found in FIGURES[name](bench):
                figures.append(found)
                if not arguments.json:
                    print(found, flush=True)
    if arguments.json:
        print(json.dumps([vars(figure) for figure in figures]))


# --- reading ----------------------------------------------------------------------


def reading_figures(bench: Bench) -> Iterator[Figure]:
    """The same files, warm: by Arrow alone, by the log, and by a reader."""
    place = bench.place()
    log = new_log(place, fsync="never")
    each = batches(LARGE, SEGMENT)
    for _ in range(READ // SEGMENT):
        append(log, each)
    files = [log.storage.location + "/" + name for name in segments(log)]
    source = Source(configure(definition(place), default_manager(), use="read"))
    reader = source.reader(Partition(TOPIC, 0))
    with ExitStack() as stack:
        for thing in (log, source, reader):
            stack.callback(thing.close)
        sides = {
            "raw": lambda: read_raw(files),
            "log.read": lambda: read_log(log),
            "Reader.fetch": lambda: read_fetch(reader, latest(log)),
        }
        seconds = turns(bench.rounds, sides)
    for name in ("log.read", "Reader.fetch"):
        ratios = ratio(seconds["raw"], seconds[name])
        yield figure(f"read warm, {name}", ratios, "x raw", ">= 0.95")


def read_raw(files: Sequence[str]) -> None:
    """Every batch of some files."""
    for file in files:
        with pa.memory_map(file) as mapped, pa.ipc.open_file(mapped) as opened:
            for number in range(opened.num_record_batches):
                aggregate(opened.get_batch(number))


def read_log(log: DiskLog) -> None:
    """Every batch of the log."""
    at, end = 0, latest(log)
    while at < end:
        part = log.read(0, at, max_rows=LARGE, max_bytes=8 << 20)
        assert part.rows is not None
        aggregate(part.rows)
        at += part.rows.num_rows


def read_fetch(reader: Any, end: int) -> None:
    """The same through what users hold."""
    at = 0
    while at < end:
        batch = reader.fetch(at)
        aggregate(batch.rows)
        at = batch.next_offset


def aggregate(rows: pa.RecordBatch) -> float:
    """Touch every column, as a query would."""
    total: float = pc.sum(rows.column("offset")).as_py()
    total += pc.sum(rows.column("qty")).as_py()
    total += pc.sum(rows.column("price")).as_py()
    total += pc.max(rows.column("ts")).value
    for name in ("key", "note"):
        total += pc.sum(pc.binary_length(rows.column(name))).as_py()
    return total


# --- appending --------------------------------------------------------------------


def appending_figures(bench: Bench) -> Iterator[Figure]:
    """Epochs of a segment each, against one plain file each."""
    for rows, goal in ((LARGE, ">= 0.9"), (SMALL, ">= 1.2")):
        each = batches(rows, SEGMENT)
        for fsync in ("always", "never"):
            place = bench.place()
            log = new_log(place, fsync=fsync)
            sink = open_sink({**properties(place), "stream.file.fsync": fsync})
            plain = bench.place()
            plain.mkdir()
            sides = {
                "raw": partial(append_raw, plain, each, fsync),
                "LogStage": partial(append, log, each),
                "Sink": partial(append_sink, sink, each, count()),
            }
            seconds = turns(bench.rounds, sides, after=partial(emptied, plain, log))
            sink.close()
            log.close()
            for name in ("LogStage", "Sink"):
                ratios = ratio(seconds["raw"], seconds[name])
                size = f"{rows // 1000}k rows, fsync={fsync}"
                yield figure(f"append {size}, {name}", ratios, "x raw", goal)


def append_raw(place: Path, each: Sequence[pa.RecordBatch], fsync: str) -> None:
    """One file a segment, by Arrow's own writer."""
    path = place / uuid.uuid4().hex
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_file(file, each[0].schema) as writer,
    ):
        for rows in each:
            writer.write_batch(rows)
    if fsync == "always":
        sync(path)
        sync(place)


def append_sink(
    sink: Any, each: Sequence[pa.RecordBatch], epochs: Iterator[int]
) -> None:
    """The same through what users hold."""
    epoch = next(epochs)
    with sink_parts(sink, each[0].schema, epoch) as (writer, committer):
        for rows in each:
            writer.write(rows)
        committer.commit(epoch, [writer.commit()])


@contextmanager
def sink_parts(sink: Any, schema: pa.Schema, epoch: int) -> Iterator[tuple[Any, Any]]:
    """A writer and its committer."""
    writer = sink.writer(schema, writer_id="bench", epoch=epoch)
    committer = sink.committer(writer_id="bench")
    yield writer, committer
    writer.close()
    committer.close()


def emptied(plain: Path, log: DiskLog) -> None:
    """Give the disk its room back, and let it come to rest."""
    for path in plain.iterdir():
        path.unlink()
    log.truncate({0: latest(log)})
    os.sync()


# --- small epochs, durable --------------------------------------------------------


def committing_figures(bench: Bench) -> Iterator[Figure]:
    """Epochs a second of many writers, each epoch on the medium when it returns."""
    seconds = 1.0
    place = bench.place()
    log = new_log(place)
    counts: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        kinds: dict[str, Callable[[], float]] = {
            "raw": lambda: commit_raw(bench.folder / "raw", seconds),
            "1 thread": lambda: commit_threads(log, 1, seconds),
            "8 threads": lambda: commit_threads(log, 8, seconds),
            "32 threads": lambda: commit_threads(log, 32, seconds),
            "4 processes": lambda: commit_processes(place, 4, seconds),
        }
        for name, kind in shuffled(kinds):
            counts.setdefault(name, []).append(kind() / seconds)
    log.close()
    yield figure("write + fsync of a small file", counts["raw"], "a second", "none")
    for name in ("1 thread", "8 threads", "32 threads", "4 processes"):
        yield figure(f"epochs, {name}", counts[name], "a second", "none")
        ratios = ratio(counts[name], counts["raw"])
        yield figure(f"epochs, {name}", ratios, "x raw", "none")
        if name != "1 thread":
            ratios = ratio(counts[name], counts["1 thread"])
            yield figure(f"epochs, {name}", ratios, "x one", "> 1")


def commit_raw(place: Path, seconds: float) -> int:
    """Small files with their names on the medium."""
    place.mkdir(exist_ok=True)
    message = few_rows(0).serialize().to_pybytes()
    done, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        path = place / str(done)
        path.write_bytes(message)
        sync(path)
        sync(place)
        done += 1
    shutil.rmtree(place)
    return done


def commit_threads(log: DiskLog, threads: int, seconds: float) -> int:
    """Writers of one process, each with epochs of its own."""
    counts = [0] * threads
    until = time.monotonic() + seconds

    def write(number: int) -> None:
        writer = uuid.uuid4().hex
        log.claim(writer, writer)
        while time.monotonic() < until:
            append(log, [few_rows(counts[number])], writer, counts[number])
            counts[number] += 1

    running = [threading.Thread(target=write, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return sum(counts)


def commit_processes(place: Path, processes: int, seconds: float) -> int:
    """Writers in processes of their own, which begin together."""
    at = time.monotonic() + 1
    running = [
        child("commit", str(place), str(at), str(seconds)) for _ in range(processes)
    ]
    return sum(answer(one) for one in running)


def commit_child(place: str, at: str, seconds: str) -> int:
    """One writer in a process of its own."""
    log = open_log(Path(place))
    time.sleep(max(0.0, float(at) - time.monotonic()))
    return commit_threads(log, 1, float(seconds))


# --- following --------------------------------------------------------------------


class Stamped(LocalStorage):
    """Knows when a record was published: linked, and not yet synced."""

    linked = 0
    """Of the first since it was set to 0: a merge may follow."""

    def sync_folder(self, path: Path) -> None:
        """Called right after the link."""
        if path.name == "log" and not self.linked:
            self.linked = time.monotonic_ns()
        super().sync_folder(path)


class Polled(LocalStorage):
    """A place whose kernel tells nothing."""

    def watch(self, folder: str) -> Watch:
        """Look again and again."""
        return PollingWatch(0.0005, 0.005)


def following_figures(bench: Bench) -> Iterator[Figure]:
    """Time from a record's publication until another process has its rows.

    Bare: until another process has read a small file that was linked and announced.
    """
    names = ("bare", "kernel", "polling")
    halves: dict[str, list[float]] = {}
    tails: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        for how in random.sample(names, len(names)):
            linked, returned, seen = follow(bench.place(), how, 300)
            for since, stamps in (("link", linked), ("return", returned)):
                pairs = zip(stamps, seen, strict=True)
                late = sorted((there - here) / 1e6 for here, there in pairs)
                name = f"{how}, from the {since}"
                halves.setdefault(name, []).append(late[len(late) // 2])
                tails.setdefault(name, []).append(late[len(late) * 99 // 100])
    for name, values in halves.items():
        goal = "< 1" if name.startswith("kernel") else "none"
        yield figure(f"follower, {name}, p50", values, "ms", "none")
        yield figure(f"follower, {name}, p99", tails[name], "ms", goal)


def follow(place: Path, how: str, epochs: int) -> tuple[list[int], ...]:
    """When each epoch was linked, had returned, and was seen."""
    log = new_log(place)
    # The log makes its storage itself, out of the store's.
    log.storage.__class__ = Stamped
    stamps: Any = log.storage
    linked, returned = [], []
    running = child("follow", str(place), how, str(epochs))
    assert running.stdout is not None
    running.stdout.readline()
    for number in range(epochs):
        time.sleep(random.random() * 0.004)
        stamps.linked = 0
        if how == "bare":
            stamps.publish(f"log/bare-{number}", b"x" * 500)
        else:
            append(log, [few_rows(number)])
        returned.append(time.monotonic_ns())
        linked.append(stamps.linked)
    seen: list[int] = answer(running)
    log.close()
    return linked, returned, seen


def follow_child(place: str, how: str, epochs: str) -> list[int]:
    """When each epoch's rows were there."""
    log = open_log(Path(place))
    if how == "polling":
        log.storage.__class__ = Polled
    print("ready", flush=True)
    if how == "bare":
        return follow_bare(log.storage, int(epochs))
    seen: list[int] = []
    while len(seen) < int(epochs):
        at = len(seen)
        part = log.read(0, at, max_rows=1, max_bytes=MANY)
        if part.rows is None:
            log.wait(0, at, 10.0)
            continue
        assert part.rows.column("offset")[0].as_py() == at
        seen.append(time.monotonic_ns())
    return seen


def follow_bare(storage: Storage, files: int) -> list[int]:
    """When each file was read."""
    watch = storage.watch("log")
    seen: list[int] = []
    while len(seen) < files:
        try:
            storage.read(f"log/bare-{len(seen)}")
        except FileNotFoundError:
            watch.wait(10.0)
            continue
        seen.append(time.monotonic_ns())
    watch.close()
    return seen


# --- bounds -----------------------------------------------------------------------


def asking_figures(bench: Bench) -> Iterator[Figure]:
    """Bounds and times of 1,000 partitions, with opening, of states made of records.

    The records and the index are real; the segments that they name are not there, and
    nothing that is asked here needs them.
    """
    for runs in (100_000, 1_000_000):
        place = bench.place()
        name_runs(place, 1_000, runs)
        at = STARTED_MS + runs // 2_000 * 1000
        sides: dict[str, Callable[[], object]] = {
            "empty": lambda: None,
            "open": partial(open_log, place),
            "open + bounds": partial(ask_bounds, place),
            "open + by time": partial(ask_time, place, at),
        }
        log = open_log(place)
        sides["bounds"] = log.bounds
        sides["by time"] = partial(log.offsets_at, at, range(1_000))
        seconds = turns(bench.rounds, sides)
        for name in list(sides)[1:]:
            values = [1000 * one for one in seconds[name]]
            yield figure(f"{name}, {runs:,} segments", values, "ms", "< 10")
    merged = new_log(bench.place(), partitions=1_000, fsync="never")
    times = merge_epochs(merged, 1_000, 8)
    asked = turns(
        bench.rounds, {"by time": partial(merged.offsets_at, times[4], range(1_000))}
    )
    values = [1000 * one for one in asked["by time"]]
    yield figure("by time, in merged runs of 1,000", values, "ms", "< 10")


def merge_epochs(log: DiskLog, partitions: int, epochs: int) -> list[int]:
    """Real epochs in all partitions, merged; answers when they were appended."""
    times = []
    for number in range(epochs):
        stage = log.stage(uuid.uuid4().hex)
        for partition in range(partitions):
            stage.append(partition, few_rows(number))
        log.commit(None, number, [stage.seal()], summary=Summary(partitions))
        times.append(int(log.journal.now_ms()))
        time.sleep(0.01)
    log.compact()
    return times


def ask_bounds(place: Path) -> object:
    """Open, and ask for all partitions."""
    return open_log(place).bounds()


def ask_time(place: Path, at: int) -> object:
    """Open, and ask for a time in all partitions."""
    return open_log(place).offsets_at(at, range(1_000))


def name_runs(place: Path, partitions: int, runs: int) -> None:
    """A topic whose records name so many segments of one run each."""
    log = new_log(place, partitions=partitions, fsync="never")
    steps = runs // partitions
    share = max(1, steps // 10)
    for begin in range(0, steps, share):
        named = [
            synthetic(partition, step)
            for step in range(begin, min(begin + share, steps))
            for partition in range(partitions)
        ]
        log.journal.publish(partial(log.journal.record, segments=named))
        log.compact()
    log.close()


def synthetic(partition: int, step: int) -> Segment:
    """A thousand rows, a second behind those before."""
    at = STARTED_MS + step * 1000
    name = f"data/{partition:04d}-{step:06d}.arrow"
    run = Run(partition, step * 1000, 1000, name, 0, (1000,), 57_000, at, at)
    return Segment(name, 57_000, 0, full=True, runs=(run,))


# --- memory -----------------------------------------------------------------------


def passing_figures(bench: Bench) -> Iterator[Figure]:
    """Peak memory while much passes: mapped pages of files are counted."""
    total = (20 << 30) if bench.full else (2 << 30)
    peaks: dict[str, list[float]] = {"write": [], "read": []}
    for _ in range(1 if bench.full else min(3, bench.rounds)):
        place = bench.place()
        new_log(place, fsync="never").close()
        running = {name: child(name, str(place), str(total)) for name in peaks}
        for name, one in running.items():
            peaks[name].append(answer(one))
        shutil.rmtree(place)
    for name, values in peaks.items():
        title = f"memory above start, {name} {total >> 30} GB"
        yield figure(title, values, "MB", "<= 200")


def write_child(place: str, total: str) -> float:
    """Append epochs of 512 MB, of large and of small batches in turn.

    No more than 4 GB at a time are there.
    """
    log = open_log(Path(place), fsync="never")
    kinds = [batches(rows, 8 << 20) * 64 for rows in (LARGE, SMALL)]
    most = 8 * sum(rows.num_rows for rows in kinds[0])
    start = forget_peak()
    for number in range(int(total) // (512 << 20)):
        append(log, kinds[number % 2])
        while latest(log) - log.bounds()[0].earliest > most:
            time.sleep(0.01)
    append(log, [few_rows(0)])
    return (peak() - start) / 1e6


def read_child(place: str, _: str) -> float:
    """Follow and touch all of it; let go of what was read."""
    log = open_log(Path(place), fsync="never")
    aggregate(few_rows(0))  # loads what Arrow loads once
    at, let_go, start = 0, 0, forget_peak()
    while True:
        part = log.read(0, at, max_rows=LARGE, max_bytes=8 << 20)
        if part.rows is None:
            log.wait(0, at, 10.0)
            continue
        aggregate(part.rows)
        at += part.rows.num_rows
        if part.rows.num_rows == 1:
            return (peak() - start) / 1e6
        if at - let_go > 100 * LARGE:
            log.truncate({0: at})
            let_go = at


def forget_peak() -> float:
    """Memory of this process; its peak begins anew."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak("VmRSS")


def peak(name: str = "VmHWM") -> float:
    """Bytes, pages of mapped files among them."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name + ":"):
            return float(line.split()[1]) * 1024
    raise KeyError(name)


# --- many epochs ------------------------------------------------------------------


def counting_figures(bench: Bench) -> Iterator[Figure]:
    """Many epochs of few rows: what they cost, and what is left of them."""
    epochs = 100_000 if bench.full else 5_000
    place = bench.place()
    log = new_log(place, fsync="never")
    parts = []
    for part in range(10):
        begun = time.perf_counter()
        for number in range(epochs // 10):
            append(log, [few_rows(number)], "bench", part * epochs // 10 + number)
        parts.append((time.perf_counter() - begun) / (epochs // 10) * 1e3)
    log.close()
    title = f"{epochs:,} small epochs"
    yield figure(f"{title}, each, fsync=never", parts, "ms", "none")
    last = [parts[-1] / parts[0]]
    yield figure(f"{title}, last tenth over first", last, "x", "about 1")
    for folder in ("data", "log", "index"):
        files = sum(1 for _ in place.glob(f"*/*/{folder}/*"))
        yield figure(f"{title}, files in {folder}", [files], "files", "few 100")
    opened = turns(bench.rounds, {"open": lambda: open_log(place).bounds()})["open"]
    yield figure(f"{title}, opening", [1000 * s for s in opened], "ms", "< 10")


# --- what is moved ----------------------------------------------------------------


def batches(rows: int, size: int) -> list[pa.RecordBatch]:
    """Distinct batches of about 57 bytes a row, so many bytes in all."""
    chance = random.Random(1)
    keys = pa.array(["k" * chance.randint(12, 24) for _ in range(rows)])
    notes = [None if chance.random() < 0.3 else f"note {n}" for n in range(rows)]
    found: list[pa.RecordBatch] = []
    left = size
    while left > 0:
        numbers = pa.arange(len(found) * rows, (len(found) + 1) * rows)
        columns = {
            "offset": numbers,
            "ts": numbers.cast(pa.timestamp("us", tz="UTC")),
            "key": keys,
            "qty": numbers.cast(pa.int32()),
            "price": numbers.cast(pa.float64()),
            "note": pa.array(notes),
        }
        one = pa.RecordBatch.from_pydict(columns)
        # A copy of its own, as a program that made it would have.
        found.append(pa.ipc.read_record_batch(one.serialize(), one.schema))
        left -= one.nbytes
    return found


def few_rows(number: int) -> pa.RecordBatch:
    """One row."""
    rows = _one_row()
    return rows.set_column(0, rows.schema.field(0), pa.array([number], pa.int64()))


@cache
def _one_row() -> pa.RecordBatch:
    return batches(1, 1)[0]


def append(
    log: DiskLog,
    each: Sequence[pa.RecordBatch],
    writer: str | None = None,
    epoch: int = 0,
) -> None:
    """One epoch."""
    stage = log.stage(uuid.uuid4().hex)
    for rows in each:
        stage.append(0, rows)
    summary = Summary(sum(rows.num_rows for rows in each))
    log.commit(writer, epoch, [stage.seal()], instance=writer or "", summary=summary)


# --- the log ----------------------------------------------------------------------


def new_log(place: Path, *, partitions: int = 1, fsync: str = "always") -> DiskLog:
    """An empty topic."""
    store = DiskLogStore(LocalStorage(place, fsync=fsync), Settings())
    return store.create(TOPIC, few_rows(0).schema, partitions)


def open_log(place: Path, *, fsync: str = "always") -> DiskLog:
    """The topic, opened anew."""
    return DiskLogStore(LocalStorage(place, fsync=fsync), Settings()).open(TOPIC)


def properties(place: Path) -> Mapping[str, str]:
    """The topic as a stream."""
    return {
        "streamType": "file",
        "stream.file.path": str(place),
        "stream.file.topic.name": TOPIC,
    }


def definition(place: Path) -> Any:
    """The topic as a stream."""
    return from_mapping(properties(place))


def latest(log: DiskLog) -> int:
    """Of the first partition."""
    return log.bounds()[0].latest


def segments(log: DiskLog) -> list[str]:
    """Files of the first partition, in the order of their rows."""
    found: dict[str, None] = {}
    at, end = 0, latest(log)
    while at < end:
        run = log.journal.refreshed().index.find(0, at)
        assert run is not None
        found[run.file] = None
        at = run.end
    return list(found)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the medium."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)


# --- rounds -----------------------------------------------------------------------


def turns(
    rounds: int,
    sides: Mapping[str, Callable[[], object]],
    after: Callable[[], None] = lambda: None,
) -> dict[str, list[float]]:
    """Seconds of each side in each round; one round more, to warm up, is left out."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, side in shuffled(sides):
            begun = time.perf_counter()
            side()
            if number:
                seconds[name].append(time.perf_counter() - begun)
            after()
    return seconds


def shuffled(sides: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """In a new order."""
    return random.sample(list(sides.items()), len(sides))


def ratio(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Round by round."""
    return [one / other for one, other in zip(over, under, strict=True)]


def figure(name: str, values: Sequence[float], unit: str, goal: str) -> Figure:
    """Median and spread of some rounds."""
    spread = max(values) - min(values)
    return Figure(name, statistics.median(values), unit, goal, len(values), spread)


def child(*arguments: str) -> subprocess.Popen[str]:
    """This program as another process."""
    command = [sys.executable, __file__, "--child", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603


def answer(process: subprocess.Popen[str]) -> Any:
    """What a child found."""
    said, _ = process.communicate(timeout=1800)
    if process.returncode:
        raise SystemExit(process.returncode)
    return json.loads(said)


FIGURES: Final[dict[str, Callable[[Bench], Iterator[Figure]]]] = {
    "read": reading_figures,
    "append": appending_figures,
    "commit": committing_figures,
    "follow": following_figures,
    "ask": asking_figures,
    "memory": passing_figures,
    "epochs": counting_figures,
}
CHILDREN: Final[dict[str, Callable[..., Any]]] = {
    "commit": commit_child,
    "follow": follow_child,
    "write": write_child,
    "read": read_child,
}

if __name__ == "__main__":
    main()
