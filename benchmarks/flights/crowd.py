"""Memory of a server while many use it, one of whom has stalled."""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from benchmarks.flights.ours import stream
from benchmarks.measuring.figures import Figure
from benchmarks.measuring.rows import batches

import streamfactory
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from streamfactory.wiring.serving.process import ServerProcess

WRITERS, READERS = 8, 8
KEPT = "2000000"
"""Rows of each partition that the topic keeps."""
ROWS = 8_192
"""Of an epoch; each is uploaded."""
SAMPLES = 40


def crowd(seconds: float) -> Figure:
    """Memory at the end, as a multiple of what it was after the first quarter."""
    with (
        tempfile.TemporaryDirectory() as folder,
        streamfactory.serve(path=folder, fsync="never") as server,
    ):
        ended = threading.Event()
        users = Users(server, ended)
        samples = []
        for _ in range(SAMPLES):
            time.sleep(seconds / SAMPLES)
            samples.append(megabytes(server.pid))
        ended.set()
        users.join()
    early, late = max(samples[: SAMPLES // 4]), max(samples[-SAMPLES // 4 :])
    beside = {
        "MB at the end": late,
        "million rows written": users.written / 1e6,
        "million rows read": users.read / 1e6,
        "minutes": seconds / 60,
    }
    name = f"memory, {WRITERS} writers, {READERS} readers, one stalled"
    return Figure(name, late / early, "x", "flat", 1, 0.0, beside)


class Users:
    """Writers and readers, each a thread with a separate connection."""

    def __init__(self, server: ServerProcess, ended: threading.Event) -> None:
        self.written = self.read = 0
        self._stream = stream(server.location, "crowd")
        self._ended = ended
        self._lock = threading.Lock()
        self._rows = pa.Table.from_batches(batches(ROWS, 1))
        with open_sink(self._stream) as sink:
            sink.put(self._rows, writer_id="first", epoch=0)
        writers = [(self._write, number) for number in range(WRITERS)]
        readers = [(self._read, number) for number in range(READERS)]
        self._threads = [
            threading.Thread(target=what, args=(number,))
            for what, number in (*writers, *readers)
        ]
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        """Wait for all of them."""
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        options = {"stream.flight.retention.rows": KEPT}
        with open_sink({**self._stream, **options}) as sink:
            epoch = 0
            while not self._ended.is_set():
                sink.put(self._rows, writer_id=f"writer {number}", epoch=epoch)
                epoch += 1
                with self._lock:
                    self.written += ROWS

    def _read(self, number: int) -> None:
        options = {"out.of.range": "earliest"}
        opened = streamfactory.open(
            {**self._stream, **options}, start="earliest", follow=True
        )
        with closing(opened):
            while not self._ended.is_set():
                batch = opened.next_batch(0.25)
                if batch is None:
                    continue
                with self._lock:
                    self.read += batch.num_rows
                if number == 0:
                    self._ended.wait()  # stalled: its call stays open


def megabytes(pid: int) -> float:
    """Resident memory of a process. Linux."""
    status = Path(f"/proc/{pid}/status").read_text().split()
    return int(status[status.index("VmRSS:") + 1]) / 1024
