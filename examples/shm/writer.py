"""Two programs in shared memory: this one writes measurements for `reader.py`.

    python examples/shm/writer.py [FOLDER]

It waits where the reader is behind: the topic is created with `when.full=block`.

Needs: pip install streamfactory, and Linux. Writes to FOLDER, or else below /dev/shm.
"""

from __future__ import annotations

import sys

import numpy as np
import pyarrow as pa

import streamfactory

EPOCHS, ROWS = 100, 10_000


def main(folder: str = "") -> None:
    stream = {
        "streamType": "shm",
        "stream.shm.topic.name": "measurements",
        "stream.shm.when.full": "block",
        "stream.shm.capacity": "4M",
        **({"stream.shm.path": folder} if folder else {}),
    }
    with streamfactory.open_sink(stream) as sink:
        for epoch in range(EPOCHS):
            first = epoch * ROWS
            sink.put(pa.record_batch({"number": np.arange(first, first + ROWS)}))
    print(f"wrote {EPOCHS * ROWS:,} measurements")


if __name__ == "__main__":
    main(*sys.argv[1:])
