"""A program that receives into a spool until it is killed.

Run as ``python killed_receiver.py PROPERTIES``: the properties as JSON. It prints a
line when it runs, and one when it has stored rows.
"""

from __future__ import annotations

import json
import sys

import streamfactory


def main() -> None:
    properties = json.loads(sys.argv[1])
    with streamfactory.open(properties, start="latest", follow=True) as stream:
        stream.next_batch(0.0)
        print("ready", flush=True)
        while stream.next_batch(0.2) is None:
            pass
        print("stored", flush=True)
        while True:
            stream.next_batch(0.2)


if __name__ == "__main__":
    main()
