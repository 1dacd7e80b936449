"""Two programs in shared memory: this one adds up what `writer.py` writes.

    python examples/shm/writer.py [FOLDER]       # in one terminal
    python examples/shm/reader.py [FOLDER]       # in another one, after it

The rows are not copied: each batch refers to the ring, until it is released.

Needs: pip install streamfactory, and Linux.
"""

from __future__ import annotations

import sys

import pyarrow.compute as pc

import streamfactory

WANTED = 1_000_000


def main(folder: str = "") -> None:
    stream = {
        "streamType": "shm",
        "stream.shm.topic.name": "measurements",
        **({"stream.shm.path": folder} if folder else {}),
    }
    count = total = 0
    with streamfactory.open(stream, start="earliest", follow=True) as measurements:
        while count < WANTED:
            batch = measurements.next_batch(60)
            if batch is None:
                sys.exit(f"nothing was written for a minute, after {count:,}")
            count += batch.num_rows
            total += pc.sum(batch.rows["number"]).as_py()
    print(f"read {count:,} measurements, their sum is {total:,}")


if __name__ == "__main__":
    main(*sys.argv[1:])
