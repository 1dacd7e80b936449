"""Options of ``socket``, and the settings derived from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.socket.addresses import ADDRESSES, Address
from streamfactory.live.options import (
    MESSAGE_OPTIONS,
    NUMBER_OR_ANY,
    READ,
    WRITE,
    LiveSettings,
    plaintext_option,
    seconds,
    topic_option,
)
from streamfactory.spi import (
    BOOLEAN,
    INTEGER,
    PATH,
    PERIOD,
    SIZE,
    Option,
    choice,
)

if TYPE_CHECKING:
    from streamfactory.spi import StreamConfig

DURABLE_WAY: Final = (
    "a raw socket stores nothing: copy it into a `file` stream and read that"
)
"""Remedy for uses that need to read rows again."""


OPTIONS: Final = (
    topic_option("rows"),
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
        NUMBER_OR_ANY,
        default="1",
        applies=READ,
    ),
    Option(
        "readers",
        "Readers of each partition: writing starts when all are connected, and every "
        "reader gets all rows.",
        INTEGER,
        default="1",
        minimum=1,
        maximum=1000,
        applies=WRITE,
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
        applies=READ,
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
        applies=WRITE,
    ),
    *MESSAGE_OPTIONS,
    Option(
        "max.dictionary.bytes",
        "Maximum size of the dictionaries of one connection.",
        SIZE,
        default="64M",
        minimum=1024,
        maximum=2**40,
        applies=READ,
    ),
    plaintext_option("TLS"),
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


class Settings(LiveSettings):
    """Settings of connections, in seconds and bytes."""

    addresses: tuple[Address, ...]

    def __init__(self, config: StreamConfig) -> None:
        super().__init__(config, "listen")
        self.handshake = seconds(config, "handshake.timeout.millis")
        """Timeout of the TLS handshake of an accepted connection."""
        self.schema = seconds(config, "schema.timeout.millis")
        """Timeout for the schema of an accepted connection."""
        self.stall = seconds(config, "stall.timeout.millis")
        self.reconnect = seconds(config, "reconnect.millis")
        self.retry_first = seconds(config, "retry.initial.millis")
        self.retry_longest = seconds(config, "retry.max.millis")
        self.tls: bool = config["tls"]
