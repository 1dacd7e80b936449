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
    ConfigError,
    GuaranteeRefused,
    Option,
    OptionType,
    Problem,
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


_NEED_REPLAY: Final = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)


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
        """The settings of a configuration.

        Raises:
            ConfigError: config; every problem among them.
        """
        problems = _problems(config)
        if problems:
            msg = "the configuration of the socket does not hold together"
            raise ConfigError(msg, problems=problems, stream=config.name)
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


def _problems(config: StreamConfig) -> list[Problem]:
    given = [key for key in ("listen", "connect") if key in config]
    if len(given) != 1:
        prefix = f"stream.{config.type}."
        origin = config.settings[given[0]].origin if given else ""
        what = "excludes connect" if given else "or connect is required"
        return [Problem(f"{prefix}listen", what, origin, "say one of them")]
    key = given[0]
    problems = []
    addresses: tuple[Address, ...] = config[key]
    if config["tls"]:
        problems += _tls_problems(config, addresses, listens=key == "listen")
    elif not config["allow.plaintext"] and not all(a.is_local for a in addresses):
        what = f"{config.settings[key].text!r} is not an address of this machine alone"
        problems.append(
            _problem(config, key, what, "set tls=true, or allow.plaintext=true")
        )
    if key == "connect":
        problems += [
            _problem(config, word, "needs listen: who connects has one peer", None)
            for word in ("writers", "readers")
            if config[word] != 1
        ]
    return problems


def _tls_problems(
    config: StreamConfig, addresses: tuple[Address, ...], *, listens: bool
) -> list[Problem]:
    problems = []
    if addresses[0].is_unix:
        what = "has no place on a Unix socket"
        problems.append(_problem(config, "tls", what, "leave it out"))
    if listens and not {"tls.certificate", "tls.key"} <= set(config):
        what = "needs tls.certificate and tls.key where this side listens"
        problems.append(_problem(config, "tls", what, None))
    elif ("tls.certificate" in config) != ("tls.key" in config):
        what = "tls.certificate and tls.key need each other"
        problems.append(_problem(config, "tls", what, None))
    return problems


def _problem(config: StreamConfig, key: str, what: str, advice: str | None) -> Problem:
    setting = config.settings[key]
    return Problem(setting.full_key, what, setting.origin, advice)


def refuse_replay(config: StreamConfig) -> None:
    """Refuse options of a reader that need what was read to be there again.

    Raises:
        ConfigError, GuaranteeRefused: config; name each, and the durable way.
    """
    problems = [
        _problem(config, key, f"{config.settings[key].text!r} needs replay", None)
        for key in _NEED_REPLAY
        if key in config
    ]
    if config.get("guarantee"):  # at-most-once, the least, is no wish
        text = config.settings["guarantee"].text
        problems.append(_problem(config, "guarantee", f"{text!r} needs replay", None))
    if config["consumer.type"] == "highlevel":
        what = "highlevel needs replay: a checkpoint could not be gone on from"
        problems.append(_problem(config, "consumer.type", what, None))
    if problems:
        kind = GuaranteeRefused if config.get("guarantee") else ConfigError
        msg = "a raw socket cannot be read again"
        raise kind(msg, problems=problems, stream=config.name, remedy=DURABLE_WAY)
