"""The settings of the server."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from streamfactory.arrowlog.disk.options import (
    LOCATION,
    MODE_OPTIONS,
    STORAGE_OPTIONS,
    WRITING_OPTIONS,
)
from streamfactory.spi import BOOLEAN, INTEGER, PATH, PERIOD, SIZE, Option
from streamfactory.spi.listening import LISTENING_OPTIONS

STORE_OPTIONS: Final = (*WRITING_OPTIONS, *MODE_OPTIONS, *STORAGE_OPTIONS)
"""Options of `file` about storage. They have no effect with memory=true."""

OPTIONS: Final = (
    Option(
        "address",
        "Host and port to listen on; port 0 selects a free one.",
        default="127.0.0.1:8815",
        example="127.0.0.1:8815",
    ),
    Option(
        "path",
        "Folder, or URL of an object store, for the topics.",
        LOCATION,
        example="/var/lib/streams",
    ),
    Option(
        "memory",
        "Keep the topics in memory: they are lost when the server ends.",
        BOOLEAN,
        default="false",
    ),
    *(replace(option, applies=frozenset()) for option in STORE_OPTIONS),
    Option(
        "advertise",
        "Location for clients, if it differs from the address: grpc://host:port.",
        example="grpc+tls://streams.example.com:8815",
    ),
    *LISTENING_OPTIONS,
    Option(
        "access.file",
        "Bearer tokens and permissions by topic, TOML; read again when it changes. "
        "Without it, every client that can connect may do everything.",
        PATH,
    ),
    Option(
        "calls",
        "Maximum open calls in total; a reader of one partition keeps one open.",
        INTEGER,
        default="1000",
        minimum=1,
    ),
    Option(
        "calls.per.client",
        "Maximum open readers and uploads of one client: a user, or without "
        "access.file an address.",
        INTEGER,
        default="500",
        minimum=1,
    ),
    Option(
        "calls.reserved",
        "Of calls, those that readers leave free, and uploads by half, for commits, "
        "metadata and health; at most the half of calls.",
        INTEGER,
        default="100",
        minimum=0,
    ),
    Option(
        "batch.bytes",
        "Maximum bytes of a batch that is sent or accepted.",
        SIZE,
        default="64M",
        minimum=1024,
        maximum=1 << 30,
    ),
    Option(
        "staged.bytes",
        "Maximum uploaded bytes that are not committed, measured in memory.",
        SIZE,
        default="64G",
        minimum=1024,
    ),
    Option(
        "staged.bytes.per.client",
        "The same for one client: a user, or without access.file an address.",
        SIZE,
        default="32G",
        minimum=1024,
    ),
    Option(
        "staged.timeout.millis",
        "Age at which uploads that are neither continued nor committed are removed; "
        "must be longer than any epoch takes.",
        PERIOD,
        default="1d",
        minimum=1,
        maximum=30 * 86_400_000,
        former=("staged.timeout",),
    ),
    Option(
        "writer.memory.millis",
        "Forget writers that have not committed for so long, with their last epoch. A "
        "client with the right admin may send another value with its commits.",
        PERIOD,
        default="30d",
        minimum=0,
    ),
    Option(
        "stalled.after.millis",
        "A reader that takes nothing for so long although rows are available counts as "
        "stalled.",
        PERIOD,
        default="30s",
        minimum=1,
    ),
    Option(
        "drain.timeout.millis",
        "On shutdown, time to wait for commits in progress.",
        PERIOD,
        default="10s",
        minimum=0,
    ),
)
