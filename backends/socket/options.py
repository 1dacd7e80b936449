"""The options of ``socket``, and what they say together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamfactory.backends.socket.addresses import ADDRESSES, Address
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
from streamfactory.spi.options import whole_number
from streamfactory.spi.topics import topic_name_problem

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

DURABLE_WAY: Final = (
    "a raw socket keeps nothing: copy it into a `file` stream, and read that"
)
"""The remedy for whatever needs to be read again."""


def _writers(text: str) -> int | None:
    if text.strip().lower() == "any":
        return None
    number = whole_number(text)
    if not 1 <= number <= 1000:
        msg = "is neither any nor a number from 1 to 1000"
        raise ValueError(msg)
    return number


_READ: Final = frozenset({"read"})
_WRITE: Final = frozenset({"write"})

OPTIONS: Final = (
    Option(
        "topic.name",
        "Name of the stream in positions and errors.",
        default="rows",
        validator=topic_name_problem,
    ),
    Option(
        "listen",
        "Wait here for the other side: host:port, host:first-last or unix:/path, "
        "where {0-3} is a range. A range gives partitions.",
        ADDRESSES,
        example="127.0.0.1:9700",
    ),
    Option(
        "connect",
        "Go to the other side there; addresses as for `listen`.",
        ADDRESSES,
        example="127.0.0.1:9700-9703",
    ),
    Option(
        "writers",
        "When a partition is finished: when so many writers have come and each has "
        "ended its stream; or `any`, when each that has come has.",
        OptionType("integer or any", _writers, {"type": ["string", "integer"]}),
        default="1",
        applies=_READ,
    ),
    Option(
        "readers",
        "Readers of each partition: rows wait until so many have come, and go to "
        "every one of them.",
        INTEGER,
        default="1",
        minimum=1,
        maximum=1000,
        applies=_WRITE,
    ),
    Option(
        "reconnect.millis",
        "How long a torn connection is waited for, with back-off; 0: a tear is an end.",
        PERIOD,
        default="0",
        minimum=0,
    ),
    Option(
        "handshake.timeout.millis",
        "How long the TLS handshake of an accepted connection may take.",
        PERIOD,
        default="10s",
        minimum=1,
    ),
    Option(
        "schema.timeout.millis",
        "How long a writer whose connection was accepted may take to send its schema.",
        PERIOD,
        default="1m",
        minimum=1,
        applies=_READ,
    ),
    Option(
        "stall.timeout.millis",
        "How long a message may stay half sent, or half received, while this side "
        "waits for the other.",
        PERIOD,
        default="5m",
        minimum=1,
    ),
    Option(
        "buffer.bytes",
        "Size of the operating system's buffer of a connection: what a stalled reader "
        "leaves unread.",
        SIZE,
        default="4M",
        minimum=4096,
        maximum=2**30,
    ),
    Option(
        "compression",
        "Of what is written: pays on links below 3 Gbit/s.",
        choice("none", "lz4", "zstd"),
        default="none",
        applies=_WRITE,
    ),
    Option(
        "max.message.bytes",
        "Longest message taken from a peer, decompressed.",
        SIZE,
        default="256M",
        minimum=1024,
        maximum=2**40,
        applies=_READ,
    ),
    Option(
        "max.metadata.bytes",
        "Longest header of a message, and longest schema, taken from a peer.",
        SIZE,
        default="1M",
        minimum=1024,
        maximum=2**30,
        applies=_READ,
    ),
    Option(
        "max.dictionary.bytes",
        "Most that the dictionaries of one connection may hold.",
        SIZE,
        default="64M",
        minimum=1024,
        maximum=2**40,
        applies=_READ,
    ),
    Option(
        "allow.plaintext",
        "Allow addresses of other machines without TLS.",
        BOOLEAN,
        default="false",
    ),
    Option("tls", "Speak TLS, 1.2 or later.", BOOLEAN, default="false"),
    Option("tls.certificate", "Own certificate with its chain, PEM.", PATH),
    Option("tls.key", "Key of the certificate, PEM.", PATH),
    Option("tls.key.password", "Password of that key.", secret=True),
    Option(
        "tls.ca",
        "Who may sign the other side's certificate, PEM. Where this side listens, a "
        "certificate is then wanted of whoever comes; where it connects, the system's "
        "authorities are the default.",
        PATH,
    ),
    Option(
        "tls.hostname",
        "Name in the certificate of the side that listens, where it is not its host.",
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What connections need to know of the configuration. Seconds and bytes."""

    addresses: tuple[Address, ...]
    listens: bool
    timeout: float
    """For connecting, with the handshake, and for the first schema of the stream."""
    handshake: float
    """For the TLS handshake of an accepted connection."""
    schema: float
    """For the schema of an accepted connection."""
    stall: float
    reconnect: float
    retry_first: float
    retry_longest: float
    buffer: int
    tls: bool

    @classmethod
    def of(cls, config: StreamConfig) -> Settings:
        """The settings of a configuration that `check_options` has found to be well."""
        listens = "listen" in config
        return cls(
            addresses=config["listen" if listens else "connect"],
            listens=listens,
            timeout=config["connection.timeout.millis"] / 1000,
            handshake=config["handshake.timeout.millis"] / 1000,
            schema=config.get("schema.timeout.millis", 0) / 1000,
            stall=config["stall.timeout.millis"] / 1000,
            reconnect=config["reconnect.millis"] / 1000,
            retry_first=config["retry.initial.millis"] / 1000,
            retry_longest=config["retry.max.millis"] / 1000,
            buffer=config["buffer.bytes"],
            tls=config["tls"],
        )
