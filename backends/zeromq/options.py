"""The options of ``zeromq``, and the settings that its sockets are made with."""

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
    "ZeroMQ keeps no messages: put a spool in front of the stream, or copy it into a "
    "`file` stream, and read that"
)
"""The remedy where messages have to be read again."""

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
        "Name of the stream in positions and errors.",
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
        "Endpoints to wait at: tcp://host:port, ipc:///path, inproc://name; a range "
        "(tcp://host:first-last, ipc:///path-{0-3}) gives partitions.",
        ENDPOINTS,
        example="tcp://127.0.0.1:9800",
    ),
    Option(
        "connect",
        "Endpoints to connect to, as for `bind`; several, with commas between them, "
        "are used together.",
        ENDPOINTS,
        example="tcp://127.0.0.1:9800-9803",
    ),
    Option(
        "payload",
        "What messages carry: Arrow batches, or bytes for a decoder.",
        choice("arrow", "raw"),
        default="arrow",
    ),
    Option(
        "framing",
        "Whether messages begin with the frame of streamfactory's own senders, which "
        "has a sequence number; plain for programs that do not send it.",
        choice("sequenced", "plain"),
        default="sequenced",
    ),
    Option(
        "prefixes",
        "Prefixes of the messages to receive, with commas between them; empty for all.",
        OptionType("prefixes", _prefixes, {"type": "string"}),
        default="",
        applies=_READ,
    ),
    Option(
        "prefix",
        "First frame of published messages, which subscriptions select by; the topic "
        "name where not set. Plain messages have their key there.",
        applies=_WRITE,
    ),
    Option(
        "senders",
        "How many senders a partition merges, or `any`; it is finished when so many "
        "have ended. Above 1, offsets are counted by the reader.",
        OptionType("integer or any", _senders, {"type": ["string", "integer"]}),
        default="1",
        applies=_READ,
    ),
    Option(
        "sender.id",
        "Name that the only writer keeps across restarts: rows of a repeated epoch, "
        "which have to be the same in the same order, are then stored once.",
        applies=_WRITE,
    ),
    Option(
        "readers",
        "Subscriptions that a publisher waits for before its first message.",
        INTEGER,
        default="1",
        minimum=0,
        maximum=1000,
        applies=_WRITE,
    ),
    Option(
        "when.full",
        "What a publisher does when a subscriber's high-water mark is reached: wait, "
        "or drop the message for that subscriber.",
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
        "Bytes queued for a peer, and kept until they are acknowledged. ZeroMQ counts "
        "messages: see the page.",
        SIZE,
        default="64M",
        minimum=64 * 1024,
        maximum=2**40,
    ),
    Option(
        "linger.millis",
        "How long closing waits for queued messages to be sent.",
        PERIOD,
        default="30s",
        minimum=0,
        applies=_WRITE,
    ),
    Option(
        "stall.timeout.millis",
        "How long a write may wait for a reader that accepts or acknowledges nothing.",
        PERIOD,
        default="5m",
        minimum=1,
        applies=_WRITE,
    ),
    Option(
        "heartbeat.millis",
        "Interval of heartbeats; a peer that answers none for three intervals is "
        "disconnected. 0 sends none.",
        PERIOD,
        default="5s",
        minimum=0,
        maximum=6_000_000,
    ),
    Option(
        "max.message.bytes",
        "Longest frame accepted from a peer, and longest batch, decompressed.",
        SIZE,
        default="256M",
        minimum=1024,
        maximum=2**40,
        applies=_READ,
    ),
    Option(
        "max.metadata.bytes",
        "Longest schema, and longest header of a batch, accepted from a peer.",
        SIZE,
        default="1M",
        minimum=1024,
        maximum=2**30,
        applies=_READ,
    ),
    Option(
        "allow.plaintext",
        "Allow endpoints of other machines without CURVE.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "curve.secret.key",
        "Own secret key, Z85 or hexadecimal: encrypts every connection, and proves who "
        "this side is.",
        secret=True,
    ),
    Option(
        "curve.server.key",
        "Public key of the side that binds, Z85 or hexadecimal.",
        CURVE_KEY,
    ),
    Option(
        "curve.allowed.keys",
        "Public keys of clients that may connect, Z85 or hexadecimal, with spaces or "
        "commas between them; or `any`.",
        CURVE_KEYS,
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What sockets and lanes need of the configuration. Seconds and bytes."""

    endpoints: tuple[tuple[Endpoint, ...], ...]
    """By partition."""
    binds: bool
    pattern: str
    is_raw: bool
    is_plain: bool
    timeout: float
    """For a peer to come, and for the first schema."""
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
