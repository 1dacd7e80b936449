"""The options of a log on disk: where it is and how it is written.

Declared once for the stream type `file` and for servers that keep topics.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

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
        msg = "has a query or a fragment, wanted a bucket and a folder"
        raise ValueError(msg)
    if parts.scheme.lower() == "file":
        if parts.netloc not in ("", "localhost"):
            msg = "names another machine: write file:///folder"
            raise ValueError(msg)
        found: str = PATH.parse(unquote(parts.path))
        return found
    if not parts.netloc:
        msg = "names no bucket: write s3://bucket/folder"
        raise ValueError(msg)
    return text.rstrip("/")


def _permissions(needed: int) -> OptionType:
    """Permissions in octal, of which the owner needs some."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"0?[0-7]{3}", text):
            msg = "is not an octal number of three digits, as 640"
            raise ValueError(msg)
        mode = int(text, 8)
        if mode & needed != needed:
            msg = f"locks out the writer itself: the owner needs {needed:o}"
            raise ValueError(msg)
        return mode

    schema = {"type": "string", "pattern": "^0?[0-7]{3}$"}
    return OptionType("permissions", parse, schema)


LOCATION: Final = OptionType("path or URL", _location, {"type": "string"})

STORAGE_OPTIONS: Final = (
    Option(
        "storage.endpoint",
        "Address of the object store, where it is not its maker's own.",
        example="https://minio.example.com:9000",
    ),
    Option("storage.region", "Region of the bucket (s3).", example="eu-central-1"),
    Option("storage.account", "Name of the account (az).", example="streams"),
    Option(
        "storage.access.key",
        "Access key (s3). Without it: what the environment of the process says, in "
        "the store's own variables, and then what the machine is allowed to do.",
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
        "Ask without credentials.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "storage.allow.http",
        "Send requests over the network in the clear, to an endpoint with http://.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "storage.certificate",
        "Who may sign the store's certificate besides the system's authorities, PEM.",
        PATH,
    ),
    Option(
        "storage.timeout.millis",
        "How long one request to an object store may take; it is begun again for at "
        "most twice as long.",
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
        "Permissions, in octal, of the files that are made. Without it: 666 "
        "less the umask of the process.",
        _permissions(0o600),
        applies=frozenset({"write", "spark"}),
        example="640",
    ),
    Option(
        "folder.mode",
        "Permissions, in octal, of the folders that are made. Without it: those of "
        "`mode`, with the right to search wherever there is one to read; without "
        "`mode`: 777 less the umask of the process.",
        _permissions(0o700),
        applies=frozenset({"write", "spark"}),
        example="750",
    ),
)

WRITING_OPTIONS: Final = (
    Option(
        "fsync",
        "What a commit waits for. always: it survives a power cut. interval: synced "
        "at most every fsync.interval.millis, later epochs may be lost in a power cut. "
        "never: the operating system decides. Only always can promise exactly-once.",
        choice("always", "interval", "never"),
        default="always",
        applies=frozenset({"write", "spark"}),
    ),
    Option(
        "fsync.interval.millis",
        "With fsync=interval, the time between two.",
        PERIOD,
        default="1s",
        minimum=1,
        applies=frozenset({"write", "spark"}),
        former=("fsync.interval",),
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
    Option(
        "compaction.bytes",
        "Merge segments up to about this size, as rows are in memory; one that has it "
        "is not merged again, nor does it grow.",
        SIZE,
        default="64M",
        minimum=1024,
        applies=frozenset({"write", "spark"}),
        former=("compaction.size",),
    ),
    Option(
        "single.writer",
        "Write where nothing can be published exclusively: in folders without hard "
        "links, and in file systems like hdfs://. Two writers at once would then lose "
        "epochs of each other; where they can be seen, the second is refused.",
        BOOLEAN,
        default="false",
        applies=frozenset({"write", "spark"}),
    ),
)
"""How segments are written, and when a commit is durable."""
