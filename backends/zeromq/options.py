"""Options of ``zeromq``, and the settings of its sockets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.backends.zeromq.endpoints import ENDPOINTS, Endpoint
from streamfactory.backends.zeromq.keys import CURVE_KEY, CURVE_KEYS
from streamfactory.spi import (
    BOOLEAN,
    INTEGER,
    PERIOD,
    SIZE,
    Option,
    OptionType,
    choice,
)
from streamfactory.spi.options import whole_number
from streamfactory.spi.topics import topic_name_problem

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

DURABLE_WAY: Final = (
    "ZeroMQ stores no messages: set up a spool, or copy the stream into a `file` "
    "stream and read that"
)
"""Remedy for uses that need to read messages again."""

PUB_SUB: Final = "pub-sub"
PUSH_PULL: Final = "push-pull"
DEALER_ROUTER: Final = "dealer-router"

_READ: Final = frozenset({"read"})
_WRITE: Final = frozenset({"write"})


def _senders(text: str) -> int | None:
    if text.strip().lower() == "any":
        return None
    number = whole_number(text)
    if not 1 <= number <= 1000:
        msg = "is neither any nor a number from 1 to 1000"
        raise ValueError(msg)
    return number


def _prefixes(text: str) -> tuple[bytes, ...]:
    return tuple(sorted({part.strip().encode() for part in text.split(",")}))


OPTIONS: Final = (
    Option(
        "topic.name",
        "Topic name in positions and error messages.",
        default="messages",
        validator=topic_name_problem,
    ),
    Option(
        "pattern",
        "Sockets of the stream, the writer's first: pub-sub, push-pull, or "
        "dealer-router, which acknowledges.",
        choice(PUB_SUB, PUSH_PULL, DEALER_ROUTER),
        required=True,
    ),
    Option(
        "bind",
        "Endpoints to listen at: tcp://host:port, ipc:///path, inproc://name. A range "
        "(tcp://host:first-last, ipc:///path-{0-3}) defines several partitions.",
        ENDPOINTS,
        example="tcp://127.0.0.1:9800",
    ),
    Option(
        "connect",
        "Endpoints to connect to, written as for `bind`. Several, separated by commas, "
        "are used together.",
        ENDPOINTS,
        example="tcp://127.0.0.1:9800-9803",
    ),
    Option(
        "payload",
        "Content of messages: Arrow batches, or bytes for a decoder.",
        choice("arrow", "raw"),
        default="arrow",
    ),
    Option(
        "framing",
        "Whether messages begin with a sequence frame, as sent by streamfactory; plain "
        "for programs that do not send it.",
        choice("sequenced", "plain"),
        default="sequenced",
    ),
    Option(
        "prefixes",
        "Prefixes of the messages to receive, separated by commas; empty for all.",
        OptionType("prefixes", _prefixes, {"type": "string"}),
        default="",
        applies=_READ,
    ),
    Option(
        "prefix",
        "First frame of published messages, which subscriptions match; by default the "
        "topic name. Plain messages have their key there.",
        applies=_WRITE,
    ),
    Option(
        "senders",
        "Number of senders that a partition merges, or `any`. The partition ends when "
        "that many have ended. Above 1, the reader assigns offsets.",
        OptionType("integer or any", _senders, {"type": ["string", "integer"]}),
        default="1",
        applies=_READ,
    ),
    Option(
        "sender.id",
        "Name of the only writer, kept across restarts: rows of a repeated epoch, "
        "which "
        "must be identical and in the same order, are stored once.",
        applies=_WRITE,
    ),
    Option(
        "readers",
        "Number of subscriptions that a publisher waits for before its first message.",
        INTEGER,
        default="1",
        minimum=0,
        maximum=1000,
        applies=_WRITE,
    ),
    Option(
        "when.full",
        "Behaviour of a publisher when a subscriber's high-water mark is reached: "
        "block, or drop the message for that subscriber.",
        choice("block", "drop"),
        default="block",
        applies=_WRITE,
    ),
    Option(
        "acknowledge",
        "When the reader acknowledges rows: once they are stored (by copy, groups, "
        "queries and spools), or once the following rows are fetched.",
        choice("stored", "fetched"),
        default="stored",
        applies=_READ,
    ),
    Option(
        "buffer.bytes",
        "Maximum bytes queued for a peer, and kept until acknowledged. ZeroMQ's limit "
        "is a number of messages: see the page.",
        SIZE,
        default="64M",
        minimum=64 * 1024,
        maximum=2**40,
    ),
    Option(
        "linger.millis",
        "Time for which closing waits until queued messages are sent.",
        PERIOD,
        default="30s",
        minimum=0,
        applies=_WRITE,
    ),
    Option(
        "stall.timeout.millis",
        "Time for which a write waits for a reader that does not accept or "
        "acknowledge.",
        PERIOD,
        default="5m",
        minimum=1,
        applies=_WRITE,
    ),
    Option(
        "heartbeat.millis",
        "Interval of heartbeats. A peer that does not respond for three intervals is "
        "disconnected. 0 disables heartbeats.",
        PERIOD,
        default="5s",
        minimum=0,
        maximum=6_000_000,
    ),
    Option(
        "max.message.bytes",
        "Maximum size of a frame from a peer, and of a decompressed batch.",
        SIZE,
        default="256M",
        minimum=1024,
        maximum=2**40,
        applies=_READ,
    ),
    Option(
        "max.metadata.bytes",
        "Maximum size of a schema, and of the header of a batch, from a peer.",
        SIZE,
        default="1M",
        minimum=1024,
        maximum=2**30,
        applies=_READ,
    ),
    Option(
        "allow.plaintext",
        "Allow endpoints on other machines without CURVE.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "curve.secret.key",
        "Secret key of this side, Z85 or hexadecimal. Encrypts and authenticates every "
        "connection.",
        secret=True,
    ),
    Option(
        "curve.server.key",
        "Public key of the binding side, Z85 or hexadecimal.",
        CURVE_KEY,
    ),
    Option(
        "curve.allowed.keys",
        "Public keys of clients that may connect, Z85 or hexadecimal, separated by "
        "spaces or commas; or `any`.",
        CURVE_KEYS,
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of sockets, in seconds and bytes."""

    endpoints: tuple[tuple[Endpoint, ...], ...]
    """By partition."""
    binds: bool
    pattern: str
    is_raw: bool
    is_plain: bool
    timeout: float
    """Timeout for the connection of a peer, and for the first schema."""
    buffer: int
    heartbeat: int
    """Milliseconds."""

    @classmethod
    def of(cls, config: StreamConfig) -> Settings:
        """The settings of a configuration that `check_options` accepted."""
        binds = "bind" in config
        return cls(
            endpoints=config["bind" if binds else "connect"],
            binds=binds,
            pattern=config["pattern"],
            is_raw=config["payload"] == "raw",
            is_plain=config["framing"] == "plain",
            timeout=config["connection.timeout.millis"] / 1000,
            buffer=config["buffer.bytes"],
            heartbeat=config["heartbeat.millis"],
        )
