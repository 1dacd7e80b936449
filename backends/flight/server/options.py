"""The settings of the server."""

from __future__ import annotations

from typing import Final

from streamfactory.spi import BOOLEAN, INTEGER, PATH, PERIOD, SIZE, Option, choice

OPTIONS: Final = (
    Option(
        "address",
        "Host and port to listen on; port 0 takes a free one.",
        default="127.0.0.1:8815",
        example="127.0.0.1:8815",
    ),
    Option("path", "Folder that keeps the topics.", PATH, example="/var/lib/streams"),
    Option(
        "memory",
        "Keep the topics in memory: they are lost when the server ends.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "fsync",
        "With path, what a commit waits for, as the option of the same name of `file`.",
        choice("always", "interval", "never"),
        default="always",
    ),
    Option(
        "fsync.interval",
        "With fsync=interval, the time between two.",
        PERIOD,
        default="1s",
        minimum=1,
    ),
    Option(
        "compression",
        "With path, of segments.",
        choice("none", "lz4", "zstd"),
        default="none",
    ),
    Option(
        "compaction.files",
        "With path, merge small segments when there are so many of a kind.",
        INTEGER,
        default="64",
        minimum=2,
        maximum=10_000,
    ),
    Option(
        "batch.bytes",
        "Most bytes of one batch that is sent or accepted.",
        SIZE,
        default="64M",
        minimum=1024,
        maximum=1 << 30,
    ),
    Option(
        "drain.timeout.millis",
        "On shutdown, how long commits under way may take.",
        PERIOD,
        default="10s",
        minimum=0,
    ),
)
