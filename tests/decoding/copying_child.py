"""Copies `from` into `to`, until it is done or killed: a program of `test_kills`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.specimens import Dictionary

from streamfactory.transfer.copies import open_copy
from streamfactory.wiring.plugins.manager import default_manager

if __name__ == "__main__":
    default_manager().register(Dictionary())
    with open_copy("from", "to") as copy:
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        copy.run(threading.Event())
