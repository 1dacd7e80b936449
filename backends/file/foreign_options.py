"""Formats and options of files of other programs, and what is claimed of them."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from streamfactory.arrowlog.disk.options import LINKS_OPTION
from streamfactory.spi import (
    BOOLEAN,
    PATH,
    PERIOD,
    SIZE,
    Claims,
    Option,
    OptionType,
    choice,
)

STREAM: Final = "stream"
RANDOM: Final = "file"
AUTO: Final = "auto"
PARQUET: Final = "parquet"
FORMATS: Final = (STREAM, RANDOM, AUTO, PARQUET)
"""Values of ``format`` for files of other programs."""

_READ: Final = frozenset({"read", "spark"})

CLAIMS: Final = Claims(replayable=True, durable=True, shared=True)
"""Of files of other programs, whatever their options."""


def _queue(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        msg = "is not a URL with https://"
        raise ValueError(msg)
    _ = parts.port  # raises ValueError if it is no number of a port
    if "@" in parts.netloc:
        msg = "contains credentials: set them with storage.access.key and "
        msg += "storage.secret.key"
        raise ValueError(msg)
    return text


_QUEUE: Final = OptionType("URL", _queue, {"type": "string"})

OPTIONS: Final = (
    Option(
        "state.folder",
        "Folder for the manifest of a folder of files, or of a prefix of an object "
        "store, if that is read-only. All processes that read the stream share it.",
        PATH,
        applies=_READ,
    ),
    Option(
        "order",
        "Order of files that are found at the same time: by name, or by modification "
        "time.",
        choice("name", "time"),
        default="name",
        applies=_READ,
    ),
    Option(
        "names",
        "Shell pattern of the files of a folder that belong to the stream.",
        default="*",
        applies=_READ,
        example="part-*.arrow",
    ),
    Option(
        "list.interval.millis",
        "Time between two listings of a prefix of an object store. Default: 5 seconds; "
        "5 minutes with `queue.url`.",
        PERIOD,
        minimum=100,
        applies=_READ,
        example="1m",
    ),
    Option(
        "queue.url",
        "Queue (Amazon SQS, or another of its protocol) with the events of objects "
        "that are created below the path. It has no other reader than this stream.",
        _QUEUE,
        applies=_READ,
        example="https://sqs.eu-central-1.amazonaws.com/123456789012/arrivals",
    ),
    Option(
        "message.max.bytes",
        "Maximum size of an Arrow message, also when decompressed; of a row group of "
        "a Parquet file when decompressed.",
        SIZE,
        default="4G",
        minimum=1024,
        applies=_READ,
    ),
    LINKS_OPTION,
    Option(
        "memory.map",
        "Memory-map complete files; false copies, for files that may be truncated. Of "
        "an object store: read objects of up to 64 MiB at once; false reads parts.",
        BOOLEAN,
        default="true",
        applies=_READ,
    ),
    Option(
        "check.values",
        "Validate all values that are read: offsets, indices, run ends, UTF-8, times "
        "and null counts. Set false only if you trust every program that writes the "
        "files.",
        BOOLEAN,
        default="true",
    ),
)
