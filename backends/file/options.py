"""What may be said of a stream in files."""

from __future__ import annotations

import re
from typing import Final

from streamfactory.arrowlog import LOG_OPTIONS
from streamfactory.backends.file.foreign import OPTIONS as FOREIGN_OPTIONS
from streamfactory.spi import INTEGER, PATH, PERIOD, Option, OptionType, choice

LOG: Final = "log"
"""Of ``format``: topics of ours, rather than files of others."""


def _location(text: str) -> str:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return text.rstrip("/")
    found: str = PATH.parse(text)
    return found


LOCATION: Final = OptionType("path or URL", _location, {"type": "string"})

OPTIONS: Final = (
    Option(
        "path",
        "Folder, or URL of an object store, that holds the topics. With another format "
        "than log: the file, or the folder of files.",
        LOCATION,
        required=True,
        example="/var/lib/streams",
    ),
    Option(
        "topic.name",
        "Name of the topic; of no meaning with another format than log.",
        default="default",
        example="clicks",
    ),
    Option(
        "format",
        "log: durable topics. file, stream: Arrow files of others, random-access or "
        "stream, to be read; auto: whichever it is.",
        choice(LOG, "file", "stream", "auto"),
        default=LOG,
    ),
    *LOG_OPTIONS,
    Option(
        "fsync",
        "What a commit waits for. always: it survives a power cut. interval: synced "
        "at most every fsync.interval, later epochs may be lost in a power cut. never: "
        "the operating system decides. Only always can promise exactly-once.",
        choice("always", "interval", "never"),
        default="always",
        applies=frozenset({"write", "spark"}),
    ),
    Option(
        "fsync.interval",
        "With fsync=interval, the time between two.",
        PERIOD,
        default="1s",
        minimum=1,
        applies=frozenset({"write", "spark"}),
    ),
    Option(
        "compression",
        "Of segments: lz4 is faster than most disks, zstd is smaller.",
        choice("none", "lz4", "zstd"),
        default="none",
        applies=frozenset({"write", "spark"}),
    ),
    Option(
        "compaction.files",
        "Merge small segments when there are so many of a kind.",
        INTEGER,
        default="64",
        minimum=2,
        maximum=10_000,
        applies=frozenset({"write", "spark"}),
    ),
    *FOREIGN_OPTIONS,
)
