"""Options of ``mqtt``, and what is wrong with values of them."""

from __future__ import annotations

from typing import Final

from streamfactory import spi

_READ: Final = frozenset({"read"})
_WRITE: Final = frozenset({"write"})
_LONGEST: Final = 65_535
"""Bytes of a topic: the protocol's limit."""
_PLACES: Final = ("{partition}", "{key}")


def address_problem(text: str) -> str | None:
    """What is wrong with the address of a broker; None if nothing."""
    host, _, port = text.rpartition(":")
    if host and port.isascii() and port.isdecimal() and 0 < int(port) < 65536:
        return None
    return "is not host:port"


def filter_problem(text: str) -> str | None:
    """What is wrong with a topic filter (MQTT 5, section 4.7); None if nothing."""
    levels = text.split("/")
    if not text or "\0" in text or len(text.encode()) > _LONGEST:
        return f"has an invalid topic filter {text!r}"
    if levels[0] == "$share":
        return "has a shared subscription: set shared.group instead"
    for number, level in enumerate(levels, 1):
        if "+" in level and level != "+":
            return f"has + beside other characters in {text!r}"
        if "#" in level and (level != "#" or number < len(levels)):
            return f"has # before the end of {text!r}"
    return None


def filters_problem(texts: tuple[str, ...]) -> str | None:
    """What is wrong with several filters; None if nothing."""
    if len(set(texts)) < len(texts):
        return "has a filter twice"
    return next((p for p in map(filter_problem, texts) if p), None)


def name_problem(text: str) -> str | None:
    """What is wrong with a name that becomes one level of a topic."""
    if not text or len(text) > 200 or any(c in "/+#\0" for c in text):
        return "is not one level of a topic: it has /, +, # or no character"
    return None


def prefix_problem(text: str) -> str | None:
    """What is wrong with the beginning of a topic; None if nothing."""
    return "is no topic: { is not allowed" if "{" in text else topic_problem(text)


def topic_problem(text: str) -> str | None:
    """What is wrong with the topic of a sink; None if nothing."""
    for place in _PLACES:
        text = text.replace(place, "x")
    if not text or any(c in "+#{}\0" for c in text) or len(text.encode()) > _LONGEST:
        return "is no topic: +, #, and { } but {partition} and {key} are not allowed"
    return None


OPTIONS: Final = (
    spi.Option(
        "topic.name",
        "Name of the stream in positions and error messages.",
        default="mqtt",
    ),
    spi.Option(
        "address",
        "Address of the broker.",
        default="127.0.0.1:1883",
        validator=address_problem,
    ),
    spi.Option(
        "filters",
        "Topic filters with wildcards; each is a partition, in this order.",
        spi.LIST,
        validator=filters_problem,
        applies=_READ,
        example="plant/+/temperature",
    ),
    spi.Option(
        "client.id",
        "Prefix of the client ids, which identify the sessions in the broker.",
        validator=name_problem,
        applies=_READ,
        example="warehouse",
    ),
    spi.Option(
        "qos",
        "Quality of service of subscriptions and of published messages.",
        spi.choice("0", "1", "2"),
        default="1",
    ),
    spi.Option(
        "acknowledge",
        "When messages are acknowledged: once stored elsewhere, or received.",
        spi.choice("stored", "received"),
        default="received",
        applies=_READ,
    ),
    spi.Option(
        "session.expiry.millis",
        "How long the broker keeps a session without a connection.",
        spi.PERIOD,
        default="7d",
        minimum=1000,
        maximum=(2**32 - 2) * 1000,
        applies=_READ,
    ),
    spi.Option(
        "shared.group",
        "Share the messages with the other members of a group.",
        validator=name_problem,
        applies=_READ,
    ),
    spi.Option(
        "retained",
        "When retained messages are received: each connection, new session.",
        spi.choice("always", "new", "never"),
        default="new",
        applies=_READ,
    ),
    spi.Option(
        "receive.maximum",
        "Messages that are received but not acknowledged, at most.",
        spi.INTEGER,
        default="10000",
        minimum=1,
        maximum=65_535,
        applies=_READ,
    ),
    spi.Option(
        "buffer.bytes",
        "Bytes that are received but not acknowledged, at most.",
        spi.SIZE,
        default="64M",
        minimum=1024,
        applies=_READ,
    ),
    spi.Option(
        "max.message.bytes",
        "Size of a message, at most; the broker discards longer ones.",
        spi.SIZE,
        default="1M",
        minimum=128,
        maximum=268_435_455,
        applies=_READ,
    ),
    spi.Option(
        "position.topic",
        "Topic below which positions are kept as retained messages.",
        default="streamfactory/positions",
        validator=prefix_problem,
        applies=_READ,
    ),
    spi.Option(
        "publish.topic",
        "Topic of published messages; may contain {partition} and {key}.",
        validator=topic_problem,
        applies=_WRITE,
        example="alerts/{key}",
    ),
    spi.Option(
        "publish.retained",
        "Whether the broker keeps the last message of each topic.",
        spi.BOOLEAN,
        default="false",
        applies=_WRITE,
    ),
    spi.Option(
        "partitions",
        "Partitions of a sink, for {partition}.",
        spi.INTEGER,
        default="1",
        minimum=1,
        maximum=10_000,
        applies=_WRITE,
    ),
    spi.Option("user", "Name of the user."),
    spi.Option("password", "Password of the user.", secret=True),
    spi.Option("tls", "Whether to use TLS.", spi.BOOLEAN, default="false"),
    spi.Option("tls.ca.file", "PEM file of the authority.", spi.PATH),
)
"""All of them, in the order of the reference."""
