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
        "advertise",
        "Where clients connect, when that is not the address: grpc://host:port.",
        example="grpc+tls://streams.example.com:8815",
    ),
    Option(
        "allow.remote",
        "Listen on other addresses than loopback without TLS.",
        BOOLEAN,
        default="false",
    ),
    Option("tls.certificate", "Certificate of the server, PEM.", PATH),
    Option("tls.key", "Key of the certificate, PEM.", PATH),
    Option(
        "tls.client.ca",
        "Authorities, PEM: only clients with a certificate of theirs may connect.",
        PATH,
    ),
    Option(
        "access.file",
        "Bearer tokens and permissions by topic, TOML; read again when it changes. "
        "Without it, whoever can connect may do everything.",
        PATH,
    ),
    Option(
        "calls",
        "Most open calls in all; a reader of one partition keeps one open.",
        INTEGER,
        default="1000",
        minimum=1,
    ),
    Option(
        "calls.per.client",
        "Most open calls of one client connection.",
        INTEGER,
        default="500",
        minimum=1,
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
