"""Two programs over a socket: this one listens, and adds up what `writer.py` sends.

    python examples/two_programs/reader.py [ADDRESS]     # in one terminal
    python examples/two_programs/writer.py [ADDRESS]     # in another one, in any order

ADDRESS is HOST:PORT or unix:PATH, by default 127.0.0.1:9700. What passes is a plain
Arrow IPC stream: either side may be any program that reads Arrow. Nothing is stored.

Needs: pip install streamfactory. Writes no file.
"""

from __future__ import annotations

import sys

import pyarrow.compute as pc

import streamfactory
from streamfactory.spi import ConnectionFailed


def main(address: str = "127.0.0.1:9700") -> None:
    stream = {"streamType": "socket", "stream.socket.listen": address}
    count = total = 0
    print("waiting for the writer at", address, flush=True)
    with streamfactory.open(stream) as orders:
        try:
            for batch in orders:
                count += batch.num_rows
                total += pc.sum(batch.rows["cents"]).as_py()
        except ConnectionFailed as error:  # the writer was killed, or has failed
            sys.exit(f"incomplete, {count:,} orders: {error}")
        (end,) = orders.ends.values()
    print(f"{count:,} orders, {total / 100:,.2f} euros; {type(end).__name__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
