"""Options of ``zeromq``, and the settings of its sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.zeromq.endpoints import ENDPOINTS, Endpoint
from streamfactory.backends.zeromq.keys import CURVE_KEY, CURVE_KEYS
from streamfactory.live.options import (
    MESSAGE_OPTIONS,
    NUMBER_OR_ANY,
    READ,
    WRITE,
    LiveSettings,
    plaintext_option,
    topic_option,
)
from streamfactory.spi import (
    INTEGER,
    PERIOD,
    SIZE,
    Option,
    OptionType,
    choice,
)

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


def _prefixes(text: str) -> tuple[bytes, ...]:
    return tuple(sorted({part.strip().encode() for part in text.split(",")}))


OPTIONS: Final = (
    topic_option("messages"),
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
        applies=READ,
    ),
    Option(
        "prefix",
        "First frame of published messages, which subscriptions match; by default the "
        "topic name. Plain messages have their key there.",
        applies=WRITE,
    ),
    Option(
        "senders",
        "Number of senders that a partition merges, or `any`. The partition ends when "
        "that many have ended. Above 1, the reader assigns offsets.",
        NUMBER_OR_ANY,
        default="1",
        applies=READ,
    ),
    Option(
        "sender.id",
        "Name of the only writer, kept across restarts: rows of a repeated epoch, "
        "which "
        "must be identical and in the same order, are stored once.",
        applies=WRITE,
    ),
    Option(
        "readers",
        "Number of subscriptions that a publisher waits for before its first message.",
        INTEGER,
        default="1",
        minimum=0,
        maximum=1000,
        applies=WRITE,
    ),
    Option(
        "when.full",
        "Behaviour of a publisher when a subscriber's high-water mark is reached: "
        "block, or drop the message for that subscriber.",
        choice("block", "drop"),
        default="block",
        applies=WRITE,
    ),
    Option(
        "acknowledge",
        "When the reader acknowledges rows: once they are stored (by copy, groups, "
        "queries and spools), or once the following rows are fetched.",
        choice("stored", "fetched"),
        default="stored",
        applies=READ,
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
        "Time for which closing waits until peers have received queued messages.",
        PERIOD,
        default="30s",
        minimum=0,
        applies=WRITE,
    ),
    Option(
        "stall.timeout.millis",
        "Time for which a write waits for a reader that does not accept or "
        "acknowledge.",
        PERIOD,
        default="5m",
        minimum=1,
        applies=WRITE,
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
    *MESSAGE_OPTIONS,
    plaintext_option("CURVE"),
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


_LONGEST_FRAME: Final = 1024 * 1024
_SHORTEST_FRAME: Final = 16 * 1024
_SLOWEST: Final = 64 * 1024
"""Bytes a second of the slowest link whose frames arrive within three heartbeats."""


class Settings(LiveSettings):
    """Settings of sockets, in seconds and bytes."""

    addresses: tuple[tuple[Endpoint, ...], ...]

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config, "bind")
        self.pattern: str = config["pattern"]
        self.is_raw = config["payload"] == "raw"
        self.is_plain = config["framing"] == "plain"
        self.heartbeat: int = config["heartbeat.millis"]
        """Milliseconds."""
        beats = 3 * self.heartbeat * _SLOWEST // 1000 or _LONGEST_FRAME
        self.frame = max(_SHORTEST_FRAME, min(_LONGEST_FRAME, beats))
        """Bytes of a frame with rows, and of a message with several. libzmq takes a
        peer for alive with each complete frame within three heartbeats."""
