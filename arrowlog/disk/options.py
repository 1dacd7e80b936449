"""The options of a log on disk: its location and how it is written.

Declared once for the stream type `file` and for servers that keep topics.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from streamfactory.arrowlog.disk.names import ARROW, PARQUET
from streamfactory.spi import (
    BOOLEAN,
    INTEGER,
    PATH,
    PERIOD,
    SIZE,
    Option,
    OptionType,
    choice,
)

CONTAINER_FIRST: Final = frozenset({"abfs", "abfss"})
"""Schemes whose URLs are ``abfs://container@account.host/folder``."""


def _location(text: str) -> str:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return _url(text)
    found: str = PATH.parse(text)
    return found


def _url(text: str) -> str:
    parts = urlsplit(text)
    if "@" in parts.netloc and parts.scheme.lower() not in CONTAINER_FIRST:
        msg = "contains credentials: set them with storage.access.key and "
        msg += "storage.secret.key"
        raise ValueError(msg)
    if parts.query or parts.fragment:
        msg = "has a query or a fragment, expected a bucket and a folder"
        raise ValueError(msg)
    if parts.scheme.lower() == "file":
        if parts.netloc not in ("", "localhost"):
            msg = "has a host name: write file:///folder"
            raise ValueError(msg)
        found: str = PATH.parse(unquote(parts.path))
        return found
    if not parts.netloc:
        msg = "has no bucket: write s3://bucket/folder"
        raise ValueError(msg)
    return text.rstrip("/")


def _permissions(needed: int) -> OptionType:
    """Return the type of octal permissions, with those that the owner requires."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"0?[0-7]{3}", text):
            msg = "is not an octal number of three digits, as 640"
            raise ValueError(msg)
        mode = int(text, 8)
        if mode & needed != needed:
            msg = f"excludes the writer itself: the owner requires {needed:o}"
            raise ValueError(msg)
        return mode

    schema = {"type": "string", "pattern": "^0?[0-7]{3}$"}
    return OptionType("permissions", parse, schema)


LOCATION: Final = OptionType("path or URL", _location, {"type": "string"}, path=True)

STORAGE_OPTIONS: Final = (
    Option(
        "storage.endpoint",
        "Address of the object store, if it is not the provider's default.",
        example="https://minio.example.com:9000",
    ),
    Option("storage.region", "Region of the bucket (s3).", example="eu-central-1"),
    Option("storage.account", "Name of the account (az).", example="streams"),
    Option(
        "storage.access.key",
        "Access key (s3). Default: the store's own environment variables, then the "
        "identity of the machine.",
        secret=True,
        example="${env:AWS_ACCESS_KEY_ID}",
    ),
    Option(
        "storage.secret.key",
        "Secret key (s3), or account key (az).",
        secret=True,
        example="${env:AWS_SECRET_ACCESS_KEY}",
    ),
    Option(
        "storage.token",
        "Token of a session (s3), bearer token (gs), or shared access signature (az).",
        secret=True,
        example="${file:/run/secrets/token}",
    ),
    Option(
        "storage.service.account",
        "File with the key of a service account, JSON (gs).",
        PATH,
    ),
    Option(
        "storage.anonymous",
        "Send requests without credentials.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "storage.allow.http",
        "Send unencrypted requests, to an endpoint with http://.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "storage.certificate",
        "Certificate authorities of the store, besides those of the system, PEM.",
        PATH,
    ),
    Option(
        "storage.timeout.millis",
        "Timeout of one request to an object store; it is retried for at most twice as "
        "long.",
        PERIOD,
        default="30s",
        minimum=100,
        maximum=300_000,
        former=("storage.timeout",),
    ),
)

MODE_OPTIONS: Final = (
    Option(
        "mode",
        "Permissions, in octal, of new files. Default: 666 less the umask of the "
        "process.",
        _permissions(0o600),
        applies=frozenset({"write", "spark"}),
        example="640",
    ),
    Option(
        "folder.mode",
        "Permissions, in octal, of new folders. Default: those of `mode`, with the "
        "right to search for each right to read; without `mode`: 777 less the umask of "
        "the process.",
        _permissions(0o700),
        applies=frozenset({"write", "spark"}),
        example="750",
    ),
)

SEGMENT_OPTIONS: Final = (
    Option(
        "segment.format",
        "Format of the segments of a topic that is created. arrow: mapped into memory "
        "when read. parquet: smaller, and read by Spark's own reader; each partition "
        "has its own segments.",
        choice(ARROW, PARQUET),
        default=ARROW,
        applies=frozenset({"write", "spark"}),
    ),
)
"""Of stream types that create topics for other programs to read."""

WRITING_OPTIONS: Final = (
    Option(
        "fsync",
        "When commits are synced. always: each survives a power failure. interval: "
        "every "
        "fsync.interval.millis, later epochs may be lost in a power failure. never: "
        "the operating system decides. Only always allows exactly-once.",
        choice("always", "interval", "never"),
        default="always",
        applies=frozenset({"write", "spark"}),
    ),
    Option(
        "fsync.interval.millis",
        "With fsync=interval, the time between two syncs.",
        PERIOD,
        default="1s",
        minimum=1,
        applies=frozenset({"write", "spark"}),
        former=("fsync.interval",),
    ),
    Option(
        "compression",
        "Compression of segments: lz4 is faster than most disks, zstd is smaller.",
        choice("none", "lz4", "zstd"),
        default="none",
        applies=frozenset({"write", "spark"}),
    ),
    Option(
        "compaction.files",
        "Merge small segments when there are so many of one level.",
        INTEGER,
        default="64",
        minimum=2,
        maximum=10_000,
        applies=frozenset({"write", "spark"}),
    ),
    Option(
        "compaction.bytes",
        "Merge segments up to about this size, as rows are in memory; larger ones are "
        "not merged again.",
        SIZE,
        default="64M",
        minimum=1024,
        applies=frozenset({"write", "spark"}),
        former=("compaction.size",),
    ),
    Option(
        "inline.bytes",
        "Maximum size of the rows of an epoch that are stored within its record, which "
        "takes two syncs instead of four. 0: always in segments, as earlier versions "
        "of streamfactory require: they refuse a topic with such records. Topics of "
        "Parquet segments have none.",
        SIZE,
        default="32K",
        minimum=0,
        maximum=1 << 20,
        applies=frozenset({"write", "spark"}),
    ),
    Option(
        "single.writer",
        "Write to file systems without exclusive publication: folders without hard "
        "links, "
        "and file systems like hdfs://. Two concurrent writers would lose epochs; a "
        "second writer is refused if it is detected.",
        BOOLEAN,
        default="false",
        applies=frozenset({"write", "spark"}),
    ),
)
"""Options of segments and durability."""

LINKS_OPTION: Final = Option(
    "follow.links",
    "Follow symbolic links below the path, also out of it. Set true only if you trust "
    "every program that writes there.",
    BOOLEAN,
    default="false",
    applies=frozenset({"read", "spark"}),
)
"""Of files of other programs."""
