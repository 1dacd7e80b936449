"""Options of ``http``, and what is wrong with values of them."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from streamfactory import spi

_READ: Final = frozenset({"read"})
_WRITE: Final = frozenset({"write"})


def url_problem(text: str) -> str | None:
    """What is wrong with the URL of an endpoint; None if nothing."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not host:
        return "is not a URL of http or https"
    if parts.username or parts.password:
        return "has credentials: set token"
    return None


OPTIONS: Final = (
    spi.Option(
        "topic.name",
        "Name of the stream in positions and error messages.",
        default="http",
    ),
    spi.Option(
        "url",
        "URL of the endpoint.",
        required=True,
        validator=url_problem,
        example="https://example.org/events",
    ),
    spi.Option("token", "Bearer token of each request.", secret=True),
    spi.Option("ca.file", "PEM file of the authority.", spi.PATH),
    spi.Option(
        "max.event.bytes",
        "Size of an event, at most.",
        spi.SIZE,
        default="1M",
        minimum=128,
        applies=_READ,
    ),
    spi.Option(
        "buffer.bytes",
        "Bytes of events that are received but not read, at most.",
        spi.SIZE,
        default="16M",
        minimum=1024,
        applies=_READ,
    ),
    spi.Option(
        "format",
        "Format of the posted batches.",
        spi.choice("ndjson", "cloudevents", "arrow"),
        default="ndjson",
        applies=_WRITE,
    ),
    spi.Option(
        "batch.messages",
        "Messages of a request, at most; a repeated epoch is cut alike.",
        spi.INTEGER,
        default="1000",
        minimum=1,
        maximum=1_000_000,
        applies=_WRITE,
    ),
    spi.Option(
        "request.bytes",
        "Bytes of keys and values in a request, at most; a longer message goes alone.",
        spi.SIZE,
        default="8M",
        minimum=1,
        applies=_WRITE,
    ),
    spi.Option(
        "event.type",
        "Type of CloudEvents.",
        default="streamfactory.row",
        applies=_WRITE,
    ),
    spi.Option(
        "retry.timeout.millis",
        "How long a request is repeated that may succeed later.",
        spi.PERIOD,
        default="2m",
        minimum=0,
        applies=_WRITE,
    ),
    spi.Option(
        "circuit.failures",
        "Failures in a row after which requests are refused for a while.",
        spi.INTEGER,
        default="5",
        minimum=1,
        applies=_WRITE,
    ),
    spi.Option(
        "circuit.open.millis",
        "How long requests are refused before one is tried again.",
        spi.PERIOD,
        default="10s",
        minimum=1,
        applies=_WRITE,
    ),
    spi.Option(
        "rejected.path",
        "Folder for batches that the endpoint refuses; without it they fail.",
        spi.PATH,
        applies=_WRITE,
    ),
)
"""All of them, in the order of the reference."""
