"""Options of ``socket``, and the settings derived from them."""

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
    "a raw socket stores nothing: copy it into a `file` stream and read that"
)
"""Remedy for uses that need to read rows again."""


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
        "Topic name in positions and error messages.",
        default="rows",
        validator=topic_name_problem,
    ),
    Option(
        "listen",
        "Address to listen at: host:port, host:first-last or unix:/path, where {0-3} "
        "is a range. A range defines several partitions.",
        ADDRESSES,
        example="127.0.0.1:9700",
    ),
    Option(
        "connect",
        "Address to connect to; written as for `listen`.",
        ADDRESSES,
        example="127.0.0.1:9700-9703",
    ),
    Option(
        "writers",
        "Number of writers of a partition: it ends when all of them have ended. With "
        "`any`, it ends when all that have connected have ended.",
        OptionType("integer or any", _writers, {"type": ["string", "integer"]}),
        default="1",
        applies=_READ,
    ),
    Option(
        "readers",
        "Readers of each partition: writing starts when all are connected, and every "
        "reader gets all rows.",
        INTEGER,
        default="1",
        minimum=1,
        maximum=1000,
        applies=_WRITE,
    ),
    Option(
        "reconnect.millis",
        "How long a lost connection may take to return; 0: a loss ends the partition.",
        PERIOD,
        default="0",
        minimum=0,
    ),
    Option(
        "handshake.timeout.millis",
        "Timeout of the TLS handshake of an accepted connection.",
        PERIOD,
        default="10s",
        minimum=1,
    ),
    Option(
        "schema.timeout.millis",
        "Timeout for the schema of an accepted connection.",
        PERIOD,
        default="1m",
        minimum=1,
        applies=_READ,
    ),
    Option(
        "stall.timeout.millis",
        "How long a message may stay partly sent or received while this side waits "
        "for the peer.",
        PERIOD,
        default="5m",
        minimum=1,
    ),
    Option(
        "buffer.bytes",
        "Size of the operating system's socket buffers, which hold data that a slow "
        "reader has not read.",
        SIZE,
        default="4M",
        minimum=4096,
        maximum=2**30,
    ),
    Option(
        "compression",
        "Compression of written batches; useful on links below 3 Gbit/s.",
        choice("none", "lz4", "zstd"),
        default="none",
        applies=_WRITE,
    ),
    Option(
        "max.message.bytes",
        "Maximum decompressed size of a message from a peer.",
        SIZE,
        default="256M",
        minimum=1024,
        maximum=2**40,
        applies=_READ,
    ),
    Option(
        "max.metadata.bytes",
        "Maximum size of a message header or a schema from a peer.",
        SIZE,
        default="1M",
        minimum=1024,
        maximum=2**30,
        applies=_READ,
    ),
    Option(
        "max.dictionary.bytes",
        "Maximum size of the dictionaries of one connection.",
        SIZE,
        default="64M",
        minimum=1024,
        maximum=2**40,
        applies=_READ,
    ),
    Option(
        "allow.plaintext",
        "Allow addresses on other machines without TLS.",
        BOOLEAN,
        default="false",
    ),
    Option("tls", "Use TLS, 1.2 or later.", BOOLEAN, default="false"),
    Option(
        "tls.certificate",
        "PEM file with the certificate of this side and its chain.",
        PATH,
    ),
    Option("tls.key", "PEM file with the key of the certificate.", PATH),
    Option("tls.key.password", "Password of the key.", secret=True),
    Option(
        "tls.ca",
        "PEM file with the CA certificates that the peer is verified against. A "
        "listening side then requires a client certificate; a connecting side uses "
        "the system's CA certificates by default.",
        PATH,
    ),
    Option(
        "tls.hostname",
        "Host name in the server's certificate, if it differs from the address.",
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of connections, in seconds and bytes."""

    addresses: tuple[Address, ...]
    listens: bool
    timeout: float
    """Timeout to connect, including the handshake, and for the first schema."""
    handshake: float
    """Timeout of the TLS handshake of an accepted connection."""
    schema: float
    """Timeout for the schema of an accepted connection."""
    stall: float
    reconnect: float
    retry_first: float
    retry_longest: float
    buffer: int
    tls: bool

    @classmethod
    def of(cls, config: StreamConfig) -> Settings:
        """The settings of a validated configuration."""
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
