"""Reads the first rows of each partition, as a worker does, and prints what it took.

``python -m tests.kafka.reading_costs BOOTSTRAP TOPIC PARTITIONS ROWS`` prints, as JSON,
the peak of resident memory over what the process had before, in megabytes, its threads
and its rows.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path

from tests.kafka.conftest import stream_of
from tests.kafka.streams import opened

from streamfactory.spi import Partition


def status(name: str) -> int:
    """A number of ``/proc/self/status``."""
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index(f"{name}:") + 1])


def main() -> None:
    bootstrap, topic, partitions, rows = sys.argv[1:]
    found = 0
    with opened(stream_of(bootstrap, topic)) as source:
        assert source.schema is not None  # plug-ins are loaded
        before = status("VmHWM")
        readers = [source.reader(Partition(topic, n)) for n in range(int(partitions))]
        for reader in readers:
            at = 0
            while at < int(rows):
                batch = reader.fetch(at, end=int(rows), timeout=30)
                at, found = batch.next_offset, found + batch.num_rows
        threads = status("Threads")
        for reader in readers:
            with closing(reader):
                pass
    peak = (status("VmHWM") - before) / 1024
    answer = {"megabytes": peak, "threads": threads, "rows": found}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
