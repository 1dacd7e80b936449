"""A program that copies the changes of a table into a file until it is killed.

Run as ``python killed_changes_copier.py SOURCE TARGET``: properties as JSON.
"""

from __future__ import annotations

import json
import sys

import streamfactory


def main() -> None:
    source, target = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    print("ready", flush=True)
    streamfactory.copy(source, target, writer_id="copier", follow=True)


if __name__ == "__main__":
    main()
