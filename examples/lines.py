"""``lines``: a folder of text files as a stream. A complete read-only backend.

Each file ``<number>.log`` is a partition, each line a row, and the offset of a line is
the byte where it begins: offsets rise, with gaps, and a seek costs nothing. A line
belongs to the stream once its newline is written.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from streamfactory import spi

SCHEMA = pa.schema([pa.field("line", pa.string(), nullable=False)])
BLOCK = 64 * 1024


class LinesConsumer(spi.PartitionLevelConsumer):
    """Reads one file."""

    def __init__(self, path: Path):
        self._file = path.open("rb")

    def fetch_messages(self, start, end, limits):
        self._file.seek(max(0, start - 1))
        if start and self._file.read(1) != b"\n":
            start += len(self._file.readline())  # inside a line: the next one
        data = self._file.read(limits.max_bytes)
        while b"\n" not in data and (more := self._file.read(BLOCK)):
            data += more  # one line longer than the limit comes whole
        data = data[: data.rfind(b"\n") + 1]
        if not data:
            return spi.Fetched(None, start, state=spi.BatchState.CAUGHT_UP)
        lines = data[:-1].split(b"\n")
        begins = list(accumulate((len(line) + 1 for line in lines), initial=start))
        text = [line.decode(errors="replace") for line in lines]
        return spi.Fetched(
            rows=pa.record_batch([pa.array(text)], schema=SCHEMA),
            offsets=pa.array(begins[:-1], pa.int64()),
            next_offset=begins[-1],
            size=len(data),
        )

    def close(self):
        self._file.close()


class LinesMetadata(spi.MetadataProvider):
    """Looks at the folder."""

    def __init__(self, folder: Path):
        self._folder = folder

    def fetch_partitions(self, topics, known):
        if not self._folder.is_dir():
            msg = f"there is no folder {str(self._folder)!r}"
            raise spi.TopicNotFound(msg)
        paths = [p for p in self._folder.glob("*.log") if p.stem.isdecimal()]
        return [self._info(topics[0], path) for path in paths]

    def fetch_schema(self, topic):
        return SCHEMA

    def _info(self, topic, path):
        inode = str(path.stat().st_ino)
        partition = spi.Partition(topic, int(path.stem))
        return spi.PartitionInfo(partition, 0, _complete(path), incarnation=inode)


class LinesConsumerFactory(spi.ConsumerFactory):
    """Makes the two above."""

    CLAIMS = spi.Claims(replayable=True, durable=True, shared=True)

    def create_partition_level_consumer(
        self, client_id, partition, fields_to_read=None
    ):
        return LinesConsumer(Path(self.config["folder"]) / f"{partition.id}.log")

    def create_metadata_provider(self, client_id):
        return LinesMetadata(Path(self.config["folder"]))


def _complete(path):
    """Where the last complete line of a file ends."""
    with path.open("rb") as file:
        at = file.seek(0, 2)
        while at:
            begin = max(0, at - BLOCK)
            file.seek(begin)
            found = file.read(at - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            at = begin
    return 0


@spi.hookimpl
def streamfactory_backend():
    return spi.Backend(
        name="lines",
        doc="Text files of a folder, a line a row.",
        spi_level=1,
        options=(
            spi.Option(
                "folder", "Folder with 0.log, 1.log, ...", spi.PATH, required=True
            ),
        ),
        consumer_factory=LinesConsumerFactory,
        translate=spi.ErrorTable({FileNotFoundError: spi.TopicNotFound}),
    )
