"""``streamfactory run`` that dies: ``python -m tests.pipelines.driver WHERE PASSES``.

The command line's arguments follow. WHERE is ``before`` or ``after`` the write of a
sink, or ``never``; so many sinks are written before. It takes all that it has started
along.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from streamfactory.cli.main import run
from streamfactory.spark.pipelines.building import Building

POINTS = ("before", "after")


def arrange(where: str, passes: int) -> None:
    """Have the writing of sinks kill this process group."""
    building: Any = Building
    real = building._write_sink
    left = passes

    def at(point: str) -> None:
        nonlocal left
        if point != where:
            return
        left -= 1
        if left < 0:
            os.killpg(0, signal.SIGKILL)

    def write(self: Any, *arguments: Any) -> None:
        at("before")
        real(self, *arguments)
        at("after")

    building._write_sink = write


if __name__ == "__main__":
    arrange(sys.argv[1], int(sys.argv[2]))
    sys.exit(run(["run", *sys.argv[3:]]))
