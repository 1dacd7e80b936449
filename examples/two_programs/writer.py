"""Two programs over a socket: this one connects, and sends orders to `reader.py`.

    python examples/two_programs/writer.py [ADDRESS]

It waits for the reader. How the stream ends is sent, too: without `end_stream` the
reader would take the rows for a part of the whole.

Needs: pip install streamfactory. Writes no file.
"""

from __future__ import annotations

import sys

import pyarrow as pa

import streamfactory
from streamfactory.spi import Finished


def main(address: str = "127.0.0.1:9700") -> None:
    stream = {
        "streamType": "socket",
        "stream.socket.connect": address,
        "stream.socket.connection.timeout.millis": "60s",
    }
    with streamfactory.open_sink(stream) as sink:
        for epoch in range(3):
            cents = pa.array([100 * epoch + n for n in range(1000)])
            sink.put(pa.table({"order": pa.arange(0, 1000), "cents": cents}))
            print(f"sent {len(cents)} orders")
        sink.end_stream(Finished())


if __name__ == "__main__":
    main(*sys.argv[1:])
