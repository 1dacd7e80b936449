"""Options of ``shm``."""

from __future__ import annotations

from typing import Final

from streamfactory.arrowlog import LOG_OPTIONS
from streamfactory.arrowlog.options import folder_name_problem
from streamfactory.spi import BOOLEAN, PATH, PERIOD, SIZE, Option, choice

WRITE: Final = frozenset({"write"})
READ: Final = frozenset({"read", "spark"})


OPTIONS: Final = (
    Option(
        "path",
        "Folder of the topics, in a file system in memory; when not set, "
        "streamfactory-<user id> below /dev/shm.",
        PATH,
        example="/run/user/1000/streams",
    ),
    Option(
        "topic.name",
        "Name of the topic.",
        default="default",
        validator=folder_name_problem,
        example="clicks",
    ),
    Option(
        "capacity",
        "Size of the ring of each partition of a topic that is created: the most that "
        "it takes of the memory.",
        SIZE,
        default="64M",
        minimum=65_536,
        maximum=1 << 40,
    ),
    Option(
        "when.full",
        "What makes room in a ring of a topic that is created: drop gives up the "
        "oldest rows, block waits until all open readers have read them.",
        choice("drop", "block"),
        default="drop",
    ),
    Option(
        "stall.timeout.millis",
        "Time for which a write waits for readers that hold or have not read what has "
        "to make room.",
        PERIOD,
        default="5m",
        minimum=1,
    ),
    Option(
        "read.mode",
        "map: batches refer to the ring, and the writer waits for as long as one is in "
        "use whose bytes it needs. copy: batches are copied, and no writer waits.",
        choice("map", "copy"),
        default="map",
    ),
    Option(
        "check.values",
        "Validate all values that are read: offsets, indices, run ends, UTF-8, times "
        "and null counts. Set false only if you trust every program that writes the "
        "topic.",
        BOOLEAN,
        default="true",
    ),
    *LOG_OPTIONS,
)
