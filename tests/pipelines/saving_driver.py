"""``streamfactory run`` that dies as it saves: ``python -m ... FAULTS ARGUMENTS``.

FAULTS is the folder of the kills that are ordered, at steps of
`tests.spark.saving_driver`; the command line's arguments follow.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.killing import Faults
from tests.spark.saving_driver import stepped

from streamfactory.cli.main import run

if __name__ == "__main__":
    stepped(Faults(Path(sys.argv[1])))
    sys.exit(run(["run", *sys.argv[2:]]))
