"""What the framework costs over the author's own code.

    python benchmarks/spi.py [--json] [--rounds N]

Ratios from the same run; nothing is gated.
"""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

# A command's path is its own folder; what benchmarks share is imported from above it.
sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.measuring.figures import figure, report

from streamfactory.spi import (
    PATH,
    Backend,
    ConsumerFactory,
    Fetched,
    FetchLimits,
    MetadataProvider,
    Option,
    Partition,
    PartitionInfo,
    PartitionLevelConsumer,
    choice,
    hookimpl,
)
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from benchmarks.measuring.figures import Figure

BATCHES = 200


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    report(fetch_figures(arguments.rounds), as_json=arguments.json)


def fetch_figures(rounds: int) -> list[Figure]:
    """The cost of one fetch through `Reader`, over the author's own fetch."""
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.arrows"
        for rows in (1_000, 64_000):
            write_file(path, rows)
            for medium in ("file", "socket"):
                pairs = [both_seconds(medium, path) for _ in range(rounds)]
                size = f"{rows // 1000}k rows, {medium}"
                over = [(ours - theirs) / BATCHES * 1e6 for theirs, ours in pairs]
                figures.append(
                    figure(f"fetch over author's, {size}", over, "us", "< 50")
                )
                share = [100 * (ours - theirs) / theirs for theirs, ours in pairs]
                goal = "< 2" if rows == 64_000 else "none"
                figures.append(figure(f"the same, share, {size}", share, "%", goal))
    return figures


def write_file(path: Path, rows: int) -> None:
    """Batches of about 57 bytes a row: numbers, a time, two texts."""
    texts = pa.array([f"note {n % 977:>10}" for n in range(rows)])
    columns = {
        "offset": pa.arange(0, rows),
        "at": pa.arange(0, rows).cast(pa.timestamp("us", tz="UTC")),
        "key": texts,
        "price": pa.arange(0, rows).cast(pa.float64()),
        "note": texts,
    }
    batch = pa.RecordBatch.from_pydict(columns)
    with (
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, batch.schema) as out,
    ):
        for _ in range(BATCHES):
            out.write_batch(batch)


class BenchConsumer(PartitionLevelConsumer):
    """The raw library: an Arrow stream, batch by batch."""

    def __init__(self, medium: str, path: str) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._file: Any = None
        if medium == "file":
            self._file = pa.OSFile(path, "rb")
        else:
            self._file = self._serve(path)
        self._reader = pa.ipc.open_stream(self._file)
        self.schema = self._reader.schema

    def fetch_messages(
        self, start: int, end: int | None, limits: FetchLimits
    ) -> Fetched:
        """The next batch."""
        rows = self._reader.read_next_batch()
        return Fetched(rows, start + rows.num_rows, held_from=0, size=0)

    def close(self) -> None:
        """Close the medium."""
        self._file.close()
        if self._child is not None:
            self._child.wait(10)

    def _serve(self, path: str) -> Any:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            command = [sys.executable, "-c", SENDER, path, str(port)]
            self._child = subprocess.Popen(command)  # noqa: S603
            server.settimeout(10)
            connection, _ = server.accept()
            with connection:
                return connection.makefile("rb", buffering=65_536)


SENDER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as s:
    with open(sys.argv[1], "rb") as file:
        s.sendfile(file)
"""


class BenchMetadata(MetadataProvider):
    """One partition, not known how long."""

    def __init__(self, path: str) -> None:
        self._path = path

    def fetch_partitions(
        self, topics: Sequence[str], known: Collection[Partition]
    ) -> Sequence[PartitionInfo]:
        """The partition."""
        return [PartitionInfo(Partition(topics[0], 0), 0, None)]

    def fetch_schema(self, topic: str) -> pa.Schema:
        """From the file."""
        with pa.OSFile(self._path, "rb") as file, pa.ipc.open_stream(file) as reader:
            return reader.schema


class BenchFactory(ConsumerFactory):
    """Makes the two above."""

    def create_partition_level_consumer(
        self,
        client_id: str,
        partition: Partition,
        fields_to_read: Sequence[str] | None = None,
    ) -> PartitionLevelConsumer:
        """The raw reader."""
        return BenchConsumer(self.config["medium"], self.config["path"])

    def create_metadata_provider(self, client_id: str) -> MetadataProvider:
        """The bounds."""
        return BenchMetadata(self.config["path"])


BENCH = Backend(
    name="bench",
    doc="An Arrow stream from a file or a socket.",
    spi_level=1,
    options=(
        Option("medium", "Where it comes from.", choice("file", "socket")),
        Option("path", "The file.", PATH),
    ),
    consumer_factory=BenchFactory,
)


@hookimpl
def streamfactory_backend() -> Backend:
    """The descriptor."""
    return BENCH


def both_seconds(medium: str, path: Path) -> tuple[float, float]:
    """All batches by the author's consumer, and again through `Reader`."""
    properties = {
        "streamType": "bench",
        "stream.bench.topic.name": "bench",
        "stream.bench.medium": medium,
        "stream.bench.path": str(path),
    }
    plugins = PluginManager()
    plugins.register(sys.modules[__name__])
    source = Source(configure(from_mapping(properties), plugins, use="read"))
    author = source.factory.create_partition_level_consumer("b", Partition("bench", 0))
    limits = FetchLimits(65_536, 8 * 1024**2, 0.25)
    theirs = timed(lambda at: author.fetch_messages(at, None, limits).next_offset)
    author.close()
    reader = source.reader(Partition("bench", 0))
    reader.fetch(0, max_rows=1)  # opens, so that only fetching is timed
    ours = timed(lambda at: reader.fetch(at).next_offset, first=1)
    reader.close()
    source.close()
    return theirs, ours


def timed(fetch: Callable[[int], int], first: int = 0) -> float:
    """Seconds for all batches but the first, which opening may have read."""
    at = fetch(first)
    started = time.perf_counter()
    for _ in range(BATCHES - 1):
        at = fetch(at)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
